"""The words of a text as a model reads it, and how much each speaks for a label: by gradient, occlusion, attention."""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from hgclr.data.rows import check_text
from hgclr.errors import InputError, require_extra
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.backends import TorchBackend, batches_by_length
from hgclr.remote import local

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hgclr.models import HGCLRForSequenceClassification


Method = Literal["auto", "integrated", "gradient", "occlusion"]
TOKENS = 64
"""Tokens that are scored against all labels at a time."""
STEPS = 16
"""Steps of the integral. Its parts then sum up to the difference of logits within 1 % in the median, within 13 % at
worst (40 texts of ICD-10-CM and CLINC150); 8 steps miss it by 6 to 11 %."""
APOSTROPHES = "'’"
# Scripts whose words have no space between them, as first and last character; there, each token stands for itself.
WITHOUT_SPACES = (
    ("\u0e00", "\u0fff"),  # Thai, Lao, Tibetan
    ("\u1000", "\u109f"),  # Burmese
    ("\u1780", "\u17ff"),  # Khmer
    ("\u3040", "\u30ff"),  # Hiragana, Katakana
    ("\u3400", "\u9fff"),  # Han
    ("\uf900", "\ufaff"),
    ("\U00020000", "\U000323af"),
)
SKIN_TONES = ("\U0001f3fb", "\U0001f3ff")
FLAG_LETTERS = ("\U0001f1e6", "\U0001f1ff")


@dataclass(frozen=True, slots=True)
class Word:
    """Characters of a text: the first, and the one after the last."""

    start: int
    stop: int


def find_words(text: str, spans: Sequence[tuple[int, int] | None]) -> tuple[list[Word], list[int]]:
    """Return the words that tokens make up, and which of them each token belongs to.

    Pieces of a word are one word again, and so are tokens that share a character, as the bytes of one do in some
    tokenizers. What stands between words, such as a comma, is a word of its own. A token without anything to be seen,
    as a space is in some tokenizers, belongs to the word after it.

    Args:
        text: the text.
        spans: the characters of each token, as start and stop, in order; None for a special token.

    Returns:
        The words in order, and for each token the index of its word, -1 for a special token.
    """
    words: list[Word] = []
    word_of = [-1] * len(spans)
    unseen: list[int] = []
    for token, span in enumerate(spans):
        if span is None:
            continue
        seen = text[slice(*span)].strip()
        if not seen:
            unseen.append(token)
            continue
        start = text.index(seen, *span)
        stop = start + len(seen)
        if words and all(_goes_on(text, place) for place in range(words[-1].stop, start + 1)):
            words[-1] = Word(words[-1].start, max(words[-1].stop, stop))
        else:
            words.append(Word(start, stop))
        for member in (*unseen, token):
            word_of[member] = len(words) - 1
        unseen = []
    for token in unseen:
        word_of[token] = len(words) - 1
    return words, word_of


def _goes_on(text: str, place: int) -> bool:
    """Tell whether the character at a place belongs to the word of the one before it."""
    before, after = text[place - 1], text[place]
    if _attached(after) or unicodedata.category(before) == "Cf":  # Cf: joiners, the soft hyphen
        return not before.isspace() and not after.isspace()
    if _between(before, FLAG_LETTERS) and _between(after, FLAG_LETTERS):
        return True
    if after in APOSTROPHES:
        return before.isalnum() and text[place + 1 : place + 2].isalnum()
    if before in APOSTROPHES:
        return after.isalnum() and place > 1 and text[place - 2].isalnum()
    return _in_word(before) and _in_word(after)


def _attached(character: str) -> bool:
    """Tell whether a character is part of the sign that the one before it begins."""
    return unicodedata.category(character) in ("Mn", "Mc", "Me", "Cf") or _between(character, SKIN_TONES)


def _in_word(character: str) -> bool:
    """Tell whether a character is a letter, digit or accent of a script that has spaces."""
    if any(_between(character, script) for script in WITHOUT_SPACES):
        return False
    return character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")


def _between(character: str, ends: tuple[str, str]) -> bool:
    return ends[0] <= character <= ends[1]


