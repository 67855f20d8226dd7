"""Explanations: the words that carry each label of a text, and the model's answer for those words alone."""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from hgclr.data.readers import check_text
from hgclr.decisions.settings import Decided, Decisions
from hgclr.errors import InputError
from hgclr.inference.backends import TorchBackend, batches_by_length
from hgclr.inference.classifier import PredictedLabel
from hgclr.presentation import render_page

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hgclr.inference import HierarchicalClassifier

Status = Literal["predicted", "abstained", "not predicted"]
Method = Literal["auto", "integrated", "occlusion"]
METHODS = {
    "integrated": "integrated gradients: how much of the label's logit each word brings",
    "occlusion": "occlusion: how much the label's logit falls when the word is left out",
}
"""The meaning of a word's relevance by method."""
MOST_LABELS = 12
"""Labels that are explained by default: each costs as much as several readings of the text."""
RANDOM_DRAWS = 10
"""Draws of random words that the words of a label are compared with."""
STEPS = 16
"""Steps of the integral. Its parts then sum up to the difference of logits within 1 % in the median, within 13 % at
worst (40 texts of ICD-10-CM and CLINC150); 8 steps miss it by 6 to 11 %."""
APOSTROPHES = "'’"
# Scripts whose words have no space between them, as first and last character; there, each token is a word.
WITHOUT_SPACES = (
    ("\u0e00", "\u0fff"),  # Thai, Lao, Tibetan
    ("\u1000", "\u109f"),  # Burmese
    ("\u1780", "\u17ff"),  # Khmer
    ("\u3040", "\u30ff"),  # Hiragana, Katakana
    ("\u3400", "\u9fff"),  # Han
    ("\uf900", "\ufaff"),
    ("\U00020000", "\U000323af"),
)


@dataclass(frozen=True, slots=True)
class Word:
    """Characters of a text: the first, and the one after the last."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class ExplainedLabel:
    """A label and the words that speak for it and against it.

    Args:
        label: id, path, and the probability with the whole text.
        status: whether the label is predicted for the text; ``abstained`` if it is held back as unsure.
        relevance: how much each word speaks for the label, W numbers, parts of its logit.
        kept: the words with the largest relevance, by index, in the order of the text.
        only_kept: the label's probability with these words only.
        only_random: the same for as many random words, the mean of several draws.
        without_kept: its probability with all but these words.
    """

    label: PredictedLabel
    status: Status
    relevance: tuple[float, ...]
    kept: tuple[int, ...]
    only_kept: float
    only_random: float
    without_kept: float

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
            "sufficiency": round(self.label.probability - self.only_kept, 4),
            "comprehensiveness": round(self.label.probability - self.without_kept, 4),
        }


@dataclass(frozen=True, slots=True)
class Stability:
    """The change of the labels if the text is cut to the words that matter most for all explained labels together.

    Args:
        kept: these words, by index, in the order of the text.
        lost: labels that only the whole text gets, with their probability for these words.
        gained: labels that only these words get.
    """

    kept: tuple[int, ...]
    lost: tuple[PredictedLabel, ...]
    gained: tuple[PredictedLabel, ...]

    @property
    def same(self) -> bool:
        return not self.lost and not self.gained


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reasons for the labels of a text.

    Args:
        text: the text.
        method: how relevance was found, ``integrated`` or ``occlusion``.
        words: the words that the model reads.
        unread: number of words after these, which it does not read.
        labels: the explained labels, parents before their children.
        unexplained: number of less probable labels of the text that are not explained.
        keep: share of the words that are kept.
        stability: the labels with the words that matter most.
    """

    text: str
    method: str
    words: tuple[Word, ...]
    unread: int
    labels: tuple[ExplainedLabel, ...]
    unexplained: int
    keep: float
    stability: Stability

    def word(self, index: int) -> str:
        """Return a word as it is written in the text."""
        return self.text[self.words[index].start : self.words[index].stop]

    def strongest(self, label: ExplainedLabel, count: int) -> tuple[list[int], list[int]]:
        """Return the words, by index, that speak most for a label and those that speak most against it."""
        order = sorted(range(len(self.words)), key=lambda index: -label.relevance[index])
        speaks_for = [index for index in order if label.relevance[index] > 0]
        against = [index for index in reversed(order) if label.relevance[index] < 0]
        return speaks_for[:count], against[:count]

    def shades(self, label: ExplainedLabel, levels: int) -> list[int]:
        """Return for each word how strongly to mark it: from -levels, against the label, to levels, for it.

        The strongest word has the deepest shade; marks begin at 1 / (2 levels) of it.
        """
        values = np.asarray(label.relevance)
        scale = float(np.abs(values).max()) or 1.0
        shades: list[int] = np.trunc(values / scale * levels + np.copysign(0.5, values)).astype(int).tolist()
        return shades

    def to_json(self) -> dict[str, Any]:
        """Return everything in plain Python types; words are places in the text, counted in code points."""
        stability = self.stability
        return {
            "text": self.text,
            "method": self.method,
            "words": [
                {"word": self.word(index), "start": word.start, "stop": word.stop}
                for index, word in enumerate(self.words)
            ],
            "words_not_read": self.unread,
            "labels": [label.to_json() for label in self.labels],
            "labels_left_out": self.unexplained,
            "keep": self.keep,
            "stability": {
                "same_labels": stability.same,
                "kept": list(stability.kept),
                "lost": [label.to_json() for label in stability.lost],
                "gained": [label.to_json() for label in stability.gained],
            },
        }


