"""Training, saving, loading and pickling of an estimator's model, without side effects on the process."""

from __future__ import annotations

import logging
import random
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from sklearn.utils import check_random_state
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hgclr.data.folder import Document, DocumentSet
from hgclr.data.split import hold_out
from hgclr.decisions.decoding import RULES
from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError
from hgclr.estimator.labels import Form
from hgclr.files import atomic_folder, json_bytes, read_json
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.backends import TorchBackend
from hgclr.taxonomy import Taxonomy

logger = logging.getLogger(__name__)
FILE = "estimator.json"
"""File beside the weights, with parameters and form of the labels."""
REMEDY = "give a folder that HGCLRClassifier.save wrote, or the folder 'model' that hgclr train wrote"
Estimator = TypeVar("Estimator", bound=Any)
_FIT_LOCK = threading.RLock()


def fit_model(
    estimator: Any, texts: Sequence[str], label_sets: Sequence[Sequence[int]], taxonomy: Taxonomy, *, one_path: bool
) -> tuple[HierarchicalClassifier, list[dict[str, float]]]:
    """Train a model with an estimator's parameters; return it with its scores by epoch.

    Label sets are indices with all ancestors; with ``one_path`` every text gets exactly one path.
    """
    from transformers import set_seed

    from hgclr.training import RunConfig, fit
    from hgclr.training.head import LEAST
    from hgclr.training.run import new_model, save_run
    from hgclr.training.run_checks import check_new_run

    rule, threshold = estimator.rule, estimator.threshold
    if rule not in ("auto", *RULES):
        raise InputError(f"unknown decoding rule {rule!r}", remedy=f"choose auto, {', '.join(RULES)}")
    if one_path and rule not in ("auto", "best-path"):
        raise InputError(
            f"y has one path for each document, but rule={rule!r} may predict none or several",
            remedy="give a list of paths for each document, or set rule='auto'",
        )
    decisions = Decisions(
        taxonomy,
        rule if rule != "auto" else "best-path" if one_path else "closure",
        0.5 if threshold is None else threshold,
        paths=estimator.paths,
        allow_inner_nodes=any(map(taxonomy.ends_inside, label_sets)),
    )
    seed, kept = estimator.random_state, estimator.output_dir
    if seed is None or isinstance(seed, np.random.RandomState):
        seed = check_random_state(seed).randint(np.iinfo(np.int32).max)
    settings = dict(estimator.settings or {})
    model: dict[str, Any] = {name: getattr(estimator, name) for name in ("encoder", "preset")}
    for name in ("architecture", "max_length"):
        if (value := getattr(estimator, name)) is not None:
            model[name] = value
    if both := sorted(settings.keys() & {"encoder", "preset", "architecture", "max_length"}):
        raise InputError(f"settings has the parameter {both[0]!r}", remedy=f"pass {both[0]}=... instead")
    names = ("effort", "epochs", "batch_size", "learning_rate", "precision", "calibrate")
    training = {name: getattr(estimator, name) for name in names} | {"seed": seed}
    run = RunConfig.build(
        {
            "data": {"path": "in-memory"},
            "model": {name: _plain(value) for name, value in (model | settings).items()},
            "training": {name: _plain(value) for name, value in training.items()},
            "output": str(kept or "in-memory"),
        }
    )
    seed, share = run.training.seed, estimator.validation_fraction
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise InputError(f"validation_fraction is {share!r}", remedy="choose a number between 0 and 1")
    held_out = set(hold_out(len(texts), share, seed)[1].tolist())
    splits: dict[str, list[Document]] = {"train": [], "dev": []}
    for number, (text, labels) in enumerate(zip(texts, label_sets, strict=True)):
        splits["dev" if number in held_out else "train"].append(Document(text, tuple(labels)))
    if kept is not None:
        check_new_run(run)
    with own_randomness():
        set_seed(seed)
        trained, tokenizer, _ = new_model(run, DocumentSet(taxonomy, splits))
        fitted = fit(
            trained,
            tokenizer,
            splits["train"],
            splits["dev"],
            # Decisions are tuned below, with the given rule and threshold.
            settings=run.resolved_training.model_copy(update={"calibrate": False}),
            label_documents=run.uses_label_documents,
            lora=run.model.lora,
            output=None if kept is None else run.output,
            callbacks=[EpochLog()],
        )
        classifier = HierarchicalClassifier.from_model(trained, tokenizer, decisions)
        if run.tunes_decisions and len(splits["dev"]) >= LEAST:
            found = classifier.calibrate(
                classifier.outputs(splits["dev"]),
                rule="auto" if rule == "auto" and not one_path else decisions.rule,
                scope="auto" if threshold is None else "none",
                paths=estimator.paths,
                seed=seed,
            )
            classifier.decisions = found.decisions.changed(threshold=threshold)
        if kept is not None:
            result = save_run(run, trained, tokenizer, fitted)
            classifier.decisions.write(result.model)
        return classifier, fitted.metrics["history"]