@dataclass(frozen=True)
class ReadText:
    """A text and its tokens.

    Args:
        text: the text.
        ids: its tokens as the model takes them, special ones included, (L,).
        words: the W words that were read.
        word_of: the index of each token's word, -1 for a special token, (L,).
        unread: how many words come after the last one that the model reads.
    """

    text: str
    ids: NDArray[np.int64]
    words: tuple[Word, ...]
    word_of: NDArray[np.int64]
    unread: int

    def only(self, words: NDArray[np.bool_]) -> list[int]:
        """Return the token ids of some words, (W,), in their order, between the special tokens.

        Ids are left out, not characters: no word is tokenised anew, and none that was not read moves up.
        """
        kept: list[int] = self.ids[np.append(words, True)[self.word_of]].tolist()  # -1, the special tokens, is the last
        return kept

    def sum(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return for each word the sum over its tokens, (n, W), from values of the tokens, (n, L)."""
        members = self.word_of[:, np.newaxis] == np.arange(len(self.words))  # (L, W)
        sums: NDArray[np.float64] = values @ members.astype(np.float64)
        return sums

    def mean(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return for each word the mean over its tokens, (n, W), from values of the tokens, (n, L)."""
        means: NDArray[np.float64] = self.sum(values) / self.sum(np.ones((1, len(self.ids))))
        return means


def read_text(classifier: HierarchicalClassifier, text: str) -> ReadText:
    """Return a text as a classifier reads it.

    Raises:
        InputError: if it is no text, or has no words.
    """
    check_text(text)
    (encoding,) = classifier.encode([text], offsets=True)
    words, word_of = find_words(text, _spans(encoding))
    if not words:
        raise InputError(f"the text {text!r:.80} has no words", remedy="give a text with some")
    whole, _ = find_words(text, [span for part in (encoding, *encoding.overflowing) for span in _spans(part)])
    return ReadText(
        text,
        np.array(encoding.ids, dtype=np.int64),
        tuple(words),
        np.array(word_of, dtype=np.int64),
        unread=sum(word.start >= words[-1].stop for word in whole),
    )


def logits_of(
    classifier: HierarchicalClassifier,
    texts: Sequence[Sequence[int]],
    labels: Sequence[int] | None = None,
    *,
    before_pass: Callable[[], None] = lambda: None,
) -> NDArray[np.float32]:
    """Return the logits of texts given as token ids, (n, K), or those of some labels only, (n, len(labels)).

    ``before_pass`` is called before each batch; what it raises ends the work.
    """
    columns = slice(None) if labels is None else list(labels)
    logits = np.empty((len(texts), len(classifier.taxonomy) if labels is None else len(labels)), dtype=np.float32)
    for batch in batches_by_length([len(ids) for ids in texts], classifier.backend.batch_tokens):
        before_pass()
        logits[batch] = classifier.batch_logits([texts[row] for row in batch])[:, columns]
    return logits


def _spans(encoding: Encoding) -> list[tuple[int, int] | None]:
    pairs = zip(encoding.offsets, encoding.special_tokens_mask, strict=True)
    return [None if special else span for span, special in pairs]


class GradientRelevance:
    """Multiply the gradient with the input, ``r_kt = ∂z_k/∂e_t · e_t``, and sum over the tokens t of a word.

    e_t is the word embedding of a token, before position and normalisation, z_k the logit of label k. The gradient is
    that at the text itself, or the mean of those on the way to it from a text whose words are all zeros ("integrated
    gradients"): then the words' values sum up to what the words add to the logit of that text.

    The first is one look at a place where a sure classifier is flat, and a normalisation behind the embeddings takes
    most of the gradient in their direction away: on our models it finds words little better than random ones, or worse.

    Args:
        backend: a model in torch.
        integrated: take the mean gradient on the way.
        before_pass: called before each pass through the model, forwards or back; what it raises ends the work.
    """

    neutral = 0.0

    def __init__(
        self, backend: TorchBackend, *, integrated: bool, before_pass: Callable[[], None] = lambda: None
    ) -> None:
        self._backend, self._before_pass = backend, before_pass
        self.name = "integrated" if integrated else "gradient"
        self._shares = (np.arange(STEPS) + 0.5) / STEPS if integrated else np.ones(1)

    def __call__(self, text: ReadText, labels: Sequence[int]) -> NDArray[np.float64]:
        """Return how much each word speaks for each label, (len(labels), W), in units of the logit.

        Every step is a pass forwards, and one back for each label.

        Raises:
            InputError: if the encoder looks words up where this cannot see it.
        """
        at_once = max(1, self._backend.batch_tokens // len(text.ids))
        total = np.zeros((len(labels), len(text.ids)))
        for start in range(0, len(self._shares), at_once):
            total += self._products(text, labels, self._shares[start : start + at_once])
        return text.sum(total / len(self._shares))

    def _products(self, text: ReadText, labels: Sequence[int], shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the product of gradient and embedding, (len(labels), L), summed over shares of the embeddings."""
        import torch

        model, device = self._backend.model, self._backend.device
        ids = torch.from_numpy(text.ids).to(device).expand(len(shares), -1)
        factors = np.where(text.word_of < 0, 1.0, shares[:, np.newaxis])  # (n, L): special tokens stay
        scale = torch.from_numpy(factors).to(device, torch.float32).unsqueeze(-1)
        self._before_pass()
        # The recurrent layers of cuDNN know no gradient outside of training.
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False), _scaled(model.encoder, scale) as looked_up:
            logits = model(ids, torch.ones_like(ids)).logits.sum(0)  # (K,)
            if not looked_up:
                raise InputError(
                    f"a {type(model.encoder).__name__} does not look words up in its table of embeddings",
                    remedy="choose the method occlusion",
                )
            ((words, scaled),) = looked_up  # e and its shares, (n, L, H)
            gradients = []
            for label in labels:
                self._before_pass()
                gradients.append(torch.autograd.grad(logits[label], scaled, retain_graph=True)[0])
        products: NDArray[np.float64] = (
            torch.stack([(gradient * words).sum((0, 2)) for gradient in gradients]).double().cpu().numpy()
        )
        return products


class OcclusionRelevance:
    """Leave each word out: ``r_kw = z_k - z_k(without w)``, which needs no gradient, and one more reading per word.

    Args:
        classifier: with any backend.
        before_pass: called before each batch; what it raises ends the work.
    """

    name, neutral = "occlusion", 0.0

    def __init__(self, classifier: HierarchicalClassifier, before_pass: Callable[[], None] = lambda: None) -> None:
        self._classifier, self._before_pass = classifier, before_pass

    def __call__(self, text: ReadText, labels: Sequence[int]) -> NDArray[np.float64]:
        words = len(text.words)
        variants = [text.ids.tolist(), *(text.only(row) for row in ~np.eye(words, dtype=np.bool_))]
        logits = logits_of(self._classifier, variants, labels, before_pass=self._before_pass).astype(np.float64)
        drops: NDArray[np.float64] = (logits[0] - logits[1:]).T
        return drops


@contextmanager
def _scaled(encoder: Any, scale: Tensor) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Let an encoder see its word embeddings scaled, (n, L, 1), and collect them: as they are, and as it sees them.

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


class AttentionRelevance:
    """Tell how probably a token is sampled for a label: ``P_ij = softmax_j(A_i / τ)``, without the Gumbel noise.

    A_ij is the attention of token i on label j (paper, Eq. 7), from the raw word embedding: it is the same wherever a
    word stands. P_ij shares a token out among all K labels, so that chance would give each 1 / K. The value of a word
    is the mean over its tokens.

    This is what chooses the tokens of positive samples in training. The classifier does not use it: it tells what the
    label side has learnt of words and labels, not why the classifier gives a label.

    Args:
        model: an HGCLR model with its label side. Only its word embeddings, the attention and the label features,
            which depend on no text, are kept.
    """

    name = "attention"

    def __init__(self, model: HGCLRForSequenceClassification) -> None:
        import torch

        self.taxonomy = model.config.taxonomy
        self.neutral = 1 / len(self.taxonomy)
        self._temperature = model.config.gumbel_temperature
        self._embeddings, self._attention = model.encoder.get_input_embeddings(), model.token_label_attention
        with torch.no_grad():
            self._labels = model.label_features()

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> AttentionRelevance:
        """Load the folder ``training-model`` of a run, or one with a URL.

        Raises:
            InputError: if there is no such model, or it has no label side.
            MissingExtraError: if torch is not installed.
        """
        require_extra("torch", extra="train", capability="Token-label attention")
        from hgclr.models.hgclr import load_training_model

        return cls(load_training_model(local(folder)))

    def __call__(self, text: ReadText, labels: Sequence[int]) -> NDArray[np.float64]:
        """Return how probably each word is sampled for each label, (len(labels), W)."""
        import torch

        blocks = []
        with torch.inference_mode():
            for ids in torch.from_numpy(text.ids).split(TOKENS):
                scores = self._attention(self._embeddings(ids), self._labels)  # A, (n, K)
                blocks.append((scores / self._temperature).softmax(-1)[:, list(labels)])
        return text.mean(torch.cat(blocks).T.double().numpy())


def choose_relevance(
    classifier: HierarchicalClassifier, method: Method | AttentionRelevance, before_pass: Callable[[], None]
) -> GradientRelevance | OcclusionRelevance | AttentionRelevance:
    """Return what tells how much words speak for labels; ``auto`` takes gradients where the model has them."""
    if isinstance(method, AttentionRelevance):
        if method.taxonomy != classifier.taxonomy:
            raise InputError(
                "the training model has another label tree than the classifier", remedy="give both of one run"
            )
        return method
    backend = classifier.backend
    if method == "auto":
        method = "integrated" if isinstance(backend, TorchBackend) else "occlusion"
    if method == "occlusion":
        return OcclusionRelevance(classifier, before_pass)
    if method not in ("integrated", "gradient"):
        raise InputError(
            f"unknown method {method!r}",
            remedy="choose one of auto, integrated, gradient, occlusion, or give an AttentionRelevance",
        )
    if not isinstance(backend, TorchBackend):
        raise InputError(
            "an ONNX model has no gradients",
            remedy="choose the method occlusion, or give the model that it was exported from",
        )
    return GradientRelevance(backend, integrated=method == "integrated", before_pass=before_pass)
