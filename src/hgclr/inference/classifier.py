"""Classify texts with a trained model: encoder, head and label tree, nothing of the training stack."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from hgclr.errors import InputError
from hgclr.inference.backends import Backend, TorchBackend
from hgclr.inference.batches import batches_by_length, pad, windows
from hgclr.taxonomy import Taxonomy

__all__ = ["Decoding", "HierarchicalClassifier", "PredictedLabel", "Prediction"]

Decoding = Literal["threshold", "closure"]


@dataclass(frozen=True, slots=True)
class PredictedLabel:
    """One label of a text: its id, the names from the top down to it, and how probable the model finds it."""

    id: str
    path: tuple[str, ...]
    probability: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """The labels of one text, parents before their children."""

    labels: tuple[PredictedLabel, ...]

    def to_json(self) -> list[dict[str, Any]]:
        """Return the labels in plain Python types."""
        return [
            {"id": label.id, "path": list(label.path), "probability": round(label.probability, 4)}
            for label in self.labels
        ]


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
    """Texts in memory at a time when predicting from a stream."""
    TOKENS = 8192
    """Tokens in a batch, padding included."""

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
        self._paths = [tuple(taxonomy.names[node] for node in taxonomy.path(i)) for i in range(len(taxonomy))]

    @classmethod
    def from_pretrained(cls, model: str | Path, *, device: str | None = None) -> HierarchicalClassifier:
        """Load what training left in its folder ``model``, or a hub name.

        Raises:
            InputError: if there is no model or no tokenizer.
        """
        backend = TorchBackend(model, device)
        config = backend.model.config
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(model)
        except (OSError, ValueError) as error:
            raise InputError(f"no tokenizer could be loaded from {model}: {error}") from error
        return cls(
            backend,
            tokenizer.backend_tokenizer,
            config.taxonomy,
            pad_token=tokenizer.pad_token_id,
            max_length=config.max_length,
            threshold=config.threshold,
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
            for row, given in zip(probabilities, chosen, strict=True):
                yield self._prediction(row, np.flatnonzero(given))

    def predict_proba(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the probability of every label for every text, (N, K), labels in the taxonomy's order."""
        blocks = list(self.probabilities(texts))
        return np.concatenate(blocks) if blocks else np.zeros((0, len(self.taxonomy)), dtype=np.float32)

    def probabilities(self, texts: Iterable[str]) -> Iterator[NDArray[np.float32]]:
        """Yield probabilities, (n, K), for consecutive windows of the texts."""
        for window in windows(texts, self.WINDOW):
            for text in window:
                if not isinstance(text, str):
                    raise InputError(f"expected a text, got {type(text).__name__} {text!r:.80}")
            encoded = [encoding.ids for encoding in self._tokenizer.encode_batch_fast(window)]
            logits = np.empty((len(window), len(self.taxonomy)), dtype=np.float32)
            for batch in batches_by_length([len(ids) for ids in encoded], self.TOKENS):
                logits[batch] = self.backend.logits(*pad([encoded[index] for index in batch], self.pad_token))
            yield (1 / (1 + np.exp(-logits.astype(np.float64)))).astype(np.float32)

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

    def _prediction(self, probabilities: NDArray[np.float32], labels: NDArray[np.int64]) -> Prediction:
        """Return the given labels in the order of the tree: sorted by path, so that parents come first."""
        ordered = sorted(labels.tolist(), key=lambda label: self._paths[label])
        return Prediction(
            tuple(
                PredictedLabel(self.taxonomy.ids[label], self._paths[label], float(probabilities[label]))
                for label in ordered
            )
        )