def _plain(value: Any) -> Any:
    """Return a parameter in plain Python types; parameter searches use numpy numbers."""
    if isinstance(value, Taxonomy):
        return value.to_json()
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, Path) else value


@contextmanager
def own_randomness() -> Iterator[None]:
    """Let one thread at a time train, and restore the random state of the process afterwards.

    Training seeds the global generators of Python, numpy and torch. Without this, fits in two threads would not be
    reproducible, and the user's random numbers would repeat after each fit.
    """
    import torch

    with _FIT_LOCK, torch.random.fork_rng():
        python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (training seeds this one)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


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


def pack(classifier: HierarchicalClassifier) -> dict[str, bytes]:
    """Return the files of a classifier's model folder by name."""
    with tempfile.TemporaryDirectory(prefix="hgclr-") as temporary:
        classifier.save_pretrained(Path(temporary) / "model")
        return {path.name: path.read_bytes() for path in sorted((Path(temporary) / "model").iterdir())}


def unpack(files: Mapping[str, bytes]) -> HierarchicalClassifier:
    """Load a classifier from the files of its model folder."""
    with tempfile.TemporaryDirectory(prefix="hgclr-", ignore_cleanup_errors=True) as temporary:
        for name, content in files.items():
            if name != Path(name).name:
                raise InputError(f"{name!r} is not a file name")
            (Path(temporary) / name).write_bytes(content)
        return _load_folder(Path(temporary))


def _load_folder(folder: Path) -> HierarchicalClassifier:
    classifier = HierarchicalClassifier.load(folder)
    if not isinstance(classifier.backend, TorchBackend):
        raise InputError("this is an ONNX model", path=folder, remedy="load it with hgclr.HierarchicalClassifier")
    return classifier


def save(estimator: Any, folder: Path) -> None:
    """Write a fitted estimator to a folder, which may be new, empty, or contain an estimator."""
    if folder.exists() and not (folder / FILE).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError("the folder contains other files", path=folder, remedy="choose a new folder")
    parameters = {name: _plain(value) for name, value in estimator.get_params(deep=False).items()}
    if isinstance(estimator.random_state, np.random.RandomState):
        parameters["random_state"] = None
    fields = {
        "parameters": parameters,
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
    """Load a saved estimator, or build one from a model folder of ``hgclr train``."""
    if not folder.is_dir():
        raise InputError("no such folder", path=folder, remedy=REMEDY)
    classifier, file = _load_folder(folder), folder / FILE
    fields: dict[str, Any] = {"parameters": {"taxonomy": classifier.taxonomy}, "labels": {"kind": "paths"}}
    fields |= {"drawn": False, "history": []}
    if file.is_file():
        fields = read_json(file, remedy=REMEDY)
        if not isinstance(fields, dict):
            raise InputError(f"expected an object, got {fields!r:.80}", path=file, remedy=REMEDY)
    try:
        estimator = kind(**fields["parameters"])
        form, drawn, history = Form(**fields["labels"]), fields["drawn"], fields["history"]
    except (KeyError, TypeError) as error:
        raise InputError(f"cannot be read: {error}", path=file, remedy=REMEDY) from None
    estimator.classifier_, estimator.history_ = classifier, history
    estimator._set_tree(classifier.taxonomy, form, drawn)
    return estimator  # type: ignore[no-any-return]
