"""Load saved models and pretrained encoders; only this module passes files to transformers."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import MODEL_MAPPING, AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from hgclr.encoders import encoder_load_error, resolve_encoder
from hgclr.errors import InputError, refuse_broken
from hgclr.model_files import refuse_code

POOLER = r"(\w+\.)?pooler\."
"""The layer on top of an encoder that our models do not use."""
POSITIONS = r"([\w.]+\.)?position_ids$"
"""Position numbers, which earlier versions of transformers saved."""
HEADS = (
    r"(classifier|cls|decoder|discriminator_predictions|generator_lm_head|generator_predictions|head|lm_head"
    r"|lm_predictions|logits_proj|mask_predictions|pre_classifier|predictions|qa_outputs|score|sop_classifier"
    r"|vocab_layer_norm|vocab_projector|vocab_transform)\."
)
"""Heads from pretraining or earlier use, such as the one for masked words."""
BESIDE, NONE = f"{POOLER}|{POSITIONS}|{HEADS}", r"(?!)"


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Switch off the progress bars and messages of transformers, and restore them afterwards."""
    level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()


@quiet_libraries()
def load_pretrained(kind: Any, source: str | Path, **arguments: Any) -> Any:
    """Call ``from_pretrained`` of a class for a folder or hub name, without running code from its files.

    Raises:
        InputError: if a file of the folder asks for code.
        Exception: any error of transformers for damaged files; see :func:`~hgclr.errors.refuse_broken`.
    """
    if Path(source).is_dir():
        refuse_code(Path(source))
    # By default, transformers asks on standard input whether to run code.
    return kind.from_pretrained(source, trust_remote_code=False, **arguments)


def load_weights(kind: Any, source: str | Path, *, encoder: bool = False, **arguments: Any) -> Any:
    """Load a model whose files have exactly its weights; transformers would fill missing ones with random numbers.

    An ``encoder`` may lack a pooler; its pooler or head is ignored. Raises as :func:`load_pretrained`, and an
    `InputError` that names the first missing or unknown tensor.
    """
    model, found = load_pretrained(kind, source, output_loading_info=True, **arguments)
    for names, allowed, problem in (
        (found["missing_keys"], POOLER if encoder else NONE, "the weights lack {}"),
        (found["unexpected_keys"], BESIDE if encoder else POSITIONS, "the weights contain {}, unknown to the model"),
    ):
        if other := sorted(name for name in names if not re.match(allowed, name)):
            more = f" and {len(other) - 1} more tensors" if len(other) > 1 else ""
            raise InputError(
                problem.format(other[0] + more),
                path=source,
                remedy="copy or download config.json and the weights again: they do not belong together",
            )
    return model


def load_from_encoder(kind: Any, encoder: str, **arguments: Any) -> Any:
    """Load the part ``kind`` of an encoder, such as its tokenizer; see :func:`~hgclr.encoders.resolve_encoder`."""
    source = resolve_encoder(encoder)
    with refuse_broken(lambda error: encoder_load_error(encoder, error)):
        if kind is AutoModel:
            return load_weights(kind, source, encoder=True, **arguments)
        return load_pretrained(kind, source, **arguments)


def position_count(encoder: PreTrainedModel) -> int:
    """Return the encoder's number of positions; RoBERTa and MPNet count from pad + 1, the others from 0."""
    table = getattr(getattr(encoder, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    positions = getattr(encoder.config, "max_position_embeddings", None) or 1_000_000
    return int(positions) - (0 if padding is None else int(padding) + 1)


def load_encoder_config(encoder: str) -> PreTrainedConfig:
    """Load the configuration of a pretrained encoder, without its weights; raises an InputError if there is none."""
    config: PreTrainedConfig = load_from_encoder(AutoConfig, encoder)
    return config


def new_encoder(config: PreTrainedConfig) -> PreTrainedModel:
    """Return an encoder with random weights, without the pooler."""
    encoder: PreTrainedModel = AutoModel.from_config(config, trust_remote_code=False, **without_pooler(config))
    return encoder


def without_pooler(config: Any) -> dict[str, bool]:
    """Return the argument that omits the unused pooler, if the encoder's class accepts it."""
    if getattr(config, "is_encoder_decoder", False):
        raise InputError(
            f"a {config.model_type} model is an encoder-decoder", remedy="choose an encoder such as bert-base-uncased"
        )
    model_class: Any = MODEL_MAPPING.get(type(config), None)
    known = isinstance(model_class, type) and "add_pooling_layer" in inspect.signature(model_class).parameters
    return {"add_pooling_layer": False} if known else {}
