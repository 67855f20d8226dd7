"""The same model as the modules of sentence-transformers, and back: Transformer, Pooling, Dense.

A flat model is ``W_c h + b_c`` with h the pooled vector of the encoder, and that is a Dense module without an
activation: nothing has to be rewritten, whatever the encoder and the pooling. The folder is written and read here
without the library, in the file format that all its versions read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel

from hgclr.files import read_bytes
from hgclr.models.base import HierarchicalPreTrainedModel, without_pooler
from hgclr.models.flat import FlatForSequenceClassification
from hgclr.models.pretrained import load_pretrained, load_weights
from hgclr.models.stock import Pooling, as_flat, label_fields, not_flat

__all__ = ["MODULES", "from_modules", "no_modules_form", "read_modules", "write_modules"]

MODULES = "modules.json"
KINDS = {"Transformer": "", "Pooling": "1_Pooling", "Dense": "2_Dense"}
"""The modules in their order, and the folder of each."""
POOLINGS: dict[Pooling, str] = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
}
"""Our poolings, and the field that stands for each up to version 5; version 6 reads these and writes one."""
IDENTITY = "torch.nn.modules.linear.Identity"
CONFIG, WEIGHTS = "config.json", "model.safetensors"


def no_modules_form(model: HierarchicalPreTrainedModel) -> str | None:
    """Return why a model cannot be written as modules, or None if it can."""
    if (reason := not_flat(model)) is not None:
        return reason
    if not type(model.encoder).__module__.startswith("transformers."):
        return f"its encoder, {type(model.encoder).__name__}, is none of transformers' own"
    return None


@torch.no_grad()
def write_modules(model: HierarchicalPreTrainedModel, folder: Path, shift: NDArray[np.float32] | None = None) -> None:
    """Write everything but the tokenizer into a folder that is there.

    A ``shift``, (K,), is added to the logits and noted in the configuration, so that :func:`from_modules` takes it
    away.

    Raises:
        ValueError: if the model has no such form, see :func:`no_modules_form`.
    """
    if (reason := no_modules_form(model)) is not None:
        raise ValueError(reason)
    model.encoder.save_pretrained(folder)
    # Only the encoder's own class knows all of its fields; ours are put beside them.
    encoder_config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    _write(folder / CONFIG, encoder_config | label_fields(model.config, shift))
    settings: dict[str, Any] = {"max_seq_length": model.config.max_length, "do_lower_case": False}
    if without := without_pooler(model.config.text_encoder):
        settings["model_args"] = without  # else it would be made with random weights, and a warning
    _write(folder / "sentence_bert_config.json", settings)
    _write(folder / "config_sentence_transformers.json", {"prompts": {}, "default_prompt_name": None})
    listed = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (kind, path) in enumerate(KINDS.items())
    ]
    _write(folder / MODULES, listed)

    width = model.classifier.in_features
    modes = {field: name == model.config.pooling for name, field in POOLINGS.items()}
    pooling, dense = folder / KINDS["Pooling"], folder / KINDS["Dense"]
    for path in (pooling, dense):
        path.mkdir()
    _write(pooling / CONFIG, {"word_embedding_dimension": width, **modes})
    sizes = {"in_features": width, "out_features": model.classifier.out_features}
    _write(dense / CONFIG, {**sizes, "bias": True, "activation_function": IDENTITY})
    bias = model.classifier.bias if shift is None else model.classifier.bias + torch.from_numpy(shift)
    save_file({"linear.weight": model.classifier.weight.contiguous(), "linear.bias": bias}, dense / WEIGHTS)


class Modules(nn.Module):
    """What the files of a folder say, without our configuration: encoder, pooling and head as the library runs them."""

    def __init__(self, folder: Path, pooling: Pooling, head: nn.Linear) -> None:
        super().__init__()
        self.config: Any = load_pretrained(AutoConfig, folder)
        without = without_pooler(self.config)
        self.encoder: Any = load_weights(AutoModel, folder, encoder=True, use_safetensors=True, **without)
        self.pooling, self.head = pooling, head
        self.eval()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return logits, (B, K), from ids and mask, (B, L)."""
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state  # (B, L, H)
        real = attention_mask.unsqueeze(-1).to(hidden.dtype)  # (B, L, 1)
        if self.pooling == "cls":
            vectors = hidden[:, 0]
        elif self.pooling == "max":
            vectors = hidden.masked_fill(real == 0, float("-inf")).amax(1)
        else:
            vectors = torch.einsum("blh,blo->bh", hidden, real) / real.sum(1).clamp(min=1e-9)
        logits: Tensor = self.head(vectors)
        return logits


def read_modules(folder: Path) -> Modules:
    """Read a folder of an encoder, a pooling of ours and a linear head, whoever wrote it.

    Raises:
        OSError, ValueError: if it is something else.
    """
    try:
        listed = _read(folder / MODULES)
        if [(module["type"].rpartition(".")[2], module["path"]) for module in listed] != list(KINDS.items()):
            raise ValueError(f"{MODULES} does not list {', '.join(KINDS)} in folders {list(KINDS.values())}")
        pooling, dense = (_read(folder / KINDS[kind] / CONFIG) for kind in ("Pooling", "Dense"))
        modes = pooling.get("pooling_mode") or [name for name, field in POOLINGS.items() if pooling.get(field)]
        modes = [modes] if isinstance(modes, str) else modes
        mode = next((name for name in POOLINGS if modes == [name]), None)
        if mode is None or pooling.get("include_prompt", True) is not True:
            raise ValueError(f"its pooling, {pooling}, is none of ours")
        if dense["activation_function"] != IDENTITY or not dense["bias"] or dense.get("use_residual"):
            raise ValueError("its Dense module is not linear with a bias")
        weights = load_file(folder / KINDS["Dense"] / WEIGHTS)
        head = nn.Linear(dense["in_features"], dense["out_features"])
        head.load_state_dict({name.removeprefix("linear."): value for name, value in weights.items()})
    except (AttributeError, KeyError, RuntimeError, TypeError) as error:
        raise ValueError(f"its modules cannot be read: {error!r}") from error
    return Modules(folder, mode, head)


def from_modules(folder: str | Path) -> FlatForSequenceClassification:
    """Load what :func:`write_modules` wrote as the model that it was written from, weights to the last bit.

    The same if sentence-transformers trained it further: it is a linear head on an encoder still.

    Raises:
        OSError, ValueError: if there is no such model.
    """
    modules = read_modules(Path(folder))
    return as_flat(modules.config, modules.pooling, modules.encoder, modules.head)


def _read(path: Path) -> Any:
    return json.loads(read_bytes(path))


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
