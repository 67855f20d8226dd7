"""Classify texts with a trained model, without the training stack."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from hgclr.data.folder import DataFolder, Document
from hgclr.data.readers import check_text, is_blank
from hgclr.data.tokens import SplitWords, sample_documents, split_tokens
from hgclr.decisions.decoding import Rule
from hgclr.decisions.settings import Decisions
from hgclr.decisions.tuning import ENTRIES, Calibrated, Outputs, calibrate
from hgclr.errors import InputError, refuse_broken
from hgclr.inference.backends import Backend, TorchBackend, batches_by_length, longest_first, one_ahead, pad, windows
from hgclr.inference.loading import in_memory, load_model
from hgclr.metrics.scores import MultiLabelScores
from hgclr.taxonomy import Taxonomy

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from hgclr.evaluation.explanation import Explanation
    from hgclr.models import HierarchicalPreTrainedModel

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PredictedLabel:
    """One label of a text: its id, the names from the top label down to it, and its probability.

    A label with several paths has the main one in ``path`` and the others in ``other_paths``.
    """

    id: str
    path: tuple[str, ...]
    probability: float
    other_paths: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def of(cls, taxonomy: Taxonomy, label: int, probability: float) -> Self:
        path, *others = taxonomy.all_path_names(label)
        return cls(taxonomy.ids[label], path, probability, tuple(others))

    @property
    def paths(self) -> tuple[tuple[str, ...], ...]:
        """All paths, the main one first."""
        return (self.path, *self.other_paths)

    def to_json(self) -> dict[str, Any]:
        """Return the fields in plain Python types; ``paths`` is there if there are several."""
        fields = {"id": self.id, "path": list(self.path), "probability": round(self.probability, 4)}
        return fields | {"paths": list(map(list, self.paths))} if self.other_paths else fields


@dataclass(frozen=True, slots=True)
class Prediction:
    """The labels of one text, parents before their children.

    Args:
        labels: the predicted labels.
        abstained: labels that the decoding rule predicts but that are less probable than ``abstain_below``.
        truncated: whether the text is longer than the model reads.
        note: the reason why a blank text has no label, or why the labels are not to be trusted.
    """

    labels: tuple[PredictedLabel, ...]
    abstained: tuple[PredictedLabel, ...] = ()
    truncated: bool = False
    note: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return ``labels``, ``abstained``, ``truncated`` and, if there is one, ``note``, in plain Python types."""
        fields: dict[str, Any] = {
            "labels": [label.to_json() for label in self.labels],
            "abstained": [label.to_json() for label in self.abstained],
            "truncated": self.truncated,
        }
        return fields if self.note is None else fields | {"note": self.note}


BLANK = Prediction((), note="the text is empty or blank")
"""The prediction for a text without a visible character; see :func:`hgclr.data.readers.is_blank`."""
UNLIKE = "unlike the training texts: far more words are unknown or split, as in another language; labels may be wrong"
"""The note on a text with more unknown and split words than training texts; see `SplitWords`."""


class TokenisedText(NamedTuple):
    """The token ids of a text that the model reads, whether the text is longer, and its note, if it needs one."""

    ids: list[int]
    truncated: bool
    note: str | None


class LabelledDocument(Protocol):
    """A text with its gold labels: indices into the taxonomy, every label with its parent."""

    @property
    def text(self) -> str: ...

    @property
    def labels(self) -> tuple[int, ...]: ...


AnyLabelled = TypeVar("AnyLabelled", bound=LabelledDocument)


