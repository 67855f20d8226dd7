"""Train a model as a run's settings say: make it, read the documents, fit, save what is to be deployed."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import datasets
from transformers import PreTrainedTokenizerBase, TrainerCallback, set_seed

from hgclr.config import method_settings
from hgclr.data.folder import DataFolder, Document, DocumentSet, label_documents
from hgclr.data.split import hold_out
from hgclr.data.tokens import (
    cache_entry,
    sample_documents,
    tokenize_documents,
    tokenize_split,
)
from hgclr.decisions.tuning import Calibrated
from hgclr.errors import InputError, refuse_broken
from hgclr.files import locked, read_json, write_json
from hgclr.hardware import machine
from hgclr.models import FlatForSequenceClassification, HierarchicalPreTrainedModel, architecture_named, load_config
from hgclr.models import architecture as find_architecture
from hgclr.models.base import load_tokenizer, save
from hgclr.models.pretrained import load_weights
from hgclr.nn.gathering import rank, world_size
from hgclr.registry import merged, resolve
from hgclr.remote import local
from hgclr.training.changed_tree import changed_model
from hgclr.training.core import Fitted, Plan, fit
from hgclr.training.distributed import first_rank_first, on_first_rank, process_group
from hgclr.training.memory import check_parameters
from hgclr.training.run_checks import (
    CONFIG,
    DOCUMENTS,
    LOCK,
    METRICS,
    MODEL,
    TRAINING_MODEL,
    Data,
    check_documents,
    check_output,
    check_resumed,
    check_splits,
    data_folder,
    has_own_tree,
    restarted,
    state_of,
)
from hgclr.training.settings import RunConfig

__all__ = ["TrainingResult", "new_model", "save_run", "started_model", "tokenize_splits", "train"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingResult:
    """What a run leaves behind: folders, scores, and how decisions were tuned."""

    model: Path
    training_model: Path
    metrics: dict[str, Any]
    calibrated: Calibrated | None = None


def train(
    run: RunConfig,
    data: DocumentSet | None = None,
    *,
    resume: bool = False,
    callbacks: Sequence[TrainerCallback] = (),
    on_documents: Callable[[int], None] | None = None,
    on_start: Callable[[Plan], None] | None = None,
    score_test: bool = True,
) -> TrainingResult:
    """Train on ``train``, select the best epoch on ``dev``, score ``test`` once, save the result.

    Writes into ``run.output``: ``model`` (encoder and head, for prediction), ``training-model`` (with the label side,
    for training on and for explanations), ``metrics.json``, ``config.yaml``, ``documents.json`` (what it was trained
    on, by SHA-256), ``checkpoints``.

    Args:
        run: the settings.
        data: documents in memory, in the place of those in ``run.data.path``.
        resume: go on from the newest whole checkpoint in ``run.output``, if anything of this run is there; a finished
            run is returned as it is.
        callbacks: further Trainer callbacks, such as a progress bar.
        on_documents: called with the number of documents tokenised, as it grows.
        on_start: called with what is going to be done, once that is known.
        score_test: False while settings are still being chosen, so that the choice cannot lean on test.

    Raises:
        InputError: if settings, data or encoder do not fit together, the output folder holds another run, or another
            process is training there.
    """
    resume = resume or restarted()
    with process_group(), ExitStack() as stack:

        def enter() -> TrainingResult | None:
            lock = locked(run.output / LOCK, "training", remedy="wait until it is done, or give another --output")
            stack.enter_context(lock)
            return known_result(run, resume=resume)

        if (finished := on_first_rank(enter)) is not None:
            return finished
        started, cpu_started = time.monotonic(), time.process_time()
        where = machine()  # now: the commit may be another one when training ends
        set_seed(run.training.seed)
        if run.model.start is None:
            model, tokenizer, data_read = new_model(run, data)
        else:
            model, tokenizer, data_read = started_model(run, local(run.model.start), data)
        tokens = tokenize_splits(run, data_read, tokenizer, model.config.max_length, on_documents)
        on_first_rank(lambda: _note_documents(run, tokens))
        read = {"seconds": time.monotonic() - started, "cpu_seconds": time.process_time() - cpu_started}
        fitted = fit(
            model,
            tokenizer,
            tokens.get("train"),
            tokens.get("dev"),
            test=tokens.get("test") if score_test else None,
            settings=run.resolved_training,
            label_documents=run.uses_label_documents,
            lora=run.model.lora,
            continued=run.model.start is not None,
            output=run.output,
            resume=resume,
            callbacks=callbacks,
            on_documents=on_documents,
            on_start=on_start,
        )
        fitted.metrics.update({name: round(fitted.metrics[name] + spent, 1) for name, spent in read.items()})
        fitted.metrics["documents"] = {name: len(split) for name, split in tokens.items()}
        return save_run(run, model, tokenizer, fitted, where)


def known_result(run: RunConfig, *, resume: bool) -> TrainingResult | None:
    """Return what a run to be resumed has left behind if it is finished; refuse a folder that it may not write to."""
    if resume:
        check_resumed(run)
    else:
        check_output(run)
    return finished_run(run) if state_of(run.output) == "finished" else None


def finished_run(run: RunConfig) -> TrainingResult:
    """Return what a run has left behind."""
    return TrainingResult(run.output / MODEL, run.output / TRAINING_MODEL, read_json(run.output / METRICS))


def _note_documents(run: RunConfig, tokens: Mapping[str, datasets.Dataset]) -> None:
    """Write down what a run is about to be trained on, or check it, if the run has begun before."""
    documents = {name: {"documents": len(split), "sha256": digest(split)} for name, split in tokens.items()}
    if state_of(run.output) == "stopped":
        check_documents(run, documents)
    run.write(run.output / CONFIG)
    write_json(run.output / DOCUMENTS, documents)


def digest(tokens: datasets.Dataset) -> str:
    """Return the SHA-256 of documents as tokens, with their labels."""
    whole = hashlib.sha256()
    for batch in tokens.select_columns(["input_ids", "labels"]).with_format("arrow").iter(batch_size=10_000):
        for column in batch.columns:
            rows = column.combine_chunks()
            whole.update(rows.value_lengths().to_numpy(zero_copy_only=False).tobytes())
            whole.update(rows.flatten().to_numpy(zero_copy_only=False).tobytes())
    return whole.hexdigest()


def save_run(
    run: RunConfig,
    model: HierarchicalPreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    fitted: Fitted,
    where: dict[str, Any] | None = None,
) -> TrainingResult:
    """Write settings, the model as it is deployed and as it was trained, and its metrics into ``run.output``."""
    metrics = {"run": run.model_dump(mode="json", exclude_none=True), **fitted.metrics, "machine": where or machine()}
    result = TrainingResult(run.output / MODEL, run.output / TRAINING_MODEL, metrics, fitted.calibrated)
    if rank() > 0:
        return result
    run.write(run.output / CONFIG)
    decided = fitted.calibrated is not None or run.training.effort == "names"
    save(model.deployed(), tokenizer, result.model, fitted.decisions.write if decided else None)
    save(model, tokenizer, result.training_model)
    write_json(run.output / METRICS, metrics)
    return result


def new_model(
    run: RunConfig, data: DocumentSet | None = None
) -> tuple[HierarchicalPreTrainedModel, PreTrainedTokenizerBase, Data]:
    """Put a new model on the encoder, for the label tree of the documents in memory or in the data folder."""
    settings = method_settings(run.model.preset, run.model.overrides)
    folder = data or data_folder(run, run.data.taxonomy)
    if isinstance(folder, DataFolder):
        settings["text_column"] = folder.source_text_column
    if (build := merged("encoders").get(run.model.encoder)) is not None:
        documents = training_documents(run, folder)
        if run.uses_label_documents:
            documents = chain(documents, label_documents(folder.taxonomy))
        return *resolve(build)(run, folder.taxonomy, documents, settings), folder
    tokenizer = load_tokenizer(run.model.encoder)
    architecture = run.model.architecture if run.training.effort == "full" else "flat"
    lora = run.model.lora is not None
    check_parameters(architecture, run.model.encoder, folder.taxonomy, tokenizer, settings, frozen=lora)
    model = find_architecture(architecture).from_encoder(run.model.encoder, folder.taxonomy, tokenizer, **settings)
    return model, tokenizer, folder


def training_documents(run: RunConfig, folder: Data) -> Iterable[Document]:
    """Return the documents that the run trains on: neither those outside its sample nor those held out for dev."""
    check_splits(run, folder)
    sample = None if run.data.limit is None else (run.data.limit, run.training.seed)
    documents = sample_documents(folder, "train", sample)
    if "dev" in folder.splits:
        return documents
    kept = list(documents)  # in memory: which of them are held out depends on how many there are
    places, _ = hold_out(len(kept), run.data.dev_share or 0, run.training.seed)
    return [kept[place] for place in sorted(places.tolist())]


def started_model(
    run: RunConfig, start: Path, data: DocumentSet | None = None
) -> tuple[HierarchicalPreTrainedModel, PreTrainedTokenizerBase, Data]:
    """Load the model to train on from; if the data's label tree is not its own, take it over to that tree."""
    checked = method_settings("default", run.model.overrides)
    overrides = {name: checked[name] for name in run.model.overrides}
    tokenizer = load_tokenizer(str(start))
    with refuse_broken("no model could be loaded", path=start, remedy="give a training-model"):
        saved = architecture_named((load_config(start).architectures or [""])[0])
        if saved is not None and "architecture" not in run.model.model_fields_set:
            run.model = run.model.model_copy(update={"architecture": saved})
        architecture = find_architecture(run.model.architecture)
        if run.training.effort != "full" and not issubclass(architecture, FlatForSequenceClassification):
            raise InputError(f"training.effort is {run.training.effort}, and {saved} has more to train than a head")
        if saved is not None and not issubclass(find_architecture(saved), architecture):
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
    elif any(folder.taxonomy.descriptions):  # which may be other ones in the same tree
        model.config.set_taxonomy(folder.taxonomy)
    return model, tokenizer, folder


def tokenize_splits(
    run: RunConfig,
    folder: Data,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    on_documents: Callable[[int], None] | None,
) -> dict[str, datasets.Dataset]:
    """Tokenise every split, or take it from the cache; hold dev out where asked to.

    Of several processes the first one of each node does so; the others map its cache, and read no document.
    """
    limits = {"train": run.data.limit, "dev": run.data.dev_limit, "test": run.data.test_limit}
    check_splits(run, folder)

    def tokenize(entries: Mapping[str, str] | None = None) -> dict[str, datasets.Dataset]:
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
            kept, held_out = hold_out(len(tokens["train"]), run.data.dev_share, run.training.seed)
            tokens |= {"train": tokens["train"].select(kept), "dev": tokens["train"].select(held_out)}
        return tokens

    def first() -> dict[str, str]:
        return {name: cache_entry(split) for name, split in tokenize().items()}

    if world_size() == 1 or isinstance(folder, DocumentSet):
        return tokenize()
    entries = on_first_rank(first)
    with first_rank_first():
        if os.environ.get("LOCAL_RANK") == "0" and rank() > 0 and first() != entries:
            raise InputError("other documents than on the first node", path=run.data.path, remedy="give all the same")
        return tokenize(entries)
