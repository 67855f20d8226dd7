"""What a run needs before its first step: the model, its tokenizer, and the documents as tokens."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import datasets
import torch
from transformers import PreTrainedTokenizerBase

from hgclr.config import method_settings
from hgclr.corpora import other_than_literature
from hgclr.data.folder import DataFolder, Document, DocumentSet, label_documents
from hgclr.data.tokens import (
    cache_entry,
    read_word_vectors,
    sample_documents,
    tokenize_documents,
    tokenize_split,
    word_tokenizer,
)
from hgclr.encoders import TEXTRCNN
from hgclr.errors import InputError, first_line, refuse_broken
from hgclr.models import ARCHITECTURES, FlatForSequenceClassification, HGCLRConfig, HierarchicalPreTrainedModel
from hgclr.models.base import load_tokenizer
from hgclr.models.memory import check_parameters
from hgclr.models.pretrained import load_pretrained, load_weights
from hgclr.models.textrcnn import METHOD_SETTINGS, STATES, TextRCNNConfig
from hgclr.nn.gathering import rank, world_size
from hgclr.remote import local
from hgclr.training.changed_tree import changed_model
from hgclr.training.distributed import first_rank_first, on_first_rank
from hgclr.training.run_checks import Data, check_splits, check_word_vectors, data_folder, has_own_tree
from hgclr.training.settings import RunConfig
from hgclr.urls import as_written

__all__ = ["hold_out", "new_model", "started_model", "tokenize_once"]

logger = logging.getLogger(__name__)


def new_model(
    run: RunConfig, data: DocumentSet | None = None
) -> tuple[HierarchicalPreTrainedModel, PreTrainedTokenizerBase, Data]:
    """Put a new model on the encoder, for the label tree of the documents in memory or in the data folder."""
    check_word_vectors(run)
    settings = method_settings(run.model.preset, run.model.overrides)
    folder = data or data_folder(run, run.data.taxonomy)
    if isinstance(folder, DataFolder):
        if run.model.preset != "default":
            for difference in other_than_literature(folder.path):
                logger.warning("%s: %s", as_written(run.data.path), difference)
        settings["text_column"] = folder.source_text_column
    if run.model.encoder == TEXTRCNN:
        return *new_textrcnn(run, folder, settings), folder
    tokenizer = load_tokenizer(run.model.encoder)
    architecture = run.model.architecture if run.training.effort == "full" else "flat"
    lora = run.model.lora is not None
    check_parameters(architecture, run.model.encoder, folder.taxonomy, tokenizer, settings, frozen=lora)
    model = ARCHITECTURES[architecture].from_encoder(run.model.encoder, folder.taxonomy, tokenizer, **settings)
    return model, tokenizer, folder


def new_textrcnn(
    run: RunConfig, folder: Data, settings: dict[str, Any]
) -> tuple[HierarchicalPreTrainedModel, PreTrainedTokenizerBase]:
    """Put a new model on a new TextRCNN, whose vocabulary are the words of the training documents."""
    documents = training_documents(run, folder)
    if run.uses_label_documents:
        documents = chain(documents, label_documents(folder.taxonomy))
    tokenizer = word_tokenizer(document.text for document in documents)
    special = len(tokenizer.all_special_ids)  # they come first
    words = tokenizer.convert_ids_to_tokens(list(range(special, len(tokenizer))))
    sizes: dict[str, Any] = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    if run.model.word_vectors is not None:
        places, vectors = read_word_vectors(local(run.model.word_vectors), words)
        logger.info("%s has vectors for %d of %d words", run.model.word_vectors, len(places), len(words))
        sizes["word_width"] = vectors.shape[1]
    if settings.get("textrcnn_features") == "states":
        sizes |= STATES
    config = TextRCNNConfig(**sizes)
    settings = settings | {name: value for name, value in METHOD_SETTINGS.items() if settings.get(name) is None}
    settings["pooling"] = run.model.overrides.get("pooling", METHOD_SETTINGS["pooling"])  # whatever the preset says
    check_parameters(run.model.architecture, config, folder.taxonomy, tokenizer, settings)
    model = ARCHITECTURES[run.model.architecture].from_encoder(config, folder.taxonomy, tokenizer, **settings)
    if run.model.word_vectors is not None:
        with torch.no_grad():
            model.encoder.get_input_embeddings().weight[places + special] = torch.from_numpy(vectors)
    return model, tokenizer


def training_documents(run: RunConfig, folder: Data) -> Iterable[Document]:
    """Return the documents that the run trains on: neither those outside its sample nor those held out for dev."""
    check_splits(run, folder)
    sample = None if run.data.limit is None else (run.data.limit, run.training.seed)
    documents = sample_documents(folder, "train", sample)
    if "dev" in folder.splits:
        return documents
    kept = list(documents)  # in memory: which of them are held out depends on how many there are
    numbers = datasets.Dataset.from_dict({"number": range(len(kept))})
    return [kept[number] for number in sorted(hold_out(run, numbers)["train"]["number"])]


def started_model(
    run: RunConfig, start: Path, data: DocumentSet | None = None
) -> tuple[HierarchicalPreTrainedModel, PreTrainedTokenizerBase, Data]:
    """Load the model to train on from; if the data's label tree is not its own, take it over to that tree."""
    check_word_vectors(run)
    checked = method_settings("default", run.model.overrides)
    overrides = {name: checked[name] for name in run.model.overrides}
    tokenizer = load_tokenizer(str(start))
    with refuse_broken(
        lambda error: InputError(
            f"no model could be loaded: {first_line(error)}", path=start, remedy="give a training-model"
        )
    ):
        config = load_pretrained(HGCLRConfig, start)
        saved = next((name for name, known in ARCHITECTURES.items() if [known.__name__] == config.architectures), None)
        if saved is not None and "architecture" not in run.model.model_fields_set:
            run.model = run.model.model_copy(update={"architecture": saved})
        architecture = ARCHITECTURES[run.model.architecture]
        if run.training.effort != "full" and not issubclass(architecture, FlatForSequenceClassification):
            raise InputError(f"training.effort is {run.training.effort}, and {saved} has more to train than a head")
        if saved is not None and not issubclass(ARCHITECTURES[saved], architecture):
            raise InputError(
                f"a {saved} model has not all that {run.model.architecture} is trained with",
                path=start,
                remedy="give the training-model beside it, or leave model.architecture out",
            )
        model = load_weights(architecture, start, use_safetensors=True, **overrides)
    known = model.config.taxonomy
    folder = data or data_folder(run, run.data.taxonomy if has_own_tree(run) else known)
    if folder.taxonomy != known or run.model.label_changes is not None:
        model = changed_model(run, model, tokenizer, folder.taxonomy, training_documents(run, folder))
    return model, tokenizer, folder


