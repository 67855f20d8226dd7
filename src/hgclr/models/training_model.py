"""Load HGCLR as it was trained, with its label side: what the deployed model is left without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hgclr.config import HGCLRConfig
from hgclr.errors import InputError
from hgclr.models.hgclr import HGCLRModel

__all__ = ["load_training_model"]

REMEDY = "give the folder training-model that hgclr train wrote for the architecture hgclr"


def load_training_model(folder: Path, **settings: Any) -> HGCLRModel:
    """Load an HGCLR model with its label side, in evaluation mode.

    Args:
        folder: ``training-model`` of a run.
        settings: values that take the place of those in the model's configuration.

    Raises:
        InputError: if there is no such model, it has no label side, or its labels choose no tokens.
    """
    if not (folder / "config.json").is_file():
        raise InputError("no model here", path=folder, remedy=REMEDY)
    try:
        config = HGCLRConfig.from_pretrained(folder, **settings)
        if config.architectures != [HGCLRModel.__name__]:
            named = (config.architectures or ["model"])[0]
            raise InputError(f"this {named} has no label side", path=folder, remedy=REMEDY)
        if config.positives != "hierarchy":
            raise InputError(f"its positive samples are made by {config.positives}, not by labels", path=folder)
        loaded: Any = HGCLRModel.from_pretrained(folder, config=config, use_safetensors=True, output_loading_info=True)
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n", maxsplit=1)[0].rstrip(".")
        raise InputError(f"no model could be loaded: {reason}", path=folder, remedy=REMEDY) from error
    model: HGCLRModel
    model, found = loaded
    if found["missing_keys"]:  # which transformers would fill with random numbers
        raise InputError(f"the weights lack {min(found['missing_keys'])}", path=folder, remedy=REMEDY)
    model.eval()
    return model
