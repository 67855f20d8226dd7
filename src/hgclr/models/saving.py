"""A model lives on disk with its tokenizer: load the one, save both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from hgclr.encoders import encoder_load_error, resolve_encoder
from hgclr.files import atomic_folder
from hgclr.models.base import TextClassifier

__all__ = ["load_tokenizer", "save"]


def load_tokenizer(encoder: str) -> PreTrainedTokenizerBase:
    """Load the encoder's tokenizer for our models: they take ids and mask, and count positions from the left."""
    # Given here, and not set afterwards, these are saved with the tokenizer.
    ours: dict[str, Any] = {"padding_side": "right", "model_input_names": ["input_ids", "attention_mask"]}
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(resolve_encoder(encoder), **ours)
    except (OSError, ValueError) as error:
        raise encoder_load_error(encoder, error) from error
    return tokenizer


def save(
    model: TextClassifier,
    tokenizer: PreTrainedTokenizerBase,
    target: Path,
    write_more: Callable[[Path], None] | None = None,
) -> None:
    """Write model and tokenizer into ``target``, whole or not at all; safetensors and JSON only.

    Args:
        model: the model.
        tokenizer: its tokenizer.
        target: the folder, which is replaced.
        write_more: writes into the folder what else belongs to the model.
    """
    with atomic_folder(target) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        if write_more is not None:
            write_more(folder)
