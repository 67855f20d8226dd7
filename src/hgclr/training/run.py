"""Train on a data folder: create or load the model, tokenise the documents, fit, save model and metrics."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import datasets
from transformers import PreTrainedTokenizerBase, TrainerCallback, set_seed

from hgclr.config import method_settings
from hgclr.data.folder import DataFolder, Document, DocumentSet, label_documents
from hgclr.data.split import hold_out
from hgclr.data.tokens import sample_documents, tokenize_documents, tokenize_split
from hgclr.decisions.tuning import Calibrated
from hgclr.errors import InputError, refuse_broken
from hgclr.files import locked, read_json, write_json
from hgclr.models import FlatForSequenceClassification, HierarchicalPreTrainedModel, architecture_named, load_config
from hgclr.models import architecture as find_architecture
from hgclr.models.base import load_tokenizer, save
from hgclr.models.pretrained import load_weights
from hgclr.nn.gathering import rank
from hgclr.provenance import Stopwatch, machine
from hgclr.registry import merged, resolve
from hgclr.remote import local
from hgclr.training import run_checks as checks
from hgclr.training.changed_tree import changed_model
from hgclr.training.distributed import first_rank_first, gather_objects, on_first_rank, process_group
from hgclr.training.fitting import Fitted, Plan, fit
from hgclr.training.pool import fit_with_pool, read_pool
from hgclr.training.settings import RunConfig

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingResult:
    """Folders of a run, its metrics, and a report of how decisions were tuned."""

    model: Path
    training_model: Path
    metrics: dict[str, Any]
    calibrated: Calibrated | None = None


def train(
    run: RunConfig | str | Path,
    data: checks.Data | None = None,
    *,
    output: str | Path | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
    callbacks: Sequence[TrainerCallback] = (),
    on_documents: Callable[[int], None] | None = None,
    on_start: Callable[[Plan], None] | None = None,
    on_stage: Callable[[str, int | None], None] | None = None,
    score_test: bool = True,
    stopwatch: Stopwatch | None = None,
) -> TrainingResult:
    """Train on ``train``, select the best epoch on ``dev``, score ``test`` once, save the result.

    Writes into ``run.output``: ``model`` (encoder and head, for prediction), ``training-model`` (with the label side,
    to continue training and for explanations), ``metrics.json``, ``config.yaml``, ``documents.json`` (SHA-256 of the
    documents), ``checkpoints``.

    Args:
        run: a data folder, a YAML file with settings, or the settings.
        output: the run folder; by default that of the settings, or ``runs/<name of the data>``.
        settings: settings that override those of ``run``, such as ``["training.effort=head"]``.
        data: documents in memory or an open data folder; by default ``run.data.path`` is opened.
        resume: continue from the newest complete checkpoint in ``run.output``, if there is one; a finished run is
            returned unchanged.
        callbacks: further Trainer callbacks, such as a progress bar.
        on_documents: called with the number of documents of the stage since the last call.
        on_start: called with the plan before training starts.
        on_stage: called with the name of each stage and, if known, its number of documents.
        score_test: False while settings are tuned, so that the choice cannot depend on test.
        stopwatch: started with the command, for ``seconds`` and ``cpu_seconds``; by default they count from this call.

    Raises:
        InputError: if settings, data or encoder do not fit together, the output folder holds another run, or another
            process is training there.
    """
    if not isinstance(run, RunConfig):
        run = RunConfig.read(run, list(settings), output)
    elif output is not None or settings:
        raise TypeError("output and settings are part of a RunConfig; give them only with a path")
    resume, stopwatch = resume or checks.restarted(), stopwatch or Stopwatch()

    def begin(stage: str, total: int | None = None) -> None:
        if on_stage is not None:
            on_stage(stage, total)

    with process_group(), ExitStack() as stack:

        def enter() -> TrainingResult | None:
            lock = locked(
                run.output / checks.LOCK, "training", remedy="wait until it is done, or give another --output"
            )
            stack.enter_context(lock)
            return finished_run(run, resume=resume)

        if (finished := on_first_rank(enter)) is not None:
            return finished
        begin("loading the model")
        where = machine()  # now, because the commit may change during training
        set_seed(run.training.seed)
        if run.model.start is None:
            model, tokenizer, data = new_model(run, data)
        else:
            model, tokenizer, data = started_model(run, local(run.model.start), data)
        pool = read_pool(run, data)
        tokens = tokenize_splits(run, data, tokenizer, model.config.max_length, on_documents, begin)
        unlabelled = None
        if pool is not None:
            texts = (Document(text, ()) for text in pool.texts)
            unlabelled = tokenize_documents(texts, tokenizer, max_length=model.config.max_length)
        documents = tokens if unlabelled is None else {**tokens, "unlabelled": unlabelled}
        on_first_rank(lambda: _record_documents(run, documents))
        splits = tokens if score_test else {name: split for name, split in tokens.items() if name != "test"}
        training = partial(
            fit,
            model,
            tokenizer,
            settings=run.resolved_training,
            label_documents=run.uses_label_documents,
            lora=run.model.lora,
            continued=run.model.start is not None,
            output=run.output,
            resume=resume,
            callbacks=callbacks,
            on_documents=on_documents,
            on_start=on_start,
            on_stage=on_stage,
        )
        if unlabelled is None or pool is None:
            fitted = training(splits.get("train"), splits.get("dev"), test=splits.get("test"))
        else:
            fitted = fit_with_pool(training, splits, unlabelled)
            fitted.metrics["unlabelled"] |= {"left_out": dict(pool.left_out)}
        fitted.metrics["documents"] = {name: len(split) for name, split in tokens.items()}
        begin("saving")
        return save_run(run, model, tokenizer, fitted, where, stopwatch)


def finished_run(run: RunConfig, *, resume: bool) -> TrainingResult | None:
    """Return the result if ``resume`` is set and the run is finished, else None; reject a folder with another run."""
    (checks.check_resumed if resume else checks.check_new_run)(run)
    if checks.state_of(run.output) != "finished":
        return None
    return TrainingResult(
        run.output / checks.MODEL, run.output / checks.TRAINING_MODEL, read_json(run.output / checks.METRICS)
    )


def _record_documents(run: RunConfig, tokens: Mapping[str, datasets.Dataset]) -> None:
    """Write number and SHA-256 of the documents in each split; for a resumed run, check them first."""
    documents = {}
    for name, split in tokens.items():
        digest = hashlib.sha256()
        for batch in split.select_columns(["input_ids", "labels"]).with_format("arrow").iter(batch_size=10_000):
            for column in batch.columns:
                rows = column.combine_chunks()
                digest.update(rows.value_lengths().to_numpy(zero_copy_only=False).tobytes())
                digest.update(rows.flatten().to_numpy(zero_copy_only=False).tobytes())
        documents[name] = {"documents": len(split), "sha256": digest.hexdigest()}
    if checks.state_of(run.output) == "stopped":
        checks.check_documents(run, documents)
    run.write(run.output / checks.CONFIG)
    write_json(run.output / checks.DOCUMENTS, documents)


def save_run(
    run: RunConfig,
    model: HierarchicalPreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    fitted: Fitted,
    where: dict[str, Any] | None = None,
    stopwatch: Stopwatch | None = None,
) -> TrainingResult:
    """Write settings, the deployed model, the training model and the metrics into ``run.output``.

    With a ``stopwatch``, ``seconds`` and ``cpu_seconds`` are read after the models are written.
    """
    metrics = {"run": run.model_dump(mode="json", exclude_none=True), **fitted.metrics, "machine": where or machine()}
    result = TrainingResult(run.output / checks.MODEL, run.output / checks.TRAINING_MODEL, metrics, fitted.calibrated)
    if rank() > 0:
        return result
    run.write(run.output / checks.CONFIG)
    decided = fitted.calibrated is not None or run.training.effort == "names"
    save(model.deployed(), tokenizer, result.model, fitted.decisions.write if decided else None)
    save(model, tokenizer, result.training_model)
    if stopwatch is not None:
        metrics.update(stopwatch.read())
    write_json(run.output / checks.METRICS, metrics)
    return result


def new_model(
    run: RunConfig, data: checks.Data | None = None
) -> tuple[HierarchicalPreTrainedModel, PreTrainedTokenizerBase, checks.Data]:
    """Return a new model for the data's label tree, its tokenizer, and the data."""
    settings = method_settings(run.model.preset, run.model.overrides)
    data = data or checks.data_folder(run, run.data.taxonomy)
    if isinstance(data, DataFolder):
        settings["text_column"] = data.source_text_column
    if (build := merged("encoders").get(run.model.encoder)) is not None:
        documents = training_documents(run, data)
        if run.uses_label_documents:
            documents = chain(documents, label_documents(data.taxonomy))
        return *resolve(build)(run, data.taxonomy, documents, settings), data
    tokenizer = load_tokenizer(run.model.encoder)
    architecture = find_architecture(run.model.architecture if run.training.effort == "full" else "flat")
    return architecture.from_encoder(run.model.encoder, data.taxonomy, tokenizer, **settings), tokenizer, data


