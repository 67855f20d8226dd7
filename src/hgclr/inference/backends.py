"""What computes logits: torch here, other runtimes behind the same two lines."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hgclr.errors import InputError, require_extra

__all__ = ["Backend", "TorchBackend"]


class Backend(Protocol):
    """Anything that turns padded token ids into logits."""

    def logits(self, input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return logits, (B, K), from ids and mask, (B, L)."""


class TorchBackend:
    """Run the flat model in torch.

    Args:
        model: a folder or a hub name.
        device: where to run, such as ``cpu`` or ``cuda``; by default an accelerator where there is one.

    Raises:
        InputError: if there is no model.
        MissingExtraError: if torch is not installed.
    """

    def __init__(self, model: str | Path, device: str | None = None) -> None:
        require_extra("torch", extra="train", capability="Prediction with torch")
        import torch

        from hgclr.models import FlatModel

        try:
            self.model = FlatModel.from_pretrained(model, use_safetensors=True).eval()
        except (OSError, ValueError) as error:
            raise InputError(
                f"no model could be loaded from {model}: {error}",
                remedy="give the folder 'model' that hgclr train wrote",
            ) from error
        self.device = torch.device(device or torch.accelerator.current_accelerator() or "cpu")
        self.model.to(self.device)

    def logits(self, input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return logits, (B, K), from ids and mask, (B, L)."""
        import torch

        with torch.inference_mode():
            output = self.model(
                torch.from_numpy(input_ids).to(self.device), torch.from_numpy(attention_mask).to(self.device)
            )
        logits: NDArray[np.float32] = output.logits.float().cpu().numpy()
        return logits
