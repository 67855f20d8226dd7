"""What a run needs before its first step: the model, its tokenizer, and the documents as tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import datasets
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hgclr.config import method_settings
from hgclr.data.folder import DataFolder
from hgclr.data.tokens import tokenize_split
from hgclr.errors import InputError
from hgclr.models import ARCHITECTURES, TextClassifier
from hgclr.models.saving import load_tokenizer
from hgclr.taxonomy import Taxonomy
from hgclr.training.settings import RunConfig

__all__ = ["base_rates", "count_parameters", "new_model", "started_model", "tokenize_all"]


def new_model(run: RunConfig) -> tuple[TextClassifier, PreTrainedTokenizerBase, DataFolder]:
    """Put a new model on the encoder, for the data folder's label tree."""
    settings = method_settings(run.model.preset, run.model.overrides)
    folder = data_folder(run, run.data.taxonomy)
    tokenizer = load_tokenizer(run.model.encoder)
    architecture = ARCHITECTURES[run.model.architecture]
    return architecture.from_encoder(run.model.encoder, folder.taxonomy, tokenizer, **settings), tokenizer, folder


def started_model(run: RunConfig, start: Path) -> tuple[TextClassifier, PreTrainedTokenizerBase, DataFolder]:
    """Load the model to train on from; the documents' labels are read with its label tree."""
    method_settings("default", run.model.overrides)
    tokenizer = load_tokenizer(str(start))
    try:
        model = ARCHITECTURES[run.model.architecture].from_pretrained(
            start, use_safetensors=True, **run.model.overrides
        )
    except (OSError, ValueError) as error:
        raise InputError(f"no model could be loaded: {error}", path=start, remedy="give a training-model") from error
    return model, tokenizer, data_folder(run, model.config.taxonomy)


def data_folder(run: RunConfig, taxonomy: Taxonomy | Path | None) -> DataFolder:
    """Open the data folder as the settings say."""
    return DataFolder(
        run.data.path,
        taxonomy=taxonomy,
        **run.data.model_dump(exclude={"path", "taxonomy", "limit", "dev_limit", "test_limit", "dev_share"}),
    )


def tokenize_all(
    run: RunConfig,
    folder: DataFolder,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    on_documents: Callable[[int], None] | None,
) -> dict[str, datasets.Dataset]:
    """Tokenise every split, or take it from the cache; hold dev out of train where asked to."""
    limits = {"train": run.data.limit, "dev": run.data.dev_limit, "test": run.data.test_limit}
    if "train" not in folder.splits:
        raise InputError("there is no train split", path=run.data.path, remedy="add train.jsonl")
    if "dev" not in folder.splits and run.data.dev_share is None:
        raise InputError(
            "there is no dev split to select the best epoch on",
            path=run.data.path,
            remedy="add dev.jsonl, or hold out a tenth of train with data.dev_share=0.1",
        )
    tokens = {
        name: tokenize_split(
            folder,
            name,
            tokenizer,
            max_length=max_length,
            limit=limits[name],
            seed=run.training.seed,
            bad_rows=run.output / f"bad-rows.{name}.jsonl",
            progress=on_documents,
        )
        for name in folder.splits
    }
    if "dev" not in tokens:
        parts = tokens["train"].train_test_split(test_size=run.data.dev_share, seed=run.training.seed)
        tokens |= {"train": parts["train"], "dev": parts["test"]}
    return tokens


def base_rates(tokens: datasets.Dataset, labels: int) -> Tensor:
    """Return how often each label occurs in the training set, (K,), as if each had been seen half a time more."""
    counts = torch.zeros(labels)
    for batch in tokens.select_columns("labels").iter(batch_size=10_000):
        for row in batch["labels"]:
            counts[row] += 1
    return (counts + 0.5) / (len(tokens) + 1)


def count_parameters(encoder: torch.nn.Module) -> int:
    """Return the encoder's size without word embeddings, which do not make it harder to train."""
    words = encoder.get_input_embeddings().weight.numel()  # type: ignore[operator]
    return sum(parameter.numel() for parameter in encoder.parameters()) - int(words)
