"""Convert models to the forms of transformers and sentence-transformers, and back.

Classes of transformers: our head is linear in the first token's vector, ``W h + b``. The stock classes for BERT,
RoBERTa and similar encoders insert ``tanh(V h + c)``. We set ``V = ε I``, ``c = 0`` and use ``W / ε`` for W. In fp32
``tanh(x) = x`` for ``|x| <= 2^-12``, and a power of two scales without rounding, so the logits are equal bit by bit, up
to the order of additions. The encoder ends in a layer norm, which bounds ``|h|`` for every text; ε follows from that
bound.

Modules Transformer, Pooling and Dense of sentence-transformers: the head ``W_c h + b_c`` on the pooled vector h is a
Dense module without an activation, for any encoder and pooling. The library is not needed to write or read the folder.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, PreTrainedConfig, PreTrainedModel

from hgclr.files import json_bytes, read_bytes, read_json
from hgclr.models.base import HGCLRConfig, HierarchicalPreTrainedModel
from hgclr.models.flat import FlatForSequenceClassification
from hgclr.models.pretrained import load_pretrained, load_weights, without_pooler

Pooling = Literal["cls", "mean", "max"]

KEY = "hgclr"
"""Field of the stock configuration for hgclr only: label tree, threshold, length, ε, and shifts of logits."""
OURS = ("label_parents", "label_names", "threshold", "max_length")
OPTIONAL = ("label_alternatives", "label_codes", "label_more_parents")
LABELS = ("id2label", "label2id", "problem_type")
SCALE, SHIFT = "head_scale", "logit_shift"
LINEAR = 2.0**-12
"""Largest x with tanh(x) = x in fp32: the next term of the series, x³/3, is below half of x's last bit."""
HEADS = {
    "bert": ("bert.pooler.dense", "classifier"),
    "camembert": ("classifier.dense", "classifier.out_proj"),
    "mpnet": ("classifier.dense", "classifier.out_proj"),
    "roberta": ("classifier.dense", "classifier.out_proj"),
    "xlm-roberta": ("classifier.dense", "classifier.out_proj"),
}
"""Encoders whose stock class has a tanh on the first token, with the linear layers before and after it."""
MODULES = "modules.json"
KINDS = {"Transformer": "", "Pooling": "1_Pooling", "Dense": "2_Dense"}
"""The modules in their order, and the folder of each."""
POOLINGS: dict[Pooling, str] = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
}
"""The pooling's field in sentence-transformers up to version 5; version 6 reads it, too, but writes another field."""
IDENTITY = "torch.nn.modules.linear.Identity"
CONFIG, WEIGHTS = "config.json", "model.safetensors"


def no_stock_form(model: HierarchicalPreTrainedModel) -> str | None:
    """Return the reason why no class of transformers can represent a model, or None if one can."""
    kind, pooling = model.config.text_encoder.model_type, model.config.pooling
    if not isinstance(model, FlatForSequenceClassification):
        return f"{type(model).__name__} has more than a linear layer on its encoder"
    if kind not in HEADS:
        return f"transformers' own class for {kind} has no head that can represent a linear layer"
    if pooling != "cls":
        return f"transformers' own class for {kind} reads the first token, but this model's pooling is {pooling}"
    return None


def no_modules_form(model: HierarchicalPreTrainedModel) -> str | None:
    """Return the reason why modules of sentence-transformers cannot represent a model, or None if they can."""
    if not isinstance(model, FlatForSequenceClassification):
        return f"{type(model).__name__} has more than a linear layer on its encoder"
    if not type(model.encoder).__module__.startswith("transformers."):
        return f"its encoder, {type(model.encoder).__name__}, is not a class of transformers"
    return None