class HierarchicalClassifier:
    """Predict labels of a label tree for texts.

    Example:
        >>> classifier = HierarchicalClassifier.load("runs/first/model")  # doctest: +SKIP
        >>> fracture, fever = classifier.predict(["a broken wrist", "a high fever"])  # doctest: +SKIP

    Args:
        backend: computes logits.
        tokenizer: the encoder's tokenizer; its own truncation and padding are ignored.
        taxonomy: the label tree, in the order of the logits.
        pad_token: id of the padding token.
        max_length: tokens of a text that are read.
        cut_length: cut texts after so many tokens, special tokens at the end included; see ``SharedSettings``.
        decisions: calibration, decoding rule and thresholds, unless a call gives others.
        split_words: the statistic of the training texts by which texts unlike them get a note.
        pretrained_tokenizer: written by :meth:`save_pretrained`.
    """

    WINDOW = 2048
    """Texts in memory at a time, unless :attr:`DECISIONS` allows fewer."""
    DECISIONS = 2**24
    """Texts times labels in memory at a time."""
    PIECE = 512
    """Texts of a window that are tokenised together, while the backend computes the previous ones."""

    def __init__(
        self,
        backend: Backend,
        tokenizer: Tokenizer,
        taxonomy: Taxonomy,
        *,
        pad_token: int,
        max_length: int,
        cut_length: int | None = None,
        decisions: Decisions | None = None,
        split_words: SplitWords | None = None,
        pretrained_tokenizer: PreTrainedTokenizerBase | None = None,
    ) -> None:
        self.backend, self.taxonomy, self.pad_token = backend, taxonomy, pad_token
        self.decisions = decisions or Decisions(taxonomy)
        self.tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(max_length)
        self._cut_length = cut_length
        self.max_length = max_length if cut_length is None else min(max_length, cut_length)
        self._pretrained_tokenizer = pretrained_tokenizer
        self._split_words = split_words
        self._special_tokens = self.tokenizer.num_special_tokens_to_add(False)
        self._split_tokens = b"" if split_words is None else split_tokens(self.tokenizer)

    @classmethod
    def load(cls, model: str | Path, *, device: str | None = None) -> HierarchicalClassifier:
        """Load a folder that ``hgclr train`` or ``hgclr export`` wrote, given by path, URL or hub name.

        ``device`` is torch's device, such as ``cpu`` or ``cuda``; by default an accelerator if there is one.

        Raises:
            InputError: if the model or its tokenizer is missing or damaged.
            MissingExtraError: if the model's backend, torch or onnxruntime, is not installed.
        """
        return cls(**vars(load_model(model, device)))

    @classmethod
    def from_model(
        cls,
        model: HierarchicalPreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        decisions: Decisions | None = None,
        *,
        device: str | None = None,
    ) -> HierarchicalClassifier:
        """Return a classifier for a model in memory, such as :func:`hgclr.training.fit` trains.

        The default decisions are the rule ``threshold`` with the model's threshold.
        """
        return cls(**vars(in_memory(TorchBackend(model.deployed(), device), tokenizer, decisions)))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write model, tokenizer and decisions into a folder atomically; :meth:`load` reads it."""
        if not isinstance(self.backend, TorchBackend) or self._pretrained_tokenizer is None:
            raise InputError("an ONNX model cannot be saved", remedy="copy the folder that hgclr export wrote")
        from hgclr.models.base import save

        try:
            save(self.backend.model, self._pretrained_tokenizer, Path(folder), self.decisions.write)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", path=folder) from error

    def push_to_hub(self, name: str, *, private: bool = False, message: str = "hgclr model") -> str:
        """Publish model, tokenizer and decisions on the hub as ``owner/model``; return the address."""
        from huggingface_hub import HfApi

        hub = HfApi()
        with tempfile.TemporaryDirectory(prefix="hgclr-") as temporary:
            folder = Path(temporary) / "model"
            self.save_pretrained(folder)
            address = hub.create_repo(name, private=private, exist_ok=True)
            hub.upload_folder(repo_id=address.repo_id, folder_path=folder, commit_message=message)
        return str(address)

    @overload  # first, because a str is also a sequence of str
    def predict(self, texts: str, **options: Any) -> Prediction: ...

    @overload
    def predict(self, texts: Sequence[str], **options: Any) -> list[Prediction]: ...

    def predict(  # type: ignore[misc]
        self,
        texts: str | Sequence[str],
        *,
        decisions: Decisions | None = None,
        threshold: float | None = None,
        rule: Rule | None = None,
        paths: int | None = None,
        abstain_below: float | None = None,
    ) -> Prediction | list[Prediction]:
        """Return the prediction for one text, or a list of predictions for several.

        Defaults of the options are the model's decisions. A blank text has no label; ``Prediction.note`` says so.

        Args:
            texts: one text, or any number of them.
            decisions: decisions to use instead of the model's, calibration included.
            threshold: probability above which a label is predicted.
            rule: the decoding rule, see :class:`~hgclr.decisions.decoding.Decoder`; all rules but ``threshold``
                predict a label only with its parent.
            paths: number of paths for ``top-k-paths``.
            abstain_below: abstain from labels that are less probable, and stop at their parents;
                ``Prediction.abstained`` lists them.
        """
        chosen = decisions or self.decisions
        chosen = chosen.changed(rule=rule, threshold=threshold, paths=paths, abstain_below=abstain_below)
        predictions = list(self.stream(texts, chosen))
        return predictions[0] if isinstance(texts, str) else predictions

    def stream(self, texts: Iterable[str], decisions: Decisions | None = None) -> Iterator[Prediction]:
        """Yield the predictions of texts in order; only one window of texts is in memory at a time."""
        for window in windows(_several(texts), self.window):
            predictions, _ = self._decide(*self._compute(window), decisions or self.decisions)
            yield from predictions

    def evaluate(
        self,
        data: DataFolder | str | Path,
        split: str = "test",
        *,
        decisions: Decisions | None = None,
        limit: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> MultiLabelScores:
        """Return the scores on a split of a data folder.

        Args:
            data: the folder; a `DataFolder` must have the classifier's label tree.
            split: ``test``, ``dev`` or ``train``.
            decisions: the classifier's own by default. Abstained labels count as not predicted.
            limit: score a random sample of so many documents, always the same one.
            progress: called with the number of documents scored since the last call.
        """
        decisions = decisions or self.decisions
        scores = MultiLabelScores(self.taxonomy)
        for _, logits, gold in self.scored_windows(sampled(self._folder(data), split, limit), progress=progress):
            scores.update(decisions.decide(decisions.probabilities(logits)).predicted, gold)
        return scores

    def calibrate(
        self,
        data: DataFolder | str | Path | Outputs,
        split: str = "dev",
        *,
        progress: Callable[[int], None] | None = None,
        **options: Any,
    ) -> Calibrated:
        """Tune :attr:`decisions` on documents that the model was not trained on; return the new ones with a report.

        To keep them, call :meth:`save_pretrained` or ``decisions.write(folder)``.

        Args:
            data: a data folder, or this model's outputs for documents.
            split: the split of the folder; a random sample if it is large.
            progress: called with the number of documents computed since the last call.
            options: see :func:`hgclr.decisions.tuning.calibrate`.
        """
        if not isinstance(data, Outputs):
            limit = max(1, ENTRIES // len(self.taxonomy))
            data = self.outputs(sampled(self._folder(data), split, limit), progress=progress)
        # Decisions tuned earlier, perhaps on the same documents, would look too good as the baseline.
        today = Decisions(self.taxonomy) if self.decisions.provenance else self.decisions
        found = calibrate(data, today, **options)
        self.decisions = found.decisions
        return found

    def explain(self, text: str, **options: Any) -> Explanation:
        """Return the words of a text that carry its labels; see :func:`hgclr.evaluation.explanation.explain`."""
        from hgclr.evaluation.explanation import explain

        return explain(self, text, **options)

    def outputs(
        self, documents: Iterable[LabelledDocument], *, progress: Callable[[int], None] | None = None
    ) -> Outputs:
        """Return the logits and gold labels of one or more documents."""
        scored = self.scored_windows(documents, progress=progress)
        return Outputs.joined([Outputs(logits, gold) for _, logits, gold in scored])

    def scored_windows(
        self, documents: Iterable[AnyLabelled], *, progress: Callable[[int], None] | None = None
    ) -> Iterator[tuple[list[AnyLabelled], NDArray[np.float32], NDArray[np.bool_]]]:
        """Yield windows of documents with their logits and gold labels, (n, K)."""
        for window in windows(documents, self.window):
            gold = gold_rows(window, len(self.taxonomy))
            yield window, self._compute([document.text for document in window])[0], gold
            if progress is not None:
                progress(len(window))

    def _folder(self, data: DataFolder | str | Path) -> DataFolder:
        return data if isinstance(data, DataFolder) else DataFolder(Path(data), taxonomy=self.taxonomy)

    def tokenise(self, texts: Sequence[str]) -> list[TokenisedText]:
        """Return the tokens of texts that :func:`~hgclr.data.readers.check_text` has accepted."""
        tokenised = []
        for text, encoding in zip(texts, self.encode(texts), strict=True):
            ids, note = encoding.ids, BLANK.note if is_blank(text) else None
            # overflowing is slow, so ask for it only at the limit.
            truncated = note is None and len(ids) >= self.max_length and bool(encoding.overflowing)
            if note is None and self._is_unlike(ids):
                note = UNLIKE
            tokenised.append(TokenisedText(ids, truncated, note))
        return tokenised

    def _is_unlike(self, ids: list[int]) -> bool:
        """Return whether a text has far more unknown and split words than the training texts."""
        if self._split_words is None:
            return False
        odd = sum(map(self._split_tokens.__getitem__, ids))
        return self._split_words.is_unlike(odd, len(ids) - self._special_tokens)

    def predict_batch(
        self, batch: Sequence[TokenisedText], decisions: Decisions | Sequence[Decisions] | None = None
    ) -> tuple[list[Prediction], NDArray[np.float32]]:
        """Return the predictions for one batch of texts, and the probability of every label, (B, K).

        The decoding rule compares these probabilities with thresholds; those of a blank text are 0.

        Args:
            batch: at least one text; all are padded to the longest.
            decisions: one for all texts, or one for each text.
        """
        logits = self.batch_logits([text.ids for text in batch])
        own = decisions or self.decisions
        each = [own] * len(batch) if isinstance(own, Decisions) else list(own)
        predictions: list[Prediction] = [BLANK] * len(batch)
        probabilities = np.zeros_like(logits)
        for group in {id(one): one for one in each}.values():
            rows = [row for row, one in enumerate(each) if one is group]
            decided, probabilities[rows] = self._decide(logits[rows], [batch[row] for row in rows], group)
            for row, prediction in zip(rows, decided, strict=True):
                predictions[row] = prediction
        return predictions, probabilities

    def batch_logits(self, batch: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Return the logits, (B, K), of texts given as token ids, padded to the longest.

        Raises:
            InputError: if a logit is NaN, which would otherwise look like a label below its threshold.
        """
        logits = self.backend.logits(*pad(batch, self.pad_token))
        if np.isnan(logits).any():
            raise InputError(
                "the model computes NaN: its weights are damaged, or its training diverged",
                remedy="copy the model again, or train it again with a lower training.learning_rate",
            )
        return logits

    def _decide(
        self, logits: NDArray[np.float32], texts: Sequence[TokenisedText], decisions: Decisions
    ) -> tuple[list[Prediction], NDArray[np.float32]]:
        probabilities = decisions.probabilities(logits)
        probabilities[[row for row, text in enumerate(texts) if text.note == BLANK.note]] = 0
        decided = decisions.decide(probabilities)
        rows = zip(decided.probabilities, decided.predicted, decided.abstained, texts, strict=True)
        predictions = [
            BLANK
            if text.note == BLANK.note
            else Prediction(self._labels(seen, given), self._labels(seen, abstained), text.truncated, text.note)
            for seen, given, abstained, text in rows
        ]
        return predictions, decided.probabilities

    def _labels(self, probabilities: NDArray[np.float32], chosen: NDArray[np.bool_]) -> tuple[PredictedLabel, ...]:
        """Return the chosen labels of one text, main parents first and siblings by name."""
        labels = np.flatnonzero(chosen)
        pairs = zip(labels.tolist(), probabilities[labels].tolist(), strict=True)
        found = [PredictedLabel.of(self.taxonomy, label, probability) for label, probability in pairs]
        return tuple(sorted(found, key=lambda label: label.path))

    def predict_proba(self, texts: str | Sequence[str]) -> NDArray[np.float32]:
        """Return the probability of every label for one text, (K,), or for each of several, (N, K).

        Labels are in the taxonomy's order. For an empty or blank text all are 0.
        """
        blocks = list(self.probabilities(texts))
        if isinstance(texts, str):
            row: NDArray[np.float32] = blocks[0][0]
            return row
        return np.concatenate(blocks) if blocks else np.zeros((0, len(self.taxonomy)), dtype=np.float32)

    def probabilities(self, texts: Iterable[str]) -> Iterator[NDArray[np.float32]]:
        """Yield probabilities, (n, K), of consecutive windows of texts, calibrated if the model is."""
        for window in windows(_several(texts), self.window):
            logits, read = self._compute(window)
            probabilities = self.decisions.probabilities(logits)
            probabilities[[row for row, text in enumerate(read) if text.note == BLANK.note]] = 0
            yield probabilities

    def logits(self, texts: Iterable[str]) -> Iterator[NDArray[np.float32]]:
        """Yield logits, (n, K), of consecutive windows of texts, blank ones included."""
        for window in windows(_several(texts), self.window):
            yield self._compute(window)[0]

    def vectors(self, texts: Iterable[str]) -> Iterator[NDArray[np.float32]]:
        """Yield the encoder's vectors, (n, H), of consecutive windows of texts.

        Raises:
            InputError: if the model is an ONNX export, which returns only logits.
        """
        if not isinstance(self.backend, TorchBackend):
            raise InputError("an ONNX model returns no vectors", remedy="give the model that it was exported from")
        backend, width = self.backend, self.backend.model.config.text_encoder.hidden_size

        def run(batch: Sequence[Sequence[int]]) -> NDArray[np.float32]:
            return backend.vectors(*pad(batch, self.pad_token))

        for window in windows(_several(texts), self.window):
            yield self._compute(window, run, width)[0]

    def _compute(
        self,
        window: Sequence[str],
        run: Callable[[Sequence[Sequence[int]]], NDArray[np.float32]] | None = None,
        width: int | None = None,
    ) -> tuple[NDArray[np.float32], list[TokenisedText]]:
        """Return the logits of a window of texts, (n, K), and the texts, without their tokens to save memory.

        ``run`` computes other rows, (B, width), from the tokens of a batch. Texts are sorted by characters and
        tokenised in pieces, so that tokenising overlaps with computing.
        """
        for text in window:
            check_text(text)
        pieces = list(windows(longest_first([len(text) for text in window]), self.PIECE))
        run = run or self.batch_logits
        computed = np.empty((len(window), width or len(self.taxonomy)), dtype=np.float32)
        read = [TokenisedText([], False, None)] * len(window)

        def tokenise(rows: list[int]) -> list[TokenisedText]:
            return self.tokenise([window[row] for row in rows])

        remedy = "free memory, or copy the model again: its configuration, tokenizer and weights may not fit together"
        with refuse_broken("the model cannot compute logits", remedy=remedy):
            for rows, texts in zip(pieces, one_ahead(tokenise, pieces), strict=True):
                for row, tokenised in zip(rows, texts, strict=True):
                    read[row] = tokenised._replace(ids=[])
                lengths = [len(tokenised.ids) for tokenised in texts]
                for batch in batches_by_length(lengths, self.backend.batch_tokens):
                    computed[[rows[place] for place in batch]] = run([texts[place].ids for place in batch])
        return computed, read

    @property
    def window(self) -> int:
        """Texts in memory at a time."""
        return max(1, min(self.WINDOW, self.DECISIONS // len(self.taxonomy)))

    def encode(self, texts: Sequence[str], *, offsets: bool = False) -> list[Encoding]:
        """Return the tokens of texts that the model reads, on request with their ``offsets`` in the text."""
        encode = self.tokenizer.encode_batch if offsets else self.tokenizer.encode_batch_fast
        encodings: list[Encoding] = encode(list(texts))
        if self._cut_length is not None:
            for encoding in encodings:
                encoding.truncate(self._cut_length)
        return encodings


def _several(texts: Iterable[str]) -> Iterable[str]:
    """Return one text as a list: iterating over it would yield its characters."""
    return [texts] if isinstance(texts, str) else texts


def gold_rows(documents: Sequence[LabelledDocument], labels: int) -> NDArray[np.bool_]:
    """Return the gold labels of documents, (n, K)."""
    gold = np.zeros((len(documents), labels), dtype=np.bool_)
    for row, document in enumerate(documents):
        gold[row, list(document.labels)] = True
    return gold


def sampled(folder: DataFolder, split: str, limit: int | None, seed: int = 0) -> Iterator[Document]:
    """Return the documents of a split in order, or a random sample if there are more than ``limit``."""
    if limit is None:
        return folder.documents(split)
    count = sum(1 for _ in folder.documents(split))
    if count > limit:
        logger.warning("using a random sample of %d of the %d documents in %s", limit, count, split)
    return sample_documents(folder, split, (limit, seed))
