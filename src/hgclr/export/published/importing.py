"""Turn a checkpoint of the published program into a model of ours, for prediction and for training on."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from transformers import AutoConfig, PreTrainedConfig, PreTrainedTokenizerBase

from hgclr.encoders import encoder_load_error, resolve_encoder
from hgclr.errors import InputError
from hgclr.export.published.files import read_checkpoint
from hgclr.export.published.labels import check_same_labels, read_labels
from hgclr.export.published.settings import TAKEN, read_settings
from hgclr.export.published.weights import convert, edge_padding
from hgclr.files import atomic_folder
from hgclr.models import HGCLRModel
from hgclr.models.saving import load_tokenizer, save
from hgclr.taxonomy import Taxonomy

__all__ = ["ImportedModel", "import_published", "read_published"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ImportedModel:
    """What an import leaves behind: two folders, the label tree, and the settings of the checkpoint."""

    model: Path
    training_model: Path
    taxonomy: Taxonomy
    settings: dict[str, float]


def import_published(checkpoint: Path, data_path: Path, encoder: str, output: Path) -> ImportedModel:
    """Write a published checkpoint as ``model`` (for prediction) and ``training-model`` (for training on).

    Args:
        checkpoint: ``checkpoint_best_macro.pt`` or ``checkpoint_best_micro.pt`` of the published program.
        data_path: its data folder, with ``bert_value_dict.pt`` and ``slot.pt``.
        encoder: the BERT it was trained on, for configuration and tokenizer; the weights are the checkpoint's.
        output: a new or empty folder, which is written whole or not at all.

    Raises:
        InputError: if the files are not of this form, do not belong together, or ask for code; if the checkpoint was
            trained in a form that we have no counterpart for; if ``output`` is in use.
    """
    if any(output.iterdir()) if output.is_dir() else output.exists():
        raise InputError("the output is there already", path=output, remedy="give a new or empty folder")
    model, tokenizer = read_published(checkpoint, data_path, encoder)
    try:
        with atomic_folder(output) as folder:
            save(model.deployed(), tokenizer, folder / "model")
            save(model, tokenizer, folder / "training-model")
    except OSError as error:
        raise InputError(f"the model cannot be written: {error.strerror or error}", path=output) from error
    settings = {name: getattr(model.config, name) for name in TAKEN.values()}
    return ImportedModel(output / "model", output / "training-model", model.config.taxonomy, settings)


def read_published(checkpoint: Path, data_path: Path, encoder: str) -> tuple[HGCLRModel, PreTrainedTokenizerBase]:
    """Return the model of a published checkpoint, under the ``published`` preset, and its tokenizer.

    Its logits are those of the published program, and so are its loss terms given the same noise. Where that program
    itself went wrong, by a spoilt diagonal (:mod:`hgclr.export.published.weights`) or by wrong distances
    (:func:`~hgclr.export.published.labels.check_same_labels`), ours are the right ones, with a warning.

    Arguments and errors are those of :func:`import_published`.
    """
    content = read_checkpoint(checkpoint)
    settings = read_settings(content)
    encoder_config, tokenizer = _load_encoder(encoder)
    taxonomy, name_tokens = read_labels(data_path, tokenizer, encoder_config.max_position_embeddings)
    model = HGCLRModel.from_encoder_config(
        encoder_config, taxonomy, tokenizer, label_name_length=name_tokens.shape[1], **settings
    )
    try:
        weights = convert(content.weights, dict(model.named_parameters()), taxonomy)
    except InputError as error:
        raise InputError(error.what, path=checkpoint, remedy=error.remedy) from None
    check_same_labels(content.weights, taxonomy, name_tokens, tokenizer, data_path)
    if edge_padding(content.weights) != 0:
        logger.warning(
            "%s was trained with a wrong diagonal in the label attention (a padding row was not 0);"
            " predictions stay the same, the loss in training is computed with the right diagonal",
            checkpoint,
        )
    model.load_state_dict({**weights, "name_tokens": name_tokens})
    return model.eval(), tokenizer


def _load_encoder(name: str) -> tuple[PreTrainedConfig, PreTrainedTokenizerBase]:
    """Return configuration and tokenizer of a BERT."""
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(resolve_encoder(name))
    except (OSError, ValueError) as error:
        raise encoder_load_error(name, error) from error
    tokenizer = load_tokenizer(name)
    if config.model_type != "bert" or tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
        raise InputError(
            f"{name} is a {config.model_type} encoder; the published program uses BERT with [CLS] and [SEP]",
            remedy="give the encoder that the checkpoint was trained with, such as bert-base-uncased",
        )
    return config, tokenizer
