"""The same model in a class of transformers' own, and back.

A head of ours is linear in the first token's vector, ``W h + b``. The stock classes for BERT, RoBERTa and their kin put
``tanh(V h + c)`` in between. With ``V = ε I``, ``c = 0`` and ``W / ε`` in the place of W nothing of that is left:
in fp32 ``tanh(x) = x`` for ``|x| <= 2^-12``, and a power of two scales without rounding, so that logits stay the same
to the last bit (as far as the order of additions does: on a CPU it may change with where weights lie in memory).
The encoder ends in a layer norm, which bounds ``|h|`` for every text there can be; ε follows from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import AutoModelForSequenceClassification, PreTrainedConfig, PreTrainedModel

from hgclr.models.base import HierarchicalPreTrainedModel
from hgclr.models.configuration import HGCLRConfig
from hgclr.models.flat import FlatForSequenceClassification
from hgclr.models.pretrained import load_weights

__all__ = ["KEY", "Pooling", "as_flat", "from_stock", "label_fields", "no_stock_form", "not_flat", "to_stock"]

Pooling = Literal["cls", "mean", "max"]

KEY = "hgclr"
"""Field of the stock configuration with what only we need: label tree, threshold, length, ε, and shifts of logits."""
OURS = ("label_parents", "label_names", "threshold", "max_length")
LABELS = ("id2label", "label2id", "problem_type")
SCALE, SHIFT = "head_scale", "logit_shift"
LINEAR = 2.0**-12
"""Up to here tanh(x) = x in fp32: the next term of its series, x³/3, is below half of x's last bit."""
HEADS = {
    "bert": ("bert.pooler.dense", "classifier"),
    "camembert": ("classifier.dense", "classifier.out_proj"),
    "mpnet": ("classifier.dense", "classifier.out_proj"),
    "roberta": ("classifier.dense", "classifier.out_proj"),
    "xlm-roberta": ("classifier.dense", "classifier.out_proj"),
}
"""Kinds of encoder whose stock class has a tanh on the first token: the linear layers before and after that."""


def not_flat(model: HierarchicalPreTrainedModel) -> str | None:
    """Return why a model is no linear layer on its encoder, or None if it is."""
    if not isinstance(model, FlatForSequenceClassification):
        return f"{type(model).__name__} has more than a linear layer on its encoder"
    return None


def no_stock_form(model: HierarchicalPreTrainedModel) -> str | None:
    """Return why a model has no form in a stock class, or None if it has one."""
    kind, pooling = model.config.text_encoder.model_type, model.config.pooling
    if (reason := not_flat(model)) is not None:
        return reason
    if kind not in HEADS:
        return f"transformers' own class for {kind} has no head that a linear layer can be written in"
    if pooling != "cls":
        return f"transformers' own class for {kind} reads the first token, this model's pooling is {pooling}"
    return None


@torch.no_grad()
def to_stock(model: HierarchicalPreTrainedModel, shift: NDArray[np.float32] | None = None) -> PreTrainedModel:
    """Return a stock classifier with the same logits; weights are copied.

    A ``shift``, (K,), is added to the logits and noted in the configuration, so that :func:`from_stock` takes it away
    again.

    Raises:
        ValueError: if there is none, see :func:`no_stock_form`.
    """
    if (reason := no_stock_form(model)) is not None:
        raise ValueError(reason)
    fields = {**model.config.text_encoder.to_dict(), **label_fields(model.config, shift)}
    stock: Any = AutoModelForSequenceClassification.from_config(
        type(model.config.text_encoder)(**fields), trust_remote_code=False
    )
    stock.base_model.load_state_dict(model.encoder.state_dict(), strict=False)
    scale = _scale(model.encoder)
    before, after = _head(stock)
    before.weight.copy_(scale * torch.eye(len(before.weight)))
    before.bias.zero_()
    after.weight.copy_(model.classifier.weight / scale)
    after.bias.copy_(model.classifier.bias)
    if shift is not None:
        after.bias.add_(torch.from_numpy(shift))
    getattr(stock.config, KEY)[SCALE] = scale
    stock.eval()
    network: PreTrainedModel = stock
    return network