def tokenize_once(
    run: RunConfig,
    folder: Data,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    on_documents: Callable[[int], None] | None,
) -> dict[str, datasets.Dataset]:
    """Tokenise every split, by the first process of each node; the others map its cache, and read no document.

    Raises:
        InputError: if the documents cannot be used, or are not the same on all nodes.
    """

    def tokenize(entries: Mapping[str, str] | None = None) -> dict[str, datasets.Dataset]:
        return tokenize_all(run, folder, tokenizer, max_length, on_documents, entries)

    def first() -> dict[str, str]:
        return {name: cache_entry(split) for name, split in tokenize().items()}

    if world_size() == 1 or isinstance(folder, DocumentSet):
        return tokenize()
    entries = on_first_rank(first)
    with first_rank_first():
        if os.environ.get("LOCAL_RANK") == "0" and rank() > 0 and first() != entries:
            raise InputError("other documents than on the first node", path=run.data.path, remedy="give all the same")
        return tokenize(entries)


def tokenize_all(
    run: RunConfig,
    folder: Data,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    on_documents: Callable[[int], None] | None,
    entries: Mapping[str, str] | None = None,
) -> dict[str, datasets.Dataset]:
    """Tokenise every split, or take it from the cache, whose entries may be known; hold dev out where asked to."""
    limits = {"train": run.data.limit, "dev": run.data.dev_limit, "test": run.data.test_limit}
    check_splits(run, folder)
    tokens: dict[str, datasets.Dataset] = {}
    for name, limit in limits.items():
        if name not in folder.splits:
            continue
        if isinstance(folder, DocumentSet):
            sampled = sample_documents(folder, name, None if limit is None else (limit, run.training.seed))
            tokens[name] = tokenize_documents(sampled, tokenizer, max_length=max_length)
        else:
            tokens[name] = tokenize_split(
                folder,
                name,
                tokenizer,
                max_length=max_length,
                limit=limit,
                seed=run.training.seed,
                bad_rows=run.output / f"bad-rows.{name}.jsonl" if rank() == 0 else None,
                progress=on_documents,
                entry=(entries or {}).get(name),
            )
    if "dev" not in tokens and "train" in tokens and run.data.dev_share is not None:
        parts = hold_out(run, tokens["train"])
        tokens |= {"train": parts["train"], "dev": parts["test"]}
    return tokens


def hold_out(run: RunConfig, documents: datasets.Dataset) -> datasets.DatasetDict:
    """Divide documents into ``train`` and ``test``, the share to hold out; which ones, only number and seed decide."""
    return documents.train_test_split(test_size=run.data.dev_share, seed=run.training.seed)
