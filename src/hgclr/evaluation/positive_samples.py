"""Positive samples: the tokens of a text that HGCLR keeps for its labels (figure 3 of the paper).

The choice is drawn again at every step of training, and one draw is mostly noise: hence many, and their agreement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hgclr.errors import InputError, require_extra
from hgclr.evaluation.explanation import Word, counted, read_text
from hgclr.presentation import render_page

if TYPE_CHECKING:
    from hgclr.decisions.settings import Decisions
    from hgclr.inference import HierarchicalClassifier
    from hgclr.models import HGCLRConfig, HGCLRForSequenceClassification

DRAWS = 100
BATCH_TOKENS = 4096
"""Tokens of copies of a text for which draws are made together."""


@dataclass(frozen=True)
class PositiveSample:
    """A text with its labels, and draws of the tokens that its positive sample keeps.

    Args:
        labels: ids of the labels, with all above them.
        paths: the paths to the deepest of them.
        words: the W words that the model reads.
        unread: number of words after these.
        spans: the characters of each of T tokens, special ones left out.
        word_of: the index of each token's word, (T,).
        kept: the tokens that each draw keeps, bool (draws, T).
    """

    text: str
    labels: tuple[str, ...]
    paths: tuple[str, ...]
    words: tuple[Word, ...]
    unread: int
    spans: tuple[tuple[int, int], ...]
    word_of: NDArray[np.int64]
    kept: NDArray[np.bool_]

    @property
    def whole(self) -> bool:
        """Whether every draw keeps the whole text."""
        return bool(self.kept.all())

    @cached_property
    def shares(self) -> list[float]:
        """The share of draws that keep each word, W numbers; of a word with several tokens, their mean."""
        by_token = self.kept.mean(0)
        return [float(by_token[self.word_of == word].mean()) for word in range(len(self.words))]

    @property
    def agreement(self) -> float:
        """How far draws keep the same tokens, by Fleiss' kappa: 0 is chance, 1 the same ones in every draw.

        ``κ = 1 - n / (n - 1) · mean_t s_t (1 - s_t) / (s (1 - s))`` with s_t the share of n draws that keep token t,
        and s their mean.
        """
        shares, draws = self.kept.mean(0), len(self.kept)
        mean = shares.mean()
        if mean in (0, 1):
            return 1.0
        return float(1 - draws / (draws - 1) * (shares * (1 - shares)).mean() / (mean * (1 - mean)))

    def parts(self, draw: int = 0) -> list[tuple[str, bool]]:
        """Return the text that is read in parts, each with whether a draw keeps it."""
        kept = self.kept[draw].tolist()
        marks = np.zeros(self.words[-1].stop, dtype=np.bool_)
        for (start, stop), one in zip(self.spans, kept, strict=True):
            marks[start:stop] |= one
        for ((_, stop), (start, _)), both in zip(pairwise(self.spans), pairwise(kept), strict=True):
            marks[stop:start] = all(both)  # the space between two tokens
        groups = groupby(zip(self.text, marks.tolist(), strict=False), key=lambda pair: pair[1])
        return [("".join(character for character, _ in group), mark) for mark, group in groups]

    def to_json(self) -> dict[str, Any]:
        """Return everything in plain Python types; words are places in the text, counted in code points."""
        return {
            "text": self.text,
            "labels": list(self.labels),
            "paths": list(self.paths),
            "words": [
                {
                    "word": self.text[word.start : word.stop],
                    "start": word.start,
                    "stop": word.stop,
                    "kept": round(share, 4),
                }
                for word, share in zip(self.words, self.shares, strict=True)
            ],
            "words_not_read": self.unread,
            "tokens": len(self.spans),
            "tokens_kept": round(float(self.kept.sum(1).mean()), 2),
            "first_draw": [{"text": part, "kept": kept} for part, kept in self.parts()],
            "draws": len(self.kept),
            "agreement": round(self.agreement, 4),
        }


def load_label_side(model: Path, keep: float | None = None) -> HGCLRForSequenceClassification:
    """Load the training-model of a run, given by its folder or by the model beside it.

    With ``keep`` its positive samples keep this share of every text's tokens, whatever its own rule.
    """
    require_extra("torch", extra="train", capability="A positive sample")
    from hgclr.models.hgclr import load_training_model
    from hgclr.training.run_checks import TRAINING_MODEL

    rule: dict[str, Any] = {}
    if keep is not None:
        if not 0 < keep <= 1:
            raise InputError(f"the share of tokens to keep is {keep}", remedy="give a share above 0, up to 1")
        rule = {"keep_fraction": keep, "keep_threshold": None, "keep_at_least": 0}
    beside = model.resolve().parent / TRAINING_MODEL
    return load_training_model(beside if beside.is_dir() else model, **rule)


def keep_rule(config: HGCLRConfig) -> str:
    """Return in words which tokens a positive sample keeps."""
    if config.keep_threshold is not None:
        rule = f"tokens with a probability above {config.keep_threshold:g}"
    else:
        rule = f"the most probable {config.keep_fraction:.0%} of a text's tokens"
        if config.keep_at_least:
            rule += f", at least {config.keep_at_least}"
    return rule


def positive_sample(
    classifier: HierarchicalClassifier,
    network: HGCLRForSequenceClassification,
    text: str,
    *,
    labels: Iterable[str] | None = None,
    decisions: Decisions | None = None,
    seed: int = 0,
) -> PositiveSample:
    """Draw positive samples of a text as training does, by the model's rule and its Gumbel noise.

    Nothing but the noise differs between draws: dropout, which training adds to the label features, is off.

    Args:
        classifier: reads the text, and predicts its labels where none are given.
        network: the same model with its label side, see :func:`load_label_side`.
        text: the text.
        labels: ids, names or paths; those above them are added. By default the predicted labels, or the most probable
            one.
        decisions: of the prediction; by default the classifier's.
        seed: decides all draws; torch's own generator is left as it was.

    Raises:
        InputError: if the text has no words, or there is no such label.
    """
    import torch

    read = read_text(classifier, text)
    taxonomy = network.config.taxonomy
    if labels is None:
        predicted = classifier.predict(text, decisions=decisions).labels
        most_probable = int(classifier.predict_proba(text).argmax())
        labels = [label.id for label in predicted] or [classifier.taxonomy.ids[most_probable]]
    gold = taxonomy.closure([taxonomy.resolve(label) for label in labels])
    if not len(gold):
        raise InputError("no labels are given to choose tokens by", remedy="give some, or leave them out")
    ids, row = torch.from_numpy(read.ids), torch.zeros(len(taxonomy))
    row[gold] = 1.0
    drawn, at_once = [], max(1, BATCH_TOKENS // len(ids))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.set_rng_state(torch.Generator().manual_seed(seed).get_state())
        for start in range(0, DRAWS, at_once):
            batch = ids.expand(min(at_once, DRAWS - start), -1)
            words = network.encoder.get_input_embeddings()(batch)
            weights, _ = network.positive_weights(batch, words, torch.ones_like(batch), row.expand(len(batch), -1))
            drawn.append(weights.numpy() != 0)
    tokens = read.word_of >= 0
    return PositiveSample(
        text,
        tuple(taxonomy.ids[label] for label in gold),
        tuple(map(taxonomy.path_name, taxonomy.path_ends(gold.tolist()))),
        read.words,
        read.unread,
        tuple(span for span in read.spans if span is not None),
        read.word_of[tokens],
        np.concatenate(drawn)[:, tokens],
    )


def positive_sample_page(samples: Sequence[PositiveSample], *, model: str, rule: str) -> str:
    """Return positive samples, at least one, as one HTML page; ``rule`` is that of :func:`keep_rule`."""
    return render_page(
        "evaluation/templates/positive_samples.html",
        samples=samples,
        model=model,
        rule=rule,
        counted=counted,
        shown=3,  # draws
        excerpt=60,  # characters of a text in its heading
    )
