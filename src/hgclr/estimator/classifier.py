"""``HGCLRClassifier``: a scikit-learn classifier of texts into a label tree."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from hgclr.errors import InputError, require_extra
from hgclr.estimator.labels import (
    Form,
    Targets,
    TreeLike,
    as_value_errors,
    find_labels,
    read_targets,
    read_texts,
    read_tree,
    tree_of,
    write_targets,
)
from hgclr.taxonomy import Taxonomy


class HGCLRClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Classifier of texts into a label tree.

    ``X`` is a list, a one-dimensional array or a pandas Series of texts. ``y`` has the labels of each text in one of
    these forms, and ``predict`` returns the same form:

    - a string is one path, ``"science > physics"``, or a label's id in ``taxonomy``;
    - a tuple is one path as names, ``("science", "physics")``;
    - a list (array, set) of such strings or tuples is any number of paths;
    - an indicator matrix, (N, K), has a column for each label of ``taxonomy``, in its order.

    Ancestors are optional. Predictions name the deepest labels, by their ids, as in ``classes_``; an indicator matrix
    includes the ancestors.

    Args:
        encoder: text encoder to start from: a name from the catalogue, a folder, or a hub name.
        architecture: ``flat`` (an encoder with a linear head), ``hgclr``, or one of ``hgclr.paper``; None is ``flat``,
            and ``hgclr`` in every preset but ``default``.
        preset: settings of the method: ``default``, ``hgclr``, ``paper`` or ``published``.
        effort: ``head`` fits only the head, in seconds; ``full`` also trains the encoder.
        taxonomy: the label tree: a :class:`~hgclr.Taxonomy`, a file in any of its formats, or nested dictionaries such
            as ``{"science": {"physics": {}, "chemistry": {}}}``. None builds it from the paths in ``y``.
        path_separator: the string between the names of a path.
        epochs, batch_size, learning_rate: None chooses values for the data and the encoder.
        max_length: maximum tokens per text; None takes the preset's.
        settings: further settings of the method, such as ``{"contrastive_weight": 0.3}``, see
            :class:`~hgclr.models.HGCLRConfig`.
        precision: ``fp32``, ``bf16``, ``fp16``, or ``auto`` for the fastest on this machine.
        validation_fraction: share of the documents that is held out to choose the best epoch by Macro-F1.
        rule: decoding rule, see :class:`~hgclr.decisions.decoding.Decoder`. ``auto`` is ``best-path`` if ``y`` has one
            path per document, otherwise the best rule on the documents held out, or ``closure``.
        threshold: probability above which a label is predicted; None takes 0.5, or the value tuned by calibration.
        paths: number of paths of ``top-k-paths``.
        calibrate: calibrate probabilities, and tune decoding rule and thresholds, on the documents held out, if there
            are 10 or more; None does so in the presets ``default`` and ``hgclr``, as ``hgclr train`` does.
        random_state: seed, generator, or None for a different result each time.
        output_dir: folder for the training run, for example for explanations; it must not contain a run. None writes
            nothing to disk.

    Attributes:
        classes_: the labels' ids in the tree's order, (K,); the paths if the tree was built from ``y``.
        taxonomy_: the label tree.
        classifier_: the :class:`~hgclr.HierarchicalClassifier` that predicts, for other thresholds or rules.
        history_: scores and losses of each epoch.

    Example:
        >>> classifier = HGCLRClassifier(epochs=5, random_state=0).fit(texts, paths)  # doctest: +SKIP
        >>> classifier.predict(["a lens made of ice"])  # doctest: +SKIP
        array(['science > physics'], dtype=object)
    """

    def __init__(
        self,
        encoder: str | Path = "all-MiniLM-L6-v2",
        *,
        architecture: str | None = None,
        preset: str = "default",
        effort: str = "full",
        taxonomy: TreeLike | None = None,
        path_separator: str = " > ",
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        max_length: int | None = None,
        settings: Mapping[str, Any] | None = None,
        precision: str = "auto",
        validation_fraction: float = 0.1,
        rule: str = "auto",
        threshold: float | None = None,
        paths: int = 1,
        calibrate: bool | None = None,
        random_state: int | np.random.RandomState | None = None,
        output_dir: str | Path | None = None,
    ) -> None:
        self.encoder = encoder
        self.architecture = architecture
        self.preset = preset
        self.effort = effort
        self.taxonomy = taxonomy
        self.path_separator = path_separator
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.max_length = max_length
        self.settings = settings
        self.precision = precision
        self.validation_fraction = validation_fraction
        self.rule = rule
        self.threshold = threshold
        self.paths = paths
        self.calibrate = calibrate
        self.random_state = random_state
        self.output_dir = output_dir

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803 (scikit-learn's name)
        """Train on texts and their labels in one of the forms above; raise a ValueError for bad input."""
        require_extra("torch", extra="sklearn", capability="Training")
        from hgclr.estimator.model import fit_model

        with as_value_errors():
            texts, targets = read_texts(X, empty=False), read_targets(y)
            _check_lengths(texts, targets)
            drawn, given, separator = self.taxonomy is None, self.taxonomy, self.path_separator
            taxonomy = tree_of(targets, separator) if given is None else read_tree(given, separator)
            label_sets = [labels for labels, _ in find_labels(targets, taxonomy, separator, drawn=drawn)]
            if [] in label_sets:
                raise InputError(f"y[{label_sets.index([])}]: no labels", remedy="add a label, or remove the text")
            one_path = targets.form.kind == "path"
            self.classifier_, self.history_ = fit_model(self, texts, label_sets, taxonomy, one_path=one_path)
        self._set_tree(self.classifier_.taxonomy, targets.form, drawn)
        return self

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the labels of each text in the form of ``y`` in ``fit``; a blank text gets no label.

        The result is an array of ids or tuples of names, (N,), of lists of these, (N,), or an indicator matrix, (N, K).
        """
        return write_targets(self._decide(self._texts(X)), self._form, self.taxonomy_)

    def predict_proba(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        """Return the probabilities of all labels, (N, K), in the order of ``classes_``; rows do not sum to 1."""
        texts = self._texts(X)  # first, because it checks that the estimator is fitted
        return self.classifier_.predict_proba(texts)

    def score(self, X: Any, y: Any) -> float:  # noqa: N803
        """Return the Micro-F1 over all labels, ancestors included.

        A label that is missing from a tree built from training documents counts as not predicted.
        """
        texts = self._texts(X)
        with as_value_errors():
            targets = read_targets(y)
            _check_lengths(texts, targets)
            right = both = 0
            labels = find_labels(targets, self.taxonomy_, self.path_separator, drawn=self._drawn)
            for given, (gold, unknown) in zip(self._decide(texts), labels, strict=True):
                right += int(given[gold].sum())
                both += int(given.sum()) + len(gold) + unknown
        return 2 * right / both if both else 0.0

    def save(self, folder: str | Path) -> None:
        """Write the model folder atomically: safetensors, JSON and tokenizer files.

        ``hgclr predict``, ``hgclr serve`` and :meth:`load` read it. A generator as ``random_state`` is not saved.
        """
        check_is_fitted(self)
        from hgclr.estimator.model import save

        with as_value_errors():
            save(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load the folder that :meth:`save` wrote, or the model folder of a training run.

        The latter predicts lists of paths, and its only parameter is the tree.
        """
        from hgclr.estimator.model import load

        with as_value_errors():
            return load(cls, Path(folder))

    def __getstate__(self) -> dict[str, Any]:
        """Return the parameters and, if fitted, the files of the model folder, so that a pickle loads anywhere."""
        state: dict[str, Any] = dict(super().__getstate__())
        if (classifier := state.pop("classifier_", None)) is not None:
            from hgclr.estimator.model import pack

            state["_files"] = pack(classifier)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        files = state.pop("_files", None)
        super().__setstate__(state)
        if files is not None:
            from hgclr.estimator.model import unpack

            self.classifier_ = unpack(files)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.classifier_tags.multi_label = True
        return tags

    def _texts(self, X: Any) -> list[str]:  # noqa: N803
        check_is_fitted(self)
        with as_value_errors():
            return read_texts(X, empty=True)

    def _decide(self, texts: list[str]) -> NDArray[np.bool_]:
        """Return the labels of the texts, (N, K)."""
        given = np.zeros((0, len(self.taxonomy_)), dtype=np.bool_)
        decide, windows = self.classifier_.decisions.decide, self.classifier_.probabilities(texts)
        return np.concatenate([given, *(decide(probabilities).predicted for probabilities in windows)])

    def _set_tree(self, taxonomy: Taxonomy, form: Form, drawn: bool) -> None:
        self.taxonomy_, self._form, self._drawn = taxonomy, form, drawn
        self.classes_ = np.array(taxonomy.ids, dtype=object)


def _check_lengths(texts: list[str], targets: Targets) -> None:
    if not texts:
        raise InputError("X is empty", remedy="give at least one text")
    if len(texts) != len(targets):
        raise InputError(f"X has {len(texts)} texts, but y has labels for {len(targets)}")