def explain(
    classifier: HierarchicalClassifier,
    text: str,
    *,
    method: Method = "auto",
    labels: Iterable[str] | None = None,
    keep: float = 0.3,
    decisions: Decisions | None = None,
    before_pass: Callable[[], None] = lambda: None,
) -> Explanation:
    """Return the words of a text that carry its labels, and whether those words alone get the same labels.

    Args:
        classifier: the model, which is not changed.
        text: the text.
        method: ``integrated`` (:func:`integrated_gradients`) needs a torch model, ``occlusion`` (:func:`occlusion`)
            takes any; ``auto``: the first if the model allows it, else the second.
        labels: ids, names or paths of the labels to explain, predicted or not. By default the predicted and the
            abstained ones, the most probable :data:`MOST_LABELS`; if there is none, the most probable label.
        keep: share of the words to keep, at least one word.
        decisions: by default the model's.
        before_pass: called before each pass through the model; an exception that it raises ends the work.

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
    backend = classifier.backend
    if method == "auto":
        method = "integrated" if isinstance(backend, TorchBackend) else "occlusion"
    if method not in METHODS:
        raise InputError(f"unknown method {method!r}", remedy=f"choose one of auto, {', '.join(METHODS)}")
    if method == "integrated" and not isinstance(backend, TorchBackend):
        raise InputError(
            "an ONNX model has no gradients",
            remedy="choose the method occlusion, or give the model that it was exported from",
        )

    def decide(texts: Sequence[Sequence[int]]) -> Decided:
        return deciding.decide(deciding.probabilities(logits_of(classifier, texts, before_pass)))

    def shown(label: int, probabilities: NDArray[np.float32]) -> PredictedLabel:
        return PredictedLabel.of(taxonomy, label, float(probabilities[label]))

    read = read_text(classifier, text)
    whole = decide([read.ids.tolist()])
    predicted, abstained = whole.predicted[0], whole.abstained[0]
    if labels is None:
        order = np.argsort(-whole.probabilities[0], kind="stable")
        found: list[int] = order[(predicted | abstained)[order]].tolist() or [int(order[0])]
        chosen = found[:MOST_LABELS]
    else:
        chosen = found = [taxonomy.resolve(label) for label in labels]
    unexplained = len(found) - len(chosen)
    chosen = sorted(set(chosen), key=taxonomy.path_names)
    if not chosen:
        raise InputError("no labels are given to explain", remedy="give some, or leave them out")
    find_relevance = integrated_gradients if method == "integrated" else occlusion
    relevance = find_relevance(classifier, read, chosen, before_pass)  # (n, W)
    # The words kept for all labels together have the largest sums, as the tokens of a positive sample (paper, Eq. 9).
    kept = np.zeros((len(chosen) + 1, len(read.words)), dtype=np.bool_)
    count = ceil(round(keep * len(read.words), 9))  # 0.55 * 100 is a little more than 55
    for row, values in enumerate((*relevance, relevance.sum(0))):
        kept[row, np.argsort(-values, kind="stable")[:count]] = True
    # To read again: kept words only, all but those of each label, random ones (the same draws whatever the method).
    random = np.random.default_rng(0)
    draws = [random.permutation(np.sort(kept[0])) for _ in range(RANDOM_DRAWS)]
    again = decide([read.only(words) for words in np.concatenate([kept, ~kept[:-1], draws])])
    only, without, at_random = np.split(again.probabilities, (len(kept), 2 * len(kept) - 1))
    indices: list[list[int]] = [np.flatnonzero(words).tolist() for words in kept]
    explained = tuple(
        ExplainedLabel(
            shown(label, whole.probabilities[0]),
            "predicted" if predicted[label] else "abstained" if abstained[label] else "not predicted",
            tuple(relevance[row].tolist()),
            tuple(indices[row]),
            only_kept=float(only[row, label]),
            only_random=float(at_random[:, label].mean()),
            without_kept=float(without[row, label]),
        )
        for row, label in enumerate(chosen)
    )
    after = again.predicted[len(chosen)]
    lost, gained = (
        tuple(sorted((shown(label, only[-1]) for label in np.flatnonzero(changed).tolist()), key=lambda one: one.path))
        for changed in (predicted & ~after, after & ~predicted)
    )
    stability = Stability(tuple(indices[-1]), lost, gained)
    return Explanation(text, method, read.words, read.unread, explained, unexplained, keep, stability)


@dataclass(frozen=True)
class ReadText:
    """A text and its tokens.

    Args:
        ids: its tokens as the model takes them, special ones included, (L,).
        words: the W words that are read.
        word_of: the index of each token's word, -1 for a special token, (L,).
        spans: the characters of each token, None for a special one, L.
        unread: number of words after the last one that the model reads.
    """

    ids: NDArray[np.int64]
    words: tuple[Word, ...]
    word_of: NDArray[np.int64]
    spans: tuple[tuple[int, int] | None, ...]
    unread: int

    def only(self, words: NDArray[np.bool_]) -> list[int]:
        """Return the token ids of some words, (W,), in their order, between the special tokens.

        Ids are left out, not characters: no word is tokenised again, and none that was not read moves up.
        """
        kept: list[int] = self.ids[np.append(words, True)[self.word_of]].tolist()  # -1, the special tokens, is the last
        return kept


def read_text(classifier: HierarchicalClassifier, text: str) -> ReadText:
    """Return a text as a classifier reads it.

    Raises:
        InputError: if it is not a text, or has no words.
    """

    def spans(encoding: Encoding) -> list[tuple[int, int] | None]:
        pairs = zip(encoding.offsets, encoding.special_tokens_mask, strict=True)
        return [None if special else span for span, special in pairs]

    check_text(text)
    (encoding,) = classifier.encode([text], offsets=True)
    words, word_of = find_words(text, spans(encoding))
    if not words:
        raise InputError(f"the text {text!r:.80} has no words", remedy="give a text with some")
    whole, _ = find_words(text, [span for part in (encoding, *encoding.overflowing) for span in spans(part)])
    return ReadText(
        np.array(encoding.ids, dtype=np.int64),
        tuple(words),
        np.array(word_of, dtype=np.int64),
        tuple(spans(encoding)),
        unread=sum(word.start >= words[-1].stop for word in whole),
    )


def find_words(text: str, spans: Sequence[tuple[int, int] | None]) -> tuple[list[Word], list[int]]:
    """Return the words that tokens make up, and the index of each token's word, -1 for a special token.

    Pieces of a word are one word, and so are tokens that share a character, as the bytes of one do in some tokenizers.
    A punctuation mark is a word. A token without a visible character, as a space is in some tokenizers, belongs to the
    word after it.

    Args:
        text: the text.
        spans: the characters of each token, as start and stop, in order; None for a special token.
    """
    words: list[Word] = []
    word_of = [-1] * len(spans)
    invisible: list[int] = []
    for token, span in enumerate(spans):
        if span is None:
            continue
        visible = text[slice(*span)].strip()
        if not visible:
            invisible.append(token)
            continue
        start = text.index(visible, *span)
        stop = start + len(visible)
        if words and all(_continues_word(text, place) for place in range(words[-1].stop, start + 1)):
            words[-1] = Word(words[-1].start, max(words[-1].stop, stop))
        else:
            words.append(Word(start, stop))
        for member in (*invisible, token):
            word_of[member] = len(words) - 1
        invisible = []
    for token in invisible:
        word_of[token] = len(words) - 1
    return words, word_of


def _continues_word(text: str, place: int) -> bool:
    """Return whether the character at a place belongs to the word of the one before it."""

    def in_word(character: str) -> bool:
        """Return whether a character is a letter, digit or accent of a script that has spaces."""
        if any(first <= character <= last for first, last in WITHOUT_SPACES):
            return False
        return character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")

    before, after = text[place - 1], text[place]
    # M: accents and vowel signs, Cf: joiners and the soft hyphen.
    if unicodedata.category(after) in ("Mn", "Mc", "Me", "Cf") or unicodedata.category(before) == "Cf":
        return not before.isspace() and not after.isspace()
    if after in APOSTROPHES:
        return before.isalnum() and text[place + 1 : place + 2].isalnum()
    if before in APOSTROPHES:
        return after.isalnum() and place > 1 and text[place - 2].isalnum()
    return in_word(before) and in_word(after)


def logits_of(
    classifier: HierarchicalClassifier, texts: Sequence[Sequence[int]], before_pass: Callable[[], None]
) -> NDArray[np.float32]:
    """Return the logits of texts given as token ids, (n, K)."""
    logits = np.empty((len(texts), len(classifier.taxonomy)), dtype=np.float32)
    for batch in batches_by_length([len(ids) for ids in texts], classifier.backend.batch_tokens):
        before_pass()
        logits[batch] = classifier.batch_logits([texts[row] for row in batch])
    return logits


def occlusion(
    classifier: HierarchicalClassifier,
    text: ReadText,
    labels: Sequence[int],
    before_pass: Callable[[], None] = lambda: None,
) -> NDArray[np.float64]:
    """Return the relevance of each word for each label, (len(labels), W): ``r_kw = z_k - z_k(without w)``.

    Needs no gradient, and one more reading per word.
    """
    without = [text.only(row) for row in ~np.eye(len(text.words), dtype=np.bool_)]
    logits = logits_of(classifier, [text.ids.tolist(), *without], before_pass)[:, list(labels)].astype(np.float64)
    drops: NDArray[np.float64] = (logits[0] - logits[1:]).T
    return drops


def integrated_gradients(
    classifier: HierarchicalClassifier,
    text: ReadText,
    labels: Sequence[int],
    before_pass: Callable[[], None] = lambda: None,
) -> NDArray[np.float64]:
    """Return the relevance of each word for each label, (len(labels), W), by integrated gradients.

    ``r_kt = ∂z_k/∂e_t · e_t``, summed over the tokens t of a word. e_t is the word embedding of a token, before
    position and normalisation, z_k the logit of label k. The gradient is the mean over :data:`STEPS` texts on the way
    from a text whose words are all zeros; the values of the words sum up to what they add to the logit of that text.
    Each step is a pass forwards, and one back for each label.

    Raises:
        InputError: if the encoder does not look words up in its table of embeddings.
    """
    import torch

    backend: Any = classifier.backend
    encoder = backend.model.encoder
    shares = (np.arange(STEPS) + 0.5) / STEPS
    at_once = max(1, backend.batch_tokens // len(text.ids))
    total = np.zeros((len(labels), len(text.ids)))
    for start in range(0, STEPS, at_once):
        part = shares[start : start + at_once, np.newaxis]
        ids = torch.from_numpy(text.ids).to(backend.device).expand(len(part), -1)
        factors = np.where(text.word_of < 0, 1.0, part)  # (n, L): special tokens stay
        scale = torch.from_numpy(factors).to(backend.device, torch.float32).unsqueeze(-1)
        before_pass()
        # The recurrent layers of cuDNN have no gradient outside of training.
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False), _scaled(encoder, scale) as looked_up:
            logits = backend.model(ids, torch.ones_like(ids)).logits.sum(0)  # (K,)
            if not looked_up:
                raise InputError(
                    f"a {type(encoder).__name__} does not look words up in its table of embeddings",
                    remedy="choose the method occlusion",
                )
            ((words, scaled),) = looked_up  # e and its shares, (n, L, H)
            for row, label in enumerate(labels):
                before_pass()
                (gradient,) = torch.autograd.grad(logits[label], scaled, retain_graph=True)
                total[row] += (gradient * words).sum((0, 2)).double().cpu().numpy()
    members = text.word_of[:, np.newaxis] == np.arange(len(text.words))  # (L, W)
    relevance: NDArray[np.float64] = total @ members.astype(np.float64) / STEPS
    return relevance


@contextmanager
def _scaled(encoder: Any, scale: Tensor) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Scale the word embeddings that an encoder looks up, (n, L, 1), and collect them: before and after scaling.

    Only in this thread: another may be predicting with the same model.
    """
    found: list[tuple[Tensor, Tensor]] = []
    thread = threading.get_ident()

    def collect(_module: nn.Module, _inputs: object, output: Tensor) -> Tensor | None:
        if threading.get_ident() != thread:
            return None
        words = output.detach()
        found.append((words, (words * scale.to(words.dtype)).requires_grad_()))
        return found[-1][1]

    handle = encoder.get_input_embeddings().register_forward_hook(collect)
    try:
        yield found
    finally:
        handle.remove()


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as "1 word" and "2 words"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


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
        excerpt=60,  # characters of a text in its heading
    )
