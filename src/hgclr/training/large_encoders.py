"""Train a large encoder in less memory: compute its layers anew in the backward pass, or train adapters of low rank.

Neither changes what is deployed: layers that are computed anew have the same gradients, random parts included, and
adapters are merged into the weights that they adapt.
"""

from __future__ import annotations

import difflib
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from hgclr.errors import InputError, require_extra
from hgclr.nn.draws import current_packing, packed
from hgclr.training.settings import LoraSettings

__all__ = ["PROJECTIONS", "add_adapters", "checkpoint_layers", "describe_adapters", "merge_adapters"]

PROJECTIONS = (
    ("query", "key", "value", "attention.output.dense"),  # BERT, RoBERTa, ELECTRA
    ("q", "k", "v", "o"),  # MPNet
    ("q_lin", "k_lin", "v_lin", "out_lin"),  # DistilBERT
    ("query_proj", "key_proj", "value_proj", "attention.output.dense"),  # DeBERTa
    ("attn.Wqkv", "attn.Wo"),  # ModernBERT
)
"""How encoders call the linear layers of their attention."""


def checkpoint_layers(encoder: PreTrainedModel) -> None:
    """Let an encoder keep only the inputs of its layers for the backward pass, which computes the rest anew.

    Raises:
        InputError: if transformers cannot do that with an encoder of this kind.
    """

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), packed(current_packing())  # of the forward pass, and of its repetition

    try:
        encoder.gradient_checkpointing_enable({"use_reentrant": False, "context_fn": contexts})
    except ValueError:
        raise InputError(
            f"training.gradient_checkpointing is true, and transformers has none for a {encoder.config.model_type}"
            " encoder",
            remedy="set it to false and lower training.batch_size, or choose an encoder of the BERT kind",
        ) from None
    encoder.disable_input_require_grads()  # which only the other kind of checkpointing needs


def add_adapters(encoder: PreTrainedModel, lora: LoraSettings) -> Any:
    """Put adapters into linear layers of an encoder, and freeze all else of it; return what merges them.

    A layer then computes ``W x + alpha / rank · B A x`` with W as it was, A of ``rank`` rows drawn at random, and B,
    of as many columns, 0 at first.

    Raises:
        InputError: if the encoder has no such layers.
        MissingExtraError: if peft is not installed.
    """
    require_extra("peft", extra="lora", capability="Training with model.lora")
    from peft import LoraConfig, LoraModel

    config = LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=_targets(encoder, lora)
    )
    return LoraModel(encoder, {"default": config}, "default")


def _targets(encoder: PreTrainedModel, lora: LoraSettings) -> list[str]:
    """Return how the names of the layers to adapt end."""
    linear = [name for name, module in encoder.named_modules() if isinstance(module, nn.Linear)]

    def known(target: str) -> bool:
        return any(f".{name}".endswith(f".{target}") for name in linear)

    if lora.targets == "auto":
        for projections in PROJECTIONS:
            if all(map(known, projections)):
                return list(projections)
        raise InputError(
            f"model.lora.targets is auto, and the attention of a {encoder.config.model_type} encoder is not known",
            remedy=f"name linear layers of it, such as {linear[0]}" if linear else "leave model.lora out",
        )
    for target in lora.targets:
        if not known(target):
            ends = sorted({name.rpartition(".")[2] for name in linear})
            near = difflib.get_close_matches(target, ends, n=1) or ends
            raise InputError(
                f"model.lora.targets has {target!r}, and the encoder has no linear layer of that name",
                remedy=f"it has {', '.join(near)}" if near else "leave model.lora out",
            )
    return list(lora.targets)


def describe_adapters(encoder: PreTrainedModel, adapters: Any) -> str:
    """Say what of an encoder is trained."""
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in encoder.parameters()]
    trained, all_of_it = sum(size for size, trains in sizes if trains), sum(size for size, _ in sizes)
    rank, layers = adapters.peft_config["default"].r, len(adapters.targeted_module_names)
    frozen = (all_of_it - trained) / 1e6
    return f"LoRA of rank {rank} in {layers} layers: {trained / 1e6:.3g} M parameters beside {frozen:.3g} M frozen ones"


def merge_adapters(encoder: PreTrainedModel, adapters: Any) -> None:
    """Add to the weights of an encoder what its adapters have learned, ``W + alpha / rank · B A``, and remove these."""
    adapters.merge_and_unload()
    encoder.requires_grad_(True)
