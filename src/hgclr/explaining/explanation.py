"""An explanation: for each label of a text the words that carry it, and what the model says of those words alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hgclr.explaining.words import Word
from hgclr.inference import PredictedLabel

__all__ = ["METHODS", "ExplainedLabel", "Explanation", "Stability", "Status", "counted"]

Status = Literal["given", "doubtful", "not given"]
METHODS = {
    "integrated": "integrated gradients: gradient × input, averaged on the way from a text without words;"
    " how much of the label's logit each word brings",
    "gradient": "gradient × input: how the label's logit changes with each word's embedding, to first order",
    "occlusion": "occlusion: how much the label's logit falls when the word is left out",
    "attention": "token-label attention of the training model: how probably the word is sampled for the label",
}
"""What the relevance of each method is, in words."""


@dataclass(frozen=True, slots=True)
class ExplainedLabel:
    """A label and the words that speak for it and against it.

    Args:
        label: id, path, and the probability with the whole text.
        status: whether the text is given the label; doubtful, if it is left out for doubt.
        relevance: how much each word speaks for the label, W numbers; what they mean depends on the method.
        kept: the words with the largest of them, by index, in the order of the text.
        only_kept: the label's probability if these words are all of the text.
        only_random: the same for as many words drawn at random, the mean of several draws.
        without_kept: its probability if the text is all but these words.
    """

    label: PredictedLabel
    status: Status
    relevance: tuple[float, ...]
    kept: tuple[int, ...]
    only_kept: float
    only_random: float
    without_kept: float

    @property
    def sufficiency(self) -> float:
        """What the probability loses if only the kept words are given: the lower, the better the explanation."""
        return self.label.probability - self.only_kept

    @property
    def comprehensiveness(self) -> float:
        """What the probability loses without the kept words: the higher, the better the explanation."""
        return self.label.probability - self.without_kept

    def to_json(self) -> dict[str, Any]:
        """Return everything in plain Python types."""
        return {
            **self.label.to_json(),
            "status": self.status,
            "relevance": [float(f"{value:.4g}") for value in self.relevance],
            "kept": list(self.kept),
            "probability_only_kept": round(self.only_kept, 4),
            "probability_only_random": round(self.only_random, 4),
            "probability_without_kept": round(self.without_kept, 4),
            "sufficiency": round(self.sufficiency, 4),
            "comprehensiveness": round(self.comprehensiveness, 4),
        }


@dataclass(frozen=True, slots=True)
class Stability:
    """What the text is given if it has only the words that matter most for all explained labels together.

    Args:
        kept: these words, by index, in the order of the text.
        lost: labels that the whole text is given and these words are not.
        gained: labels that these words are given and the whole text is not.
    """

    kept: tuple[int, ...]
    lost: tuple[PredictedLabel, ...]
    gained: tuple[PredictedLabel, ...]

    @property
    def same(self) -> bool:
        """Whether the labels are the same."""
        return not self.lost and not self.gained

    def to_json(self) -> dict[str, Any]:
        """Return everything in plain Python types; probabilities are those with the kept words only."""
        return {
            "same_labels": self.same,
            "kept": list(self.kept),
            "lost": [label.to_json() for label in self.lost],
            "gained": [label.to_json() for label in self.gained],
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a text has its labels.

    Args:
        text: the text.
        method: how relevance was found: integrated, gradient, occlusion or attention.
        neutral: the relevance of a word that says nothing of a label.
        words: the words that the model reads.
        unread: how many more there are, which it does not read.
        labels: what is explained, parents before their children.
        unexplained: how many less probable labels the text is given that are left out here.
        keep: the share of the words that are kept to see whether they would do.
        stability: what the text is given with the words that matter most.
    """

    text: str
    method: str
    neutral: float
    words: tuple[Word, ...]
    unread: int
    labels: tuple[ExplainedLabel, ...]
    unexplained: int
    keep: float
    stability: Stability

    def word(self, index: int) -> str:
        """Return a word as it stands in the text."""
        return self.text[self.words[index].start : self.words[index].stop]

    def number(self, relevance: float) -> str:
        """Return a relevance in writing: a part of a logit with its sign, or else a probability."""
        return f"{100 * relevance:.3g}%" if self.neutral else f"{relevance:+.2f}"

    def chance(self, label: ExplainedLabel, levels: int) -> str:
        """Say what relevance a word has by chance, where that is not 0, and whether no word has much more or less."""
        if not self.neutral:
            return ""
        far = any(self.shades(label, levels))
        return self.number(self.neutral) + ("" if far else ", and no word is far from it")

    def strongest(self, label: ExplainedLabel, count: int) -> tuple[list[int], list[int]]:
        """Return the words, by index, that speak most for a label and those that speak most against it."""
        order = sorted(range(len(self.words)), key=lambda index: -label.relevance[index])
        speaks_for = [index for index in order if label.relevance[index] > self.neutral]
        against = [index for index in reversed(order) if label.relevance[index] < self.neutral]
        return speaks_for[:count], against[:count]

    def shades(self, label: ExplainedLabel, levels: int) -> list[int]:
        """Return for each word how strongly to mark it: from -levels, against the label, over 0 to levels, for it.

        The strongest word has the deepest shade. Where :attr:`neutral` is not 0 (attention) the scale reaches at least
        twice that: values that hardly differ from chance stay without a mark.
        """
        values = np.asarray(label.relevance) - self.neutral
        scale = max(float(np.abs(values).max()), self.neutral)
        if scale == 0:
            return [0] * len(values)
        # Half a level and more is rounded up, so that marks begin at 1 / (2 levels) of the strongest.
        shades: Sequence[int] = np.trunc(values / scale * levels + np.copysign(0.5, values)).astype(int).tolist()
        return list(shades)

    def to_json(self) -> dict[str, Any]:
        """Return everything in plain Python types; words are places in the text, counted in code points."""
        return {
            "text": self.text,
            "method": self.method,
            "neutral": self.neutral,
            "words": [
                {"word": self.word(index), "start": word.start, "stop": word.stop}
                for index, word in enumerate(self.words)
            ],
            "words_not_read": self.unread,
            "labels": [label.to_json() for label in self.labels],
            "labels_left_out": self.unexplained,
            "keep": self.keep,
            "stability": self.stability.to_json(),
        }


def counted(number: int, noun: str) -> str:
    """Return a number of things in writing, such as "1 word" and "2 words"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
