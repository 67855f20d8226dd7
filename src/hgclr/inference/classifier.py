"""Classify texts with a trained model: encoder, head and label tree, nothing of the training stack."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from hgclr.errors import InputError
from hgclr.inference.backends import Backend
from hgclr.inference.batches import batches_by_length, longest_first, one_ahead, pad, windows
from hgclr.inference.loading import load
from hgclr.inference.predictions import PredictedLabel, Prediction, PredictionMaker
from hgclr.taxonomy import Taxonomy

__all__ = ["Decoding", "HierarchicalClassifier", "PredictedLabel", "Prediction", "check_text", "sigmoid"]

Decoding = Literal["threshold", "closure"]
Floats = TypeVar("Floats", bound=np.floating)


class HierarchicalClassifier:
    """Give texts labels from a tree.

    Example:
        >>> classifier = HierarchicalClassifier.from_pretrained("runs/first/model")  # doctest: +SKIP
        >>> for label in classifier.predict(["a broken wrist"])[0].labels:  # doctest: +SKIP
        ...     print(label.path, label.probability)

    Args:
        backend: computes logits.
        tokenizer: of the encoder; a truncation or padding set in it is not obeyed.
        taxonomy: the label tree, in the order of the logits.
        pad_token: id of the padding token.
        max_length: tokens of a text that are read.
        threshold: probability above which a label is predicted, unless told otherwise.
    """

    WINDOW = 2048
    """Texts in memory at a time when predicting from a stream, fewer where :attr:`DECISIONS` says so."""
    DECISIONS = 2**24
    """Texts times labels in memory at a time."""
    PIECE = 512
    """Texts of a window that are tokenised together, while the backend computes those before."""

    def __init__(
        self,
        backend: Backend,
        tokenizer: Tokenizer,
        taxonomy: Taxonomy,
        *,
        pad_token: int,
        max_length: int,
        threshold: float = 0.5,
    ) -> None:
        self.backend, self.taxonomy, self.pad_token, self.threshold = backend, taxonomy, pad_token, threshold
        self._tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_length)
        self._make = PredictionMaker(taxonomy)

    @classmethod
    def from_pretrained(cls, model: str | Path, *, device: str | None = None) -> HierarchicalClassifier:
        """Load what training left in its folder ``model``, an ONNX folder that ``hgclr export`` wrote, or a hub name.

        Args:
            model: the folder or the name.
            device: where torch runs, such as ``cpu`` or ``cuda``; by default an accelerator where there is one.

        Raises:
            InputError: if there is no model or no tokenizer, or something is wrong with them.
            MissingExtraError: if what the model runs on, torch or onnxruntime, is not installed.
        """
        loaded = load(model, device)
        return cls(
            loaded.backend,
            loaded.tokenizer,
            loaded.taxonomy,
            pad_token=loaded.pad_token,
            max_length=loaded.max_length,
            threshold=loaded.threshold,
        )

    def predict(
        self, texts: Sequence[str], *, threshold: float | None = None, decode: Decoding = "threshold"
    ) -> list[Prediction]:
        """Return the labels of each text.

        Args:
            texts: any number of texts.
            threshold: probability above which a label is given; by default the model's own.
            decode: ``threshold`` decides on each label by itself; ``closure`` adds the ancestors of every label given,
                so that no child stands without its parent.
        """
        return list(self.stream(texts, threshold=threshold, decode=decode))

    def stream(
        self, texts: Iterable[str], *, threshold: float | None = None, decode: Decoding = "threshold"
    ) -> Iterator[Prediction]:
        """Yield the labels of each text in order, reading a window at a time: memory stays flat on any input."""
        for probabilities in self.probabilities(texts):
            chosen = self.decide(probabilities, threshold=threshold, decode=decode)
            yield from map(self._make, probabilities, chosen)

    def predict_proba(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the probability of every label for every text, (N, K), labels in the taxonomy's order."""
        blocks = list(self.probabilities(texts))
        return np.concatenate(blocks) if blocks else np.zeros((0, len(self.taxonomy)), dtype=np.float32)

    def probabilities(self, texts: Iterable[str]) -> Iterator[NDArray[np.float32]]:
        """Yield probabilities, (n, K), for consecutive windows of the texts.

        The texts are taken in the caller's thread, because what reads them may belong to it (a database cursor does),
        and a window only when it is asked for. Within a window tokenising overlaps with computing: the number of
        characters tells well enough which texts belong together, so that they can be tokenised piece by piece.
        """
        for window in windows(texts, self.window):
            for text in window:
                check_text(text)
            order = longest_first([len(text) for text in window])
            pieces = [[(row, window[row]) for row in rows] for rows in windows(order, self.PIECE)]
            logits = np.empty((len(window), len(self.taxonomy)), dtype=np.float32)
            for batches in one_ahead(self._batches, pieces):
                for rows, ids, mask in batches:
                    logits[rows] = self.backend.logits(ids, mask)
            yield sigmoid(logits)

    def decide(
        self,
        probabilities: NDArray[np.float32],
        *,
        threshold: float | None = None,
        decode: Decoding = "threshold",
    ) -> NDArray[np.bool_]:
        """Return which labels are given, bool (N, K), from probabilities, (N, K)."""
        chosen = probabilities > (self.threshold if threshold is None else threshold)
        if decode == "closure":
            return self.taxonomy.close(chosen)
        if decode != "threshold":
            raise InputError(f"unknown decoding rule {decode!r}", remedy="choose threshold or closure")
        return chosen

    @property
    def window(self) -> int:
        """Texts in memory at a time."""
        return max(1, min(self.WINDOW, self.DECISIONS // len(self.taxonomy)))

    def _batches(self, piece: list[tuple[int, str]]) -> list[tuple[list[int], NDArray[np.int64], NDArray[np.int64]]]:
        """Return batches of rows, token ids and mask from texts with their rows."""
        encoded = [encoding.ids for encoding in self._tokenizer.encode_batch_fast([text for _, text in piece])]
        return [
            ([piece[place][0] for place in batch], *pad([encoded[place] for place in batch], self.pad_token))
            for batch in batches_by_length([len(ids) for ids in encoded], self.backend.batch_tokens)
        ]


def check_text(text: object) -> None:
    """Refuse what the tokenizer cannot take.

    Raises:
        InputError: if it is no string, or holds half of a surrogate pair, which JSON can spell and UTF-8 cannot.
    """
    if not isinstance(text, str):
        raise InputError(f"expected a text, got {type(text).__name__} {text!r:.80}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"not UTF-8: the text has a lone surrogate at character {error.start + 1}") from None


def sigmoid(logits: NDArray[Floats]) -> NDArray[Floats]:
    """Return probabilities in the place of logits: a window of them may be large."""
    np.negative(logits, out=logits)
    np.minimum(logits, 88, out=logits)  # exp(89) is no float32; 1 / (1 + exp(88)) is as good as 0
    np.exp(logits, out=logits)
    logits += 1
    np.reciprocal(logits, out=logits)
    return logits