def training_documents(run: RunConfig, data: checks.Data) -> Iterable[Document]:
    """Return the documents that the run trains on: its sample of train, without those held out for dev."""
    checks.check_splits(run, data)
    sample = None if run.data.limit is None else (run.data.limit, run.training.seed)
    documents = sample_documents(data, "train", sample)
    if "dev" in data.splits:
        return documents
    kept = list(documents)  # hold_out needs their number
    places, _ = hold_out(len(kept), run.data.dev_share or 0, run.training.seed)
    return [kept[place] for place in sorted(places.tolist())]


def started_model(
    run: RunConfig, start: Path, data: checks.Data | None = None
) -> tuple[HierarchicalPreTrainedModel, PreTrainedTokenizerBase, checks.Data]:
    """Load a model to continue training; if the data has another label tree, adapt the model to it."""
    checked = method_settings("default", run.model.overrides)
    overrides = {name: checked[name] for name in run.model.overrides}
    tokenizer = load_tokenizer(str(start))
    with refuse_broken("cannot load the model", path=start, remedy="give the folder training-model of a run"):
        saved = architecture_named((load_config(start).architectures or [""])[0])
        if saved is not None and "architecture" not in run.model.model_fields_set:
            run.model = run.model.model_copy(update={"architecture": saved})
        architecture = find_architecture(run.model.architecture)
        if run.training.effort != "full" and not issubclass(architecture, FlatForSequenceClassification):
            what = f"training.effort is {run.training.effort}, but {saved} has other layers than a head to train"
            raise InputError(what, path=start, remedy="set training.effort=full")
        if saved is not None and not issubclass(find_architecture(saved), architecture):
            raise InputError(
                f"a {saved} model lacks layers of {run.model.architecture}",
                path=start,
                remedy="give the training-model of the run, or omit model.architecture",
            )
        model = load_weights(architecture, start, use_safetensors=True, **overrides)
    known = model.config.taxonomy
    data = data or checks.data_folder(run, run.data.taxonomy if checks.has_own_tree(run) else known)
    if data.taxonomy != known or run.model.label_changes is not None:
        model = changed_model(run, model, tokenizer, data.taxonomy, training_documents(run, data))
    elif any(map(any, (data.taxonomy.descriptions, data.taxonomy.alternatives, data.taxonomy.codes))):  # perhaps others
        model.config.set_taxonomy(data.taxonomy)
    return model, tokenizer, data