@torch.no_grad()
def to_stock(model: HierarchicalPreTrainedModel, shift: NDArray[np.float32] | None = None) -> PreTrainedModel:
    """Return a stock classifier with the same logits; weights are copied.

    A ``shift``, (K,), is added to the logits and stored in the configuration, so that :func:`from_stock` removes it.
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
    """Load the flat model that :func:`to_stock` wrote; weights, and a bias without a shift, are equal bit by bit.

    Raises:
        OSError, ValueError: if there is no such model, or its head has changed, for example by training.
    """
    stock: Any = load_weights(AutoModelForSequenceClassification, folder, use_safetensors=True)
    with _as_written():
        scale = float(getattr(stock.config, KEY)[SCALE])
        before, after = _head(stock)
    model = as_flat(stock.config, "cls", stock.base_model, after)
    if not torch.equal(before.weight, scale * torch.eye(len(before.weight))) or before.bias.any():
        raise ValueError("its head has changed since hgclr export wrote it")
    model.encoder.pooler = None  # our models have no pooler
    model.classifier.weight.mul_(scale)
    return model


def label_fields(config: HGCLRConfig, shift: NDArray[np.float32] | None = None) -> dict[str, Any]:
    """Return the fields to add to an encoder's configuration: labels for transformers, the rest under :data:`KEY`."""
    ours = {name: getattr(config, name) for name in OURS}
    ours |= {name: value for name in OPTIONAL if (value := getattr(config, name)) is not None}
    if shift is not None:
        ours[SHIFT] = shift.tolist()
    return {**{name: getattr(config, name) for name in LABELS}, KEY: ours}


@torch.no_grad()
def as_flat(
    written: PreTrainedConfig, pooling: Pooling, encoder: Any, head: nn.Linear, *, shifted: bool = False
) -> FlatForSequenceClassification:
    """Return the flat model of an encoder and a head, not copied, without the logits' shift unless ``shifted``.

    Raises:
        ValueError: if the configuration lacks fields of :func:`label_fields`, or the head has other labels.
    """
    config_class: Any = FlatForSequenceClassification.config_class
    with _as_written():
        fields = written.to_dict()
        ours = {name: fields[KEY][name] for name in OURS} | {name: fields[KEY].get(name) for name in OPTIONAL}
        labels = {name: fields.pop(name) for name in LABELS}
        shift = torch.tensor(fields[KEY].get(SHIFT, 0.0), dtype=torch.float32)
        if shift.shape not in ((), (written.num_labels,)):
            raise TypeError(f"{SHIFT} has the shape {tuple(shift.shape)}")
        del fields[KEY], fields["architectures"]
        config = config_class(encoder_config=type(written)(**fields), pooling=pooling, **ours, **labels)
    if head.out_features != config.label_count:
        raise ValueError(f"the head has {head.out_features} outputs for {config.label_count} labels")
    with torch.device("meta"):
        model = FlatForSequenceClassification(config)
    model.encoder, model.classifier = encoder, head
    model.classifier.bias.sub_(0.0 if shifted else shift)
    return model


@contextmanager
def _as_written() -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError) as error:
        raise ValueError(f"the field {KEY!r} of its configuration is invalid: {error}") from error


def _scale(encoder: Any) -> float:
    """Return ε: the largest power of two that keeps the encoder's vectors in the linear part of tanh.

    A vector after a layer norm over H features is ``γ ∘ n + β`` with ``|n_i| < sqrt(H)``.
    """
    norm: nn.LayerNorm = encoder.encoder.layer[-1].output.LayerNorm
    bound = norm.weight.abs() * math.sqrt(norm.normalized_shape[0]) + norm.bias.abs()
    return LINEAR / 2.0 ** math.ceil(math.log2(max(float(bound.max()), 1.0)))


def _head(stock: PreTrainedModel) -> tuple[nn.Linear, nn.Linear]:
    """Return the linear layers before and after the tanh."""
    before, after = (stock.get_submodule(name) for name in HEADS[stock.config.model_type])
    if not isinstance(before, nn.Linear) or not isinstance(after, nn.Linear):
        raise TypeError(f"{type(stock).__name__} has an unknown head")
    return before, after


