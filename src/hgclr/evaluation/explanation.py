"""Explanations: for each label of a text the words that carry it, and what the model says of those words alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hgclr.decisions.settings import Decided, Decisions
from hgclr.errors import InputError
from hgclr.evaluation.relevance import AttentionRelevance, Method, Word, choose_relevance, logits_of, read_text
from hgclr.inference import HierarchicalClassifier, PredictedLabel
from hgclr.presentation import render_page

Status = Literal["given", "abstained", "not given"]
MOST_LABELS = 12
"""Labels that are explained if nobody says which: each costs as much as some readings of the text."""
RANDOM_DRAWS = 10
"""Draws of random words that the words of a label are compared with."""
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
        status: whether the text is given the label; abstained, if it is left out for doubt.
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


def explain(
    classifier: HierarchicalClassifier,
    text: str,
    *,
    method: Method | AttentionRelevance = "auto",
    labels: Iterable[str] | None = None,
    keep: float = 0.3,
    decisions: Decisions | None = None,
    before_pass: Callable[[], None] = lambda: None,
) -> Explanation:
    """Tell which words of a text carry its labels, and whether those words alone would do.

    Args:
        classifier: the model; nothing in it is changed.
        text: the text.
        method: ``integrated`` and ``gradient`` need a model in torch (:class:`GradientRelevance`), ``occlusion`` takes
            any (:class:`OcclusionRelevance`); ``auto``: the first if the model allows it, else the last. The attention
            of a training model: an :class:`AttentionRelevance`.
        labels: ids, names or paths of the labels to explain, whether the text is given them or not. By default those
            that it is given or only for doubt is not, the most probable :data:`MOST_LABELS`; if there is none, the most
            probable label.
        keep: share of the words that are kept to see whether they would do, at least one.
        decisions: how to decide; by default as the model does.
        before_pass: called before each pass through the model; what it raises ends the work.

    Raises:
        InputError: if the text has no words, there is no such label, a number is out of range, or the method does not
            fit the model.

    Example:
        >>> explanation = explain(classifier, "a broken wrist")  # doctest: +SKIP
        >>> best, _ = explanation.strongest(explanation.labels[0], 1)  # doctest: +SKIP
        >>> explanation.word(best[0])  # doctest: +SKIP
        'wrist'
    """
    if not 0 < keep <= 1:
        raise InputError(f"the share of words to keep is {keep}", remedy="give a share above 0, up to 1")
    taxonomy, deciding = classifier.taxonomy, decisions or classifier.decisions

    def decide(texts: Sequence[Sequence[int]]) -> Decided:
        return deciding.decide(deciding.probabilities(logits_of(classifier, texts, before_pass=before_pass)))

    def shown(label: int, probabilities: NDArray[np.float32]) -> PredictedLabel:
        return PredictedLabel(taxonomy.ids[label], taxonomy.path_names(label), float(probabilities[label]))

    relevance_of = choose_relevance(classifier, method, before_pass)
    read = read_text(classifier, text)
    whole = decide([read.ids.tolist()])
    found = _found(whole) if labels is None else [taxonomy.resolve(label) for label in labels]
    chosen = found[:MOST_LABELS] if labels is None else found
    chosen = sorted(set(chosen), key=taxonomy.path_names)
    if not chosen:
        raise InputError("no labels are given to explain", remedy="give some, or leave them out")
    relevance = relevance_of(read, chosen)  # (n, W)
    # What is kept for all labels together goes by the sum, as the tokens of a positive sample do (paper, Eq. 9).
    kept = np.stack([_strongest(row, keep) for row in (*relevance, relevance.sum(0))])  # (n + 1, W)
    again = decide([read.only(words) for words in _variants(kept)])
    only, without, random = np.split(again.probabilities, (len(kept), 2 * len(kept) - 1))
    explained = tuple(
        ExplainedLabel(
            shown(label, whole.probabilities[0]),
            _status(whole, label),
            tuple(relevance[row].tolist()),
            _indices(kept[row]),
            only_kept=float(only[row, label]),
            only_random=float(random[:, label].mean()),
            without_kept=float(without[row, label]),
        )
        for row, label in enumerate(chosen)
    )
    before, after = whole.predicted[0], again.predicted[len(chosen)]
    lost, gained = (
        tuple(sorted((shown(label, only[-1]) for label in np.flatnonzero(changed).tolist()), key=lambda one: one.path))
        for changed in (before & ~after, after & ~before)
    )
    return Explanation(
        text=text,
        method=relevance_of.name,
        neutral=relevance_of.neutral,
        words=read.words,
        unread=read.unread,
        labels=explained,
        unexplained=len(found) - len(chosen) if labels is None else 0,
        keep=keep,
        stability=Stability(_indices(kept[-1]), lost, gained),
    )


def _found(whole: Decided) -> list[int]:
    """Return the labels to explain where nobody has said which, the most probable first."""
    order = np.argsort(-whole.probabilities[0], kind="stable")
    found: list[int] = order[(whole.predicted[0] | whole.abstained[0])[order]].tolist()
    return found or [int(order[0])]


def _strongest(relevance: NDArray[np.float64], keep: float) -> NDArray[np.bool_]:
    """Return which words have the largest values, (W,); of equal ones the first."""
    count = ceil(round(keep * len(relevance), 9))  # 0.55 * 100 is a little more than 55
    strongest = np.zeros(len(relevance), dtype=np.bool_)
    strongest[np.argsort(-relevance, kind="stable")[:count]] = True
    return strongest


def _variants(kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the texts to read again as rows of words: kept ones only, all but those of each label, random ones."""
    random = np.random.default_rng(0)
    as_many = np.sort(kept[0])  # every row keeps so many; sorted, the draws are the same whatever the method
    draws = [random.permutation(as_many) for _ in range(RANDOM_DRAWS)]
    return np.concatenate([kept, ~kept[:-1], draws])


def _status(whole: Decided, label: int) -> Status:
    if whole.predicted[0, label]:
        return "given"
    return "abstained" if whole.abstained[0, label] else "not given"


def _indices(words: NDArray[np.bool_]) -> tuple[int, ...]:
    found: list[int] = np.flatnonzero(words).tolist()
    return tuple(found)


def explanation_page(explanations: Sequence[Explanation], *, model: str) -> str:
    """Return explanations, at least one, as one HTML page without a script: choose a label to see its words."""
    return render_page(
        "evaluation/templates/explanation.html",
        explanations=explanations,
        model=model,
        methods=[METHODS[method] for method in dict.fromkeys(each.method for each in explanations)],
        most_labels=max(len(explanation.labels) for explanation in explanations),
        counted=counted,
        levels=4,  # of marks, as explanation.css has them
        listed_words=5,
        excerpt=60,  # characters of a text that are its heading
    )
