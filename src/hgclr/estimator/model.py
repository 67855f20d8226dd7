"""The model of an estimator: trained, with the process left as it was; in a folder, and in a pickle."""

from __future__ import annotations

import logging
import random
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hgclr.data.folder import Document, DocumentSet
from hgclr.data.split import hold_out
from hgclr.decisions.decoding import RULES, Rule
from hgclr.decisions.settings import Decisions
from hgclr.decisions.tuning import calibrate
from hgclr.errors import InputError
from hgclr.estimator.labels import Form
from hgclr.files import atomic_folder, json_bytes, read_json
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.backends import TorchBackend
from hgclr.taxonomy import Taxonomy

__all__ = ["Deciding", "fit_model", "load", "pack", "save", "unpack"]

logger = logging.getLogger(__name__)
FILE = "estimator.json"
"""Beside the weights: what only an estimator needs."""
REMEDY = "give a folder that HGCLRClassifier.save wrote, or the folder 'model' that hgclr train wrote"
Estimator = TypeVar("Estimator", bound=Any)
_ONE_AT_A_TIME = threading.RLock()


@dataclass(frozen=True)
class Deciding:
    """How labels are to be decided, in the estimator's parameters; ``one_path``: every text gets exactly one path."""

    rule: str
    threshold: float | None
    paths: int
    calibrate: bool
    one_path: bool

    def check(self, taxonomy: Taxonomy, allow_inner_nodes: bool) -> Decisions:
        """Return the decisions without calibration; refuse values that do not fit."""
        if self.rule not in ("auto", *RULES):
            raise InputError(f"unknown decoding rule {self.rule!r}", remedy=f"choose auto, {', '.join(RULES)}")
        if self.one_path and self.rule not in ("auto", "best-path"):
            raise InputError(
                f"y has one path for each document, and rule={self.rule!r} may give a text none or several",
                remedy="give a list of paths for each document, or rule='auto'",
            )
        threshold = 0.5 if self.threshold is None else self.threshold
        return Decisions(taxonomy, self._fixed_rule, threshold, paths=self.paths, allow_inner_nodes=allow_inner_nodes)

    @property
    def _fixed_rule(self) -> Rule:
        if self.rule == "auto":
            return "best-path" if self.one_path else "closure"
        return self.rule  # type: ignore[return-value]  # checked to be one

    def find(
        self, classifier: HierarchicalClassifier, dev: Sequence[Document], without: Decisions, seed: int
    ) -> Decisions:
        """Return the decisions that are best on the documents held out, or those without calibration."""
        found = calibrate(
            classifier.outputs(dev),
            without,
            rule="auto" if self.rule == "auto" and not self.one_path else self._fixed_rule,
            scope="auto" if self.threshold is None else "none",
            paths=self.paths,
            seed=seed,
        )
        return found.decisions.changed(threshold=self.threshold)


def fit_model(
    texts: Sequence[str],
    label_sets: Sequence[Sequence[int]],
    taxonomy: Taxonomy,
    *,
    model: dict[str, Any],
    training: dict[str, Any],
    deciding: Deciding,
    validation_fraction: float,
    output: str | Path | None,
    verbose: int,
) -> tuple[HierarchicalClassifier, list[dict[str, float]]]:
    """Train a model, and return it in memory with its scores by epoch.

    Label sets are indices with all ancestors; ``model`` and ``training`` are sections of a run; ``output`` keeps the
    run, None leaves nothing on disk.
    """
    from transformers import set_seed

    from hgclr.training import RunConfig, fit
    from hgclr.training.run import new_model, save_run
    from hgclr.training.run_checks import check_output

    decisions = deciding.check(taxonomy, any(map(taxonomy.ends_inside, label_sets)))
    place = str(output or "in-memory")
    run = RunConfig.build({"data": {"path": "in-memory"}, "model": model, "training": training, "output": place})
    seed = run.training.seed
    share = validation_fraction
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise InputError(f"validation_fraction is {share!r}", remedy="give a share between 0 and 1")
    held_out = set(hold_out(len(texts), share, seed, least=2 if deciding.calibrate else 1)[1].tolist())
    splits: dict[str, list[Document]] = {"train": [], "dev": []}
    for number, (text, labels) in enumerate(zip(texts, label_sets, strict=True)):
        splits["dev" if number in held_out else "train"].append(Document(text, tuple(labels)))
    if output is not None:
        check_output(run)
    with shown_log(verbose), quiet_libraries(), own_randomness():
        set_seed(seed)
        trained, tokenizer, _ = new_model(run, DocumentSet(taxonomy, splits))
        fitted = fit(
            trained,
            tokenizer,
            splits["train"],
            splits["dev"],
            settings=run.resolved_training,
            label_documents=run.uses_label_documents,
            lora=run.model.lora,
            output=None if output is None else run.output,
            callbacks=[EpochLog()],
        )
        classifier = HierarchicalClassifier.from_model(trained, tokenizer, decisions)
        if deciding.calibrate:
            classifier.decisions = deciding.find(classifier, splits["dev"], decisions, seed)
        if output is not None:
            result = save_run(run, trained, tokenizer, fitted)
            classifier.decisions.write(result.model)
        return classifier, fitted.metrics["history"]


