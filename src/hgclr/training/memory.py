"""Train within the memory there is: refuse what cannot fit, and let a large encoder take less.

Weights, gradients and Adam's two moments are counted exactly. What the layers keep for the backward pass is an
approximation whose factors were fitted to measured peaks, on a CPU; tests hold the whole within a fifth of the peak.
Each system says what it takes, see ``state_bytes`` and ``batch_bytes`` of its class.

An encoder takes less if its layers are computed anew in the backward pass, or if adapters of low rank are trained in
its place. Neither changes what is deployed: layers that are computed anew have the same gradients, random parts
included, and adapters are merged into the weights that they adapt.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from hgclr.errors import InputError, require_extra
from hgclr.hardware import free_memory
from hgclr.models import HierarchicalPreTrainedModel
from hgclr.models import architecture as find_architecture
from hgclr.models.base import NUMBER
from hgclr.models.pretrained import load_encoder_config
from hgclr.nn.draws import current_packing, packed
from hgclr.taxonomy import Taxonomy
from hgclr.training.settings import LoraSettings

__all__ = [
    "PROJECTIONS",
    "add_adapters",
    "check_batch",
    "check_parameters",
    "checkpoint_layers",
    "describe_adapters",
    "merge_adapters",
    "need_of",
]

PROJECTIONS = (
    ("query", "key", "value", "attention.output.dense"),  # BERT, RoBERTa, ELECTRA
    ("q", "k", "v", "o"),  # MPNet
    ("q_lin", "k_lin", "v_lin", "out_lin"),  # DistilBERT
    ("query_proj", "key_proj", "value_proj", "attention.output.dense"),  # DeBERTa
    ("attn.Wqkv", "attn.Wo"),  # ModernBERT
)
"""How encoders call the linear layers of their attention."""


@dataclass(frozen=True)
class MemoryNeed:
    """What training takes: parameters of the text encoder and of the rest, bytes of the state and of a batch."""

    encoder: int
    head: int
    state: int
    batch: int = 0

    @property
    def total(self) -> int:
        return self.state + self.batch


def need_of(model: HierarchicalPreTrainedModel, *, batch_size: int = 0, length: int = 0) -> MemoryNeed:
    """Return what training takes with B documents of up to L tokens in a batch; without these, the parameters alone."""
    encoder = _count(model.encoder)
    return MemoryNeed(encoder, _count(model) - encoder, model.state_bytes(), model.batch_bytes(batch_size, length))


def check_parameters(
    architecture: str,
    encoder: str | PreTrainedConfig,
    taxonomy: Taxonomy,
    tokenizer: PreTrainedTokenizerBase,
    settings: dict[str, Any],
    *,
    frozen: bool = False,
) -> None:
    """Refuse a model whose parameters alone are too many to train, without allocating any.

    Of a ``frozen`` encoder, beside which adapters are trained, there are but the weights.
    """
    config = load_encoder_config(encoder) if isinstance(encoder, str) else encoder
    with torch.device("meta"), _quiet():
        model = find_architecture(architecture).from_encoder_config(config, taxonomy, tokenizer, **settings)
    if frozen:
        model.encoder.requires_grad_(False)
    free, need = free_memory(), need_of(model)
    if free is not None and need.total > free:
        raise InputError(
            f"{architecture} with {len(taxonomy):,} labels has a head of {_millions(need.head)} parameters on an"
            f" encoder of {_millions(need.encoder)}: training needs about {_gigabytes(need.total)},"
            f" {_gigabytes(free)} are free",
            remedy=model.less_memory,
        )


def check_batch(architecture: str, model: HierarchicalPreTrainedModel, *, batch_size: int, length: int) -> None:
    """Refuse a batch that is too large to train a model on, whose weights are allocated already."""
    free, need = free_memory(), need_of(model, batch_size=batch_size, length=length)
    allocated = 0 if torch.accelerator.is_available() else (need.head + need.encoder) * NUMBER
    missing = need.total - allocated
    if free is not None and missing > free:
        raise InputError(
            f"training {architecture} with {model.config.label_count:,} labels on {batch_size} texts of up to"
            f" {length:,} tokens at a time needs about {_gigabytes(missing)} more, {_gigabytes(free)} are free",
            remedy="lower training.batch_size (training.gradient_accumulation makes up for it)"
            + ("" if model.encoder.is_gradient_checkpointing else ", set training.gradient_checkpointing")
            + " or lower model.max_length",
        )


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _millions(number: int) -> str:
    return f"{number / 1e6:,.0f} M" if number >= 10e6 else f"{number / 1e6:,.1f} M"


def _gigabytes(number: int) -> str:
    return f"{number / 1e9:,.1f} GB"


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what models say when they are made for the model that is made in earnest."""
    logger = logging.getLogger("hgclr.models")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def checkpoint_layers(encoder: PreTrainedModel) -> None:
    """Let an encoder keep only the inputs of its layers for the backward pass, which computes the rest anew."""

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
    """
    require_extra("peft", extra="lora", capability="Training with model.lora")
    from peft import LoraConfig, LoraModel

    config = LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=_targets(encoder, lora)
    )
    return LoraModel(encoder, {"default": config}, "default")


def _targets(encoder: PreTrainedModel, lora: LoraSettings) -> list[str]:
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