@torch.no_grad()
def from_stock(folder: str | Path) -> FlatForSequenceClassification:
    """Load what :func:`to_stock` made as the model that it was made of, weights to the last bit.

    A shift of the logits is taken away again, which may change the last bit of a bias.

    Raises:
        OSError, ValueError: if there is no such model, or its head was changed, as by training it further.
    """
    stock: Any = load_weights(AutoModelForSequenceClassification, folder, use_safetensors=True)
    with _as_written():
        scale = float(getattr(stock.config, KEY)[SCALE])
        before, after = _head(stock)
    model = as_flat(stock.config, "cls", stock.base_model, after)
    if not torch.equal(before.weight, scale * torch.eye(len(before.weight))) or before.bias.any():
        raise ValueError("its head is not the one that hgclr export wrote")
    model.encoder.pooler = None  # which ours have not
    model.classifier.weight.mul_(scale)
    return model


def label_fields(config: HGCLRConfig, shift: NDArray[np.float32] | None = None) -> dict[str, Any]:
    """Return what goes into an encoder's configuration: labels as transformers has them, the rest under :data:`KEY`."""
    ours = {name: getattr(config, name) for name in OURS}
    if shift is not None:
        ours[SHIFT] = shift.tolist()
    return {**{name: getattr(config, name) for name in LABELS}, KEY: ours}


@torch.no_grad()
def as_flat(
    written: PreTrainedConfig, pooling: Pooling, encoder: Any, head: nn.Linear
) -> FlatForSequenceClassification:
    """Return the model of an encoder and a head, not copied; a shift of the logits is taken away from the head's bias.

    Raises:
        ValueError: if the configuration has not the fields of :func:`label_fields`, or the head other labels.
    """
    config_class: Any = FlatForSequenceClassification.config_class
    with _as_written():
        fields = written.to_dict()
        ours = {name: fields[KEY][name] for name in OURS}
        labels = {name: fields.pop(name) for name in LABELS}
        shift = torch.tensor(fields[KEY].get(SHIFT, 0.0), dtype=torch.float32)
        if shift.shape not in ((), (written.num_labels,)):
            raise TypeError(f"{SHIFT} has the shape {tuple(shift.shape)}")
        del fields[KEY], fields["architectures"]
        config = config_class(encoder_config=type(written)(**fields), pooling=pooling, **ours, **labels)
    if head.out_features != config.label_count:
        raise ValueError(f"{head.out_features} outputs for {config.label_count} labels")
    with torch.device("meta"):
        model = FlatForSequenceClassification(config)
    model.encoder, model.classifier = encoder, head
    model.classifier.bias.sub_(shift)
    return model


@contextmanager
def _as_written() -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError) as error:
        raise ValueError(f"the field {KEY!r} of its configuration is not what hgclr export writes: {error}") from error


def _scale(encoder: Any) -> float:
    """Return ε: the largest power of two with which no vector of the encoder leaves the linear part of tanh.

    A vector after a layer norm over H features is ``γ ∘ n + β`` with ``|n_i| < sqrt(H)``.
    """
    norm: nn.LayerNorm = encoder.encoder.layer[-1].output.LayerNorm
    bound = norm.weight.abs() * math.sqrt(norm.normalized_shape[0]) + norm.bias.abs()
    return LINEAR / 2.0 ** math.ceil(math.log2(max(float(bound.max()), 1.0)))


def _head(stock: PreTrainedModel) -> tuple[nn.Linear, nn.Linear]:
    """Return the linear layers before the tanh and after it."""
    before, after = (stock.get_submodule(name) for name in HEADS[stock.config.model_type])
    if not isinstance(before, nn.Linear) or not isinstance(after, nn.Linear):
        raise TypeError(f"{type(stock).__name__} has another head than this version knows")
    return before, after