@contextmanager
def own_randomness() -> Iterator[None]:
    """Train in here: one thread at a time, with the process's random state as it was before and after.

    Training seeds the generators of Python, numpy and torch, which belong to the whole process: two fits in two
    threads would not repeat, and a user's own random numbers would.
    """
    import torch

    with _ONE_AT_A_TIME, torch.random.fork_rng():
        python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (it is this one that training seeds)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


@contextmanager
def shown_log(verbose: int) -> Iterator[None]:
    """Show what the library is doing on standard error, if asked to and nobody has set up another place for it."""
    if not verbose:
        yield
        return
    root, handler = logging.getLogger("hgclr"), logging.StreamHandler()
    level = root.level
    if not root.hasHandlers():
        root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(handler)


class EpochLog(TrainerCallback):
    """Log the scores of each epoch on the documents held out."""

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:  # noqa: ARG002 (the Trainer decides the arguments)
        metrics = kwargs["metrics"]
        logger.info(
            "epoch %.0f of %.0f: validation Micro-F1 %.2f %%, Macro-F1 %.2f %%",
            state.epoch or 0,
            args.num_train_epochs,
            100 * metrics["eval_micro_f1"],
            100 * metrics["eval_macro_f1"],
        )


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Turn the bars and notices of transformers and datasets off, and back to what they were."""
    import datasets
    from transformers.utils import logging as transformers_logging

    level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    dataset_bars = not datasets.are_progress_bars_disabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()
        if dataset_bars:
            datasets.enable_progress_bars()


def pack(classifier: HierarchicalClassifier) -> dict[str, bytes]:
    """Return the files of a classifier's folder by name."""
    with tempfile.TemporaryDirectory(prefix="hgclr-") as temporary, quiet_libraries():
        classifier.save_pretrained(Path(temporary) / "model")
        return {path.name: path.read_bytes() for path in sorted((Path(temporary) / "model").iterdir())}


def unpack(files: Mapping[str, bytes]) -> HierarchicalClassifier:
    """Load the classifier that a folder's files make."""
    with tempfile.TemporaryDirectory(prefix="hgclr-", ignore_cleanup_errors=True) as temporary:
        for name, content in files.items():
            if name != Path(name).name:
                raise InputError(f"{name!r} is no name of a file")
            (Path(temporary) / name).write_bytes(content)
        return load_folder(Path(temporary))


def load_folder(folder: Path) -> HierarchicalClassifier:
    """Load a model's folder, in torch; refuse one for onnxruntime, which cannot be trained."""
    with quiet_libraries():
        classifier = HierarchicalClassifier.load(folder)
    if not isinstance(classifier.backend, TorchBackend):
        raise InputError("an ONNX model", path=folder, remedy="open it with hgclr.HierarchicalClassifier")
    return classifier


def save(estimator: Any, folder: Path) -> None:
    """Write a fitted estimator into a folder, in the place of an estimator that may be there, but of nothing else."""
    if folder.exists() and not (folder / FILE).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError("something else is here already", path=folder, remedy="give the name of a new folder")
    fields = {
        "parameters": {name: _json_value(value) for name, value in estimator.get_params(deep=False).items()},
        "labels": asdict(estimator._form),
        "drawn": estimator._drawn,
        "history": estimator.history_,
    }
    try:
        content = json_bytes(fields)
    except TypeError as error:
        raise InputError(f"a parameter cannot be written as JSON: {error}") from None
    try:
        with atomic_folder(folder) as temporary:
            for name, part in (pack(estimator.classifier_) | {FILE: content}).items():
                (temporary / name).write_bytes(part)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=folder) from error


def load(kind: type[Estimator], folder: Path) -> Estimator:
    """Load an estimator that was saved, or make one of what ``hgclr train`` wrote."""
    if not folder.is_dir():
        raise InputError("no such folder", path=folder, remedy=REMEDY)
    classifier = load_folder(folder)
    fields = _read(folder / FILE, classifier.taxonomy)
    try:
        estimator = kind(**fields["parameters"])
        form, drawn, history = Form(**fields["labels"]), fields["drawn"], fields["history"]
    except (KeyError, TypeError) as error:
        raise InputError(f"not what this version writes: {error}", path=folder / FILE, remedy=REMEDY) from None
    estimator.classifier_, estimator.history_ = classifier, history
    estimator._set_tree(classifier.taxonomy, form, drawn)
    return estimator  # type: ignore[no-any-return]


def _read(file: Path, taxonomy: Taxonomy) -> dict[str, Any]:
    """Return the fields of the file; of a folder without it, what the model tells."""
    if not file.is_file():
        parameters = {"taxonomy": taxonomy}
        return {"parameters": parameters, "labels": {"kind": "paths"}, "drawn": False, "history": []}
    fields = read_json(file, remedy=REMEDY)
    if not isinstance(fields, dict):
        raise InputError(f"expected an object, got {fields!r:.80}", path=file, remedy=REMEDY)
    return fields


def _json_value(value: Any) -> Any:
    """Return a parameter in plain Python types."""
    if isinstance(value, Taxonomy):
        return value.to_json()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    return None if isinstance(value, np.random.RandomState) else value