@torch.no_grad()
def write_modules(model: HierarchicalPreTrainedModel, folder: Path, shift: NDArray[np.float32] | None = None) -> None:
    """Write a model as modules of sentence-transformers, without the tokenizer, into an existing folder.

    A ``shift``, (K,), is added to the logits and stored in the configuration, so that :func:`from_modules` removes it.
    """
    if (reason := no_modules_form(model)) is not None:
        raise ValueError(reason)
    model.encoder.save_pretrained(folder)
    encoder_config = read_json(folder / CONFIG)
    settings: dict[str, Any] = {"max_seq_length": model.config.max_length, "do_lower_case": False}
    if without := without_pooler(model.config.text_encoder):
        settings["model_args"] = without  # otherwise the library adds one with random weights, and warns
    listed = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (kind, path) in enumerate(KINDS.items())
    ]
    width, labels = model.classifier.in_features, model.classifier.out_features
    modes = {field: name == model.config.pooling for name, field in POOLINGS.items()}
    sizes = {"in_features": width, "out_features": labels}
    contents = {
        CONFIG: encoder_config | label_fields(model.config, shift),
        "sentence_bert_config.json": settings,
        "config_sentence_transformers.json": {"prompts": {}, "default_prompt_name": None},
        MODULES: listed,
        f"{KINDS['Pooling']}/{CONFIG}": {"word_embedding_dimension": width, **modes},
        f"{KINDS['Dense']}/{CONFIG}": {**sizes, "bias": True, "activation_function": IDENTITY},
    }
    for name, content in contents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(json_bytes(content))
    bias = model.classifier.bias if shift is None else model.classifier.bias + torch.from_numpy(shift)
    weights = {"linear.weight": model.classifier.weight.contiguous(), "linear.bias": bias}
    save_file(weights, folder / KINDS["Dense"] / WEIGHTS)


@torch.no_grad()
def from_modules(folder: str | Path, *, shifted: bool = False) -> FlatForSequenceClassification:
    """Load the flat model that :func:`write_modules` wrote, even after training with sentence-transformers.

    With ``shifted`` a shift stays in the logits, as in the library.

    Raises:
        OSError, ValueError: if the folder has other modules than an encoder, a known pooling and a linear head.
    """
    folder = Path(folder)
    try:
        listed = json.loads(read_bytes(folder / MODULES))
        if [(module["type"].rpartition(".")[2], module["path"]) for module in listed] != list(KINDS.items()):
            raise ValueError(f"{MODULES} does not list {', '.join(KINDS)} in folders {list(KINDS.values())}")
        pooling, dense = (json.loads(read_bytes(folder / KINDS[kind] / CONFIG)) for kind in ("Pooling", "Dense"))
        modes = pooling.get("pooling_mode") or [name for name, field in POOLINGS.items() if pooling.get(field)]
        modes = [modes] if isinstance(modes, str) else modes
        mode = next((name for name in POOLINGS if modes == [name]), None)
        if mode is None or pooling.get("include_prompt", True) is not True:
            raise ValueError(f"its pooling, {pooling}, is not one of {', '.join(POOLINGS)}")
        if dense["activation_function"] != IDENTITY or not dense["bias"] or dense.get("use_residual"):
            raise ValueError("its Dense module is not linear with a bias")
        weights = load_file(folder / KINDS["Dense"] / WEIGHTS)
        head = nn.Linear(dense["in_features"], dense["out_features"])
        head.load_state_dict({name.removeprefix("linear."): value for name, value in weights.items()})
    except (AttributeError, KeyError, RuntimeError, TypeError) as error:
        raise ValueError(f"its modules cannot be read: {error!r}") from error
    config = load_pretrained(AutoConfig, folder)
    encoder = load_weights(AutoModel, folder, encoder=True, use_safetensors=True, **without_pooler(config))
    model = as_flat(config, mode, encoder, head, shifted=shifted)
    model.eval()
    return model
