"""Saved models and pretrained encoders: the one door through which files reach transformers; and encoders' traits."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from torch import nn
from transformers import MODEL_MAPPING, AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel

from hgclr.encoders import encoder_load_error, resolve_encoder
from hgclr.errors import InputError, refuse_broken
from hgclr.model_files import refuse_code

POOLER = r"(\w+\.)?pooler\."
"""Layer on top of an encoder that ours do without, wherever it stands."""
POSITIONS = r"([\w.]+\.)?position_ids$"
"""Numbers from 0 on, which former versions of transformers saved."""
HEADS = (
    r"(classifier|cls|decoder|discriminator_predictions|generator_lm_head|generator_predictions|head|lm_head"
    r"|lm_predictions|logits_proj|mask_predictions|pre_classifier|predictions|qa_outputs|score|sop_classifier"
    r"|vocab_layer_norm|vocab_projector|vocab_transform)\."
)
"""What encoders were pretrained or used with before, such as the head that guesses masked words."""
BESIDE, NONE = f"{POOLER}|{POSITIONS}|{HEADS}", r"(?!)"


def load_pretrained(kind: Any, source: str | Path, **arguments: Any) -> Any:
    """Call ``from_pretrained`` of a class of transformers or of ours, which never runs code that comes with the files.

    ``source`` is a folder, or a name on the model hub; ``arguments`` are what else ``from_pretrained`` takes.

    Raises:
        InputError: if a file of the folder asks for code.
        Exception: whatever transformers raises over files that it cannot use: see
            :func:`~hgclr.errors.refuse_broken`.
    """
    if Path(source).is_dir():
        refuse_code(Path(source))
    # Unless told, transformers asks on standard input whether to run it.
    return kind.from_pretrained(source, trust_remote_code=False, **arguments)


def load_weights(kind: Any, source: str | Path, *, encoder: bool = False, **arguments: Any) -> Any:
    """Load a model whose files hold exactly its weights: what is missing, transformers would fill with random numbers.

    Of an ``encoder`` a pooler may be missing, and a pooler or a head may be there, which are left out.

    Raises:
        InputError: naming the first tensor that is missing, or that the model has no place for.
        Exception: as :func:`load_pretrained`.
    """
    model, found = load_pretrained(kind, source, output_loading_info=True, **arguments)
    for names, allowed, problem in (
        (found["missing_keys"], POOLER if encoder else NONE, "the weights lack {}"),
        (
            found["unexpected_keys"],
            BESIDE if encoder else POSITIONS,
            "the weights have {} beyond the model's own",
        ),
    ):
        if other := sorted(name for name in names if not re.match(allowed, name)):
            more = f" and {len(other) - 1} more tensors" if len(other) > 1 else ""
            raise InputError(
                problem.format(other[0] + more),
                path=source,
                remedy="config.json and the weights do not belong together: copy or download both again",
            )
    return model


def load_from_encoder(kind: Any, encoder: str, **arguments: Any) -> Any:
    """Load the part ``kind`` of an encoder, named as for :func:`~hgclr.encoders.resolve_encoder`."""
    source = resolve_encoder(encoder)
    with refuse_broken(lambda error: encoder_load_error(encoder, error)):
        if kind is AutoModel:
            return load_weights(kind, source, encoder=True, **arguments)
        return load_pretrained(kind, source, **arguments)


def position_count(encoder: PreTrainedModel) -> int:
    """Return how many tokens the encoder has positions for."""
    positions = getattr(encoder.config, "max_position_embeddings", None) or 1_000_000
    return int(positions) - first_position(encoder)


def first_position(encoder: PreTrainedModel) -> int:
    """Return the position of a text's first token: RoBERTa and MPNet count from pad + 1, the others from 0."""
    padding = getattr(_table(encoder), "padding_idx", None)
    return 0 if padding is None else int(padding) + 1


def absolute_positions(encoder: PreTrainedModel) -> bool:
    """Return whether a token's position reaches the encoder through ``position_ids`` and in no other way.

    Encoders that look at distances between tokens (MPNet, DeBERTa) or at a window around each (ModernBERT) do more.
    """
    relative = any(
        getattr(encoder.config, name, None) for name in ("relative_attention", "relative_attention_num_buckets")
    )
    takes_positions = "position_ids" in inspect.signature(encoder.forward).parameters
    return isinstance(_table(encoder), nn.Embedding) and takes_positions and not relative


def _table(encoder: PreTrainedModel) -> Any:
    """Return the table of absolute positions, or None."""
    return getattr(getattr(encoder, "embeddings", None), "position_embeddings", None)


def load_encoder_config(encoder: str) -> PreTrainedConfig:
    """Load the configuration of a pretrained encoder, without its weights; raises an InputError if there is none."""
    config: PreTrainedConfig = load_from_encoder(AutoConfig, encoder)
    return config


def new_encoder(config: PreTrainedConfig) -> PreTrainedModel:
    """Return an encoder with new weights, without the pooler."""
    encoder: PreTrainedModel = AutoModel.from_config(config, trust_remote_code=False, **without_pooler(config))
    return encoder


def without_pooler(config: Any) -> dict[str, bool]:
    """Return the argument that leaves the unused pooler out, where the encoder's class takes it."""
    if getattr(config, "is_encoder_decoder", False):
        raise InputError(
            f"a {config.model_type} model is an encoder-decoder", remedy="choose an encoder such as bert-base-uncased"
        )
    model_class: Any = MODEL_MAPPING.get(type(config), None)
    known = isinstance(model_class, type) and "add_pooling_layer" in inspect.signature(model_class).parameters
    return {"add_pooling_layer": False} if known else {}