def tokenize_splits(
    run: RunConfig,
    data: checks.Data,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    on_documents: Callable[[int], None] | None,
    begin: Callable[[str, int | None], None],
) -> dict[str, datasets.Dataset]:
    """Tokenise every split, or load it from the cache; hold out dev if ``data.dev_share`` is set.

    The first process of each node tokenises; the others read its cache.
    """
    limits = {"train": run.data.limit, "dev": run.data.dev_limit, "test": run.data.test_limit}
    seed = run.training.seed
    checks.check_splits(run, data)
    tokens: dict[str, datasets.Dataset] = {}
    with first_rank_first():
        for name, limit in limits.items():
            if name not in data.splits:
                continue
            begin(f"reading {name}", None)
            if isinstance(data, DocumentSet):
                sampled = sample_documents(data, name, None if limit is None else (limit, seed))
                tokens[name] = tokenize_documents(sampled, tokenizer, max_length=max_length)
            else:
                tokens[name] = tokenize_split(
                    data,
                    name,
                    tokenizer,
                    max_length=max_length,
                    limit=limit,
                    seed=seed,
                    bad_rows=run.output / f"bad-rows.{name}.jsonl" if rank() == 0 else None,
                    progress=on_documents,
                    on_total=partial(begin, f"reading {name}"),
                )
    entries = tuple(Path(file["filename"]).parent.name for split in tokens.values() for file in split.cache_files)
    if len(set(gather_objects(entries))) > 1:
        raise InputError("the nodes have different documents", path=run.data.path, remedy="copy the data to all nodes")
    if "dev" not in tokens and "train" in tokens and run.data.dev_share is not None:
        kept, held_out = hold_out(len(tokens["train"]), run.data.dev_share, seed)
        tokens |= {"train": tokens["train"].select(kept), "dev": tokens["train"].select(held_out)}
    return tokens
