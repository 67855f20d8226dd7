"""A head learned from answers on the vectors of a frozen encoder; its scores, and how well people and models agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import datasets
import numpy as np
import torch
from numpy.typing import NDArray

from hgclr.data.folder import label_documents
from hgclr.decisions.settings import Decisions, LeafSoftmax
from hgclr.decisions.tuning import Outputs, calibrate
from hgclr.errors import InputError, require_extra
from hgclr.evaluation.explanation import ReadText, read_text
from hgclr.files import atomic_file, sha256
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.backends import TorchBackend
from hgclr.labelling.store import Answer
from hgclr.metrics.intervals import Interval
from hgclr.models import FlatForSequenceClassification
from hgclr.models.base import load_tokenizer
from hgclr.models.pretrained import quiet_libraries
from hgclr.taxonomy import Taxonomy
from hgclr.training.fitting import FROZEN_LENGTH, base_rates
from hgclr.training.head import LEAST, SILENT, STRENGTH, TRAINED_STRENGTH, fit_vectors

RESAMPLES = 300
"""Bootstrap resamples of an interval."""
TEMPERATURES: tuple[float, ...] = tuple(np.geomspace(0.25, 8, 21).tolist())
"""Temperatures of the suggestions that are compared on the random slice."""
STEP = 100
"""Answers whose benefit the advice estimates."""
BATCH = 512
"""Texts encoded between two reports of progress."""
RETRAIN = 25
"""New answers after which a head is trained."""
WORDS = 3
"""Words shown for a suggestion."""


@dataclass(frozen=True, eq=False)
class Encoder:
    """A frozen encoder, and the head that learning starts from.

    Args:
        classifier: the model, whose own head is not used.
        start: weight, (K, H), and bias, (K,).
        strength: λ of the penalty for leaving ``start``.
        trained: ``start`` is the head of a trained model, not made of label names.
        vectors: of the label documents, (M, H).
        labels: of the label documents, M.
        name: a digest that changes with the encoder.
    """

    classifier: HierarchicalClassifier
    start: tuple[NDArray[np.float32], NDArray[np.float32]]
    strength: float
    trained: bool
    vectors: NDArray[np.float32]
    labels: list[tuple[int, ...]]
    name: str

    @classmethod
    @quiet_libraries()
    def load(cls, taxonomy: Taxonomy, encoder: str, model: Path | None = None) -> Encoder:
        """Return a pretrained encoder with a head from label names, or a trained flat model with its head."""
        if model is None:
            tokenizer = load_tokenizer(encoder)
            flat = FlatForSequenceClassification.from_encoder(encoder, taxonomy, tokenizer)
            flat.eval().start_from_names(tokenizer, length=FROZEN_LENGTH)
            with torch.no_grad():
                flat.classifier.bias.zero_()
            classifier = HierarchicalClassifier.from_model(flat, tokenizer)
            name = f"{Path(encoder).name}-{flat.config.max_length}"
        else:
            classifier = HierarchicalClassifier.load(model)
            if not isinstance(classifier.backend, TorchBackend):
                raise InputError("an ONNX model returns no vectors", path=model, remedy="give the trained model")
            if not isinstance(classifier.backend.model, FlatForSequenceClassification):
                raise InputError("the model is more than an encoder and a head", path=model, remedy="give a flat model")
            if classifier.taxonomy != taxonomy:
                raise InputError("the model has another label tree", path=model, remedy="give the tree's own model")
            flat, name = classifier.backend.model, f"model-{sha256(model / 'model.safetensors')[:16]}"
        documents = list(label_documents(taxonomy))
        vectors = np.concatenate(list(classifier.vectors(document.text for document in documents)))
        start = tuple(part.detach().cpu().numpy().copy() for part in (flat.classifier.weight, flat.classifier.bias))
        labels = [document.labels for document in documents]
        trained = model is not None
        strength = TRAINED_STRENGTH if trained else STRENGTH
        return cls(classifier, cast(Any, start), strength, trained, vectors, labels, name)

    @property
    def taxonomy(self) -> Taxonomy:
        return self.classifier.taxonomy


def encode_texts(
    encoder: Encoder, texts: Sequence[str], file: Path, progress: Callable[[int, int | None], None] | None = None
) -> NDArray[np.float32]:
    """Return the vectors of texts, (N, H), from a file, memory-mapped; the file is written if it is absent.

    ``progress`` is called with the number of texts encoded and of all texts.
    """
    if not file.is_file():
        with atomic_file(file) as temporary:
            width = encoder.vectors.shape[1]
            vectors = np.lib.format.open_memmap(temporary, "w+", np.float32, (len(texts), width))
            for start in range(0, len(texts), BATCH):
                part = texts[start : start + BATCH]
                vectors[start : start + len(part)] = np.concatenate(list(encoder.classifier.vectors(part)))
                if progress is not None:
                    progress(start + len(part), len(texts))
            vectors.flush()
            del vectors
    found: NDArray[np.float32] = np.load(file, mmap_mode="r")
    if len(found) != len(texts):
        raise InputError(f"{len(found)} vectors for {len(texts)} texts", path=file, remedy="delete the file")
    return found


@dataclass(frozen=True, eq=False)
class Head:
    """A linear layer on text vectors.

    Args:
        weight: (K, H).
        bias: (K,).
        suggesting: decisions whose probabilities are those of suggestions, a softmax over leaves.
    """

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    suggesting: Decisions

    def logits(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return logits, (n, K), of text vectors, (n, H)."""
        values: NDArray[np.float32] = np.asarray(vectors) @ self.weight.T + self.bias
        return values


def learn(
    encoder: Encoder,
    vectors: NDArray[np.float32],
    targets: NDArray[np.float32],
    slice_vectors: NDArray[np.float32],
    slice_gold: NDArray[np.bool_],
) -> Head:
    """Return a head fitted to answers and label documents.

    The head minimises the loss of :func:`hgclr.training.head.fit_head`; unknown targets do not count. With 10 answers,
    the slice chooses the temperature of the suggestions; it trains no head, and chooses none: on a few dozen texts,
    :func:`hgclr.training.head.best_head` often kept a worse head than the default.

    Args:
        encoder: the encoder and the head that learning starts from.
        vectors: of answered texts outside of the slice, (n, H).
        targets: their targets, (n, K); see :func:`hgclr.labelling.store.target_rows`.
        slice_vectors: of answered texts of the slice, (m, H).
        slice_gold: their gold labels, (m, K).
    """
    taxonomy, (weight, bias) = encoder.taxonomy, encoder.start
    head = torch.nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(weight))
        if len(targets) and not encoder.trained:
            counts = torch.from_numpy(np.nansum(targets, axis=0))
            head.bias.copy_(torch.logit(base_rates(counts, len(targets))))
        else:
            head.bias.copy_(torch.from_numpy(bias))
    learned = datasets.Dataset.from_dict(
        {
            "labels": [np.flatnonzero(row == 1).tolist() for row in targets] + [list(own) for own in encoder.labels],
            "unsure": [np.flatnonzero(np.isnan(row)).tolist() for row in targets] + [[] for _ in encoder.labels],
        },
        features=datasets.Features({name: datasets.List(datasets.Value("int32")) for name in ("labels", "unsure")}),
    )
    # The model itself is in use by other threads.
    model = cast(FlatForSequenceClassification, SimpleNamespace(classifier=head))
    fit_vectors(model, np.concatenate([vectors, encoder.vectors]), learned, encoder.strength)
    fitted = Head(head.weight.detach().numpy(), head.bias.detach().numpy(), untuned(taxonomy))
    temperature = best_temperature(fitted.logits(slice_vectors), slice_gold, taxonomy)
    return replace(fitted, suggesting=replace(fitted.suggesting, calibration=LeafSoftmax(taxonomy, temperature)))


def best_temperature(logits: NDArray[np.float32], gold: NDArray[np.bool_], taxonomy: Taxonomy) -> float:
    """Return the temperature of a softmax over leaves that makes the gold leaves of documents most likely.

    It is 1 if fewer than 10 documents have a leaf.
    """
    rows, leaves = np.nonzero(gold[:, taxonomy.leaves])
    if len(set(rows.tolist())) < LEAST:
        return 1.0

    def likelihood(temperature: float) -> float:
        probabilities = LeafSoftmax(taxonomy, temperature)(logits)[:, taxonomy.leaves]
        return float(np.log(np.maximum(probabilities[rows, leaves], 1e-9)).mean())

    return max(TEMPERATURES, key=likelihood)


def slice_scores(
    logits: NDArray[np.float32], gold: NDArray[np.bool_], taxonomy: Taxonomy, *, seed: int = 0
) -> dict[str, float]:
    """Return the number of documents, Macro-F1 and its interval, ``low`` and ``high``; {} without documents.

    Each half of the documents is scored with decisions tuned on the other half; see :func:`macro_f1`.
    """
    if not len(gold):
        return {}
    order, predicted = np.random.default_rng(seed).permutation(len(gold)), np.zeros_like(gold)
    for fold in (order[0::2], order[1::2]):
        others = np.setdiff1d(order, fold)
        decisions = tuned(logits[others], gold[others], taxonomy, seed)
        predicted[fold] = decisions.decide(decisions.probabilities(logits[fold])).predicted
    interval = macro_f1(predicted, gold, seed=seed)
    return {"texts": len(gold), "macro_f1": interval.score, "low": interval.low, "high": interval.high}


def untuned(taxonomy: Taxonomy) -> Decisions:
    """Return decisions that need no documents: the best path down to a leaf."""
    return Decisions(taxonomy, rule="best-path", allow_inner_nodes=False)


def tuned(logits: NDArray[np.float32], gold: NDArray[np.bool_], taxonomy: Taxonomy, seed: int) -> Decisions:
    """Return decisions tuned on n documents, or those of :func:`untuned` if they are not clearly worse.

    The tuned ones must be better by more than ``0.5 / √n``, the largest standard error of a share, in the mean of
    Micro- and Macro-F1 of a cross-validation; otherwise a few dozen documents would often choose a bad rule by chance.
    """
    start = untuned(taxonomy)
    if int(gold.any(axis=1).sum()) < LEAST:
        return start
    found = calibrate(Outputs(logits, gold), start, seed=seed, log=SILENT)
    gain = found.after.by("both") - found.before.by("both")
    return found.decisions if gain > 0.5 / math.sqrt(len(gold)) else start


def macro_f1(predicted: NDArray[np.bool_], gold: NDArray[np.bool_], *, seed: int = 0) -> Interval:
    """Return the mean F1 of the labels that are gold or predicted, with the 95 % interval of a bootstrap of documents.

    Labels absent from both do not count, because a slice of a few dozen texts has only some of the labels.
    """
    parts = [matrix.astype(np.float32) for matrix in (predicted & gold, predicted, gold)]

    def scores(weights: NDArray[np.float32]) -> NDArray[np.float64]:
        right, found, present = (weights @ part for part in parts)
        seen = found + present > 0
        each = 2 * right / np.maximum(found + present, 1)
        means: NDArray[np.float64] = (each * seen).sum(axis=1) / np.maximum(seen.sum(axis=1), 1)
        return means

    count = len(gold)
    draws = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    low, high = np.quantile(scores(draws.astype(np.float32)), [0.025, 0.975]).tolist()
    score = float(scores(np.ones((1, count), dtype=np.float32))[0])
    return Interval(score, min(low, score), max(high, score))


def carrying_words(
    classifier: HierarchicalClassifier, weight: NDArray[np.float32], text: str, labels: Sequence[int]
) -> list[tuple[str, ...]]:
    """Return, for each of several labels, the words of a text that carried its path, strongest first, three at most.

        r_w = z - z(without w) = u · (Σ over the tokens t of w of h_t - n_w h) / (n - n_w)

    h_t are the encoder's vectors of the n tokens of the text, h is their mean, n_w the number of tokens of w, and u the
    sum of the head's rows on the path. This is the drop in the path's logits if the word's vectors leave the mean: one
    pass of the encoder for all words, exact for an encoder with the pooling ``mean`` if the other vectors stayed.
    """
    backend = cast(TorchBackend, classifier.backend)
    try:
        read: ReadText = read_text(classifier, text)
    except InputError:  # no words
        return [() for _ in labels]
    ids = torch.from_numpy(read.ids)[None].to(backend.device)
    with torch.inference_mode():
        hidden = backend.model.hidden(torch.ones_like(ids), input_ids=ids)[0].float().cpu().numpy()  # (n, H)
    rows = np.stack([weight[classifier.taxonomy.closure([label])].sum(axis=0) for label in labels])
    parts = (hidden - hidden.mean(axis=0)) @ rows.T  # (n, labels)
    members = (read.word_of[:, None] == np.arange(len(read.words))).astype(np.float32)  # (n, W)
    sizes = members.sum(axis=0)
    relevance = (members.T @ parts) / np.maximum(len(hidden) - sizes, 1)[:, None]  # (W, labels)
    found = []
    for column in relevance.T:
        order = np.argsort(-column, kind="stable")
        words = [text[read.words[place].start : read.words[place].stop] for place in order if column[place] > 0]
        found.append(tuple(dict.fromkeys(word for word in words if any(map(str.isalnum, word))))[:WORDS])
    return found


def people_agreement(answers: Sequence[Answer], taxonomy: Taxonomy) -> list[float | None] | None:
    """Return Cohen's kappa at each level for texts that two people have answered; None if there is no such text.

    The category of an answer at a level is the set of its labels there, which is empty for "belongs nowhere" and below
    a path that stops. Of several people, every pair counts. At a level where all answers are in one category, kappa is
    undefined: None.
    """
    by_text: dict[int, list[Answer]] = {}
    for answer in answers:
        if answer.kind != "skip" and not answer.partial:
            by_text.setdefault(answer.document, []).append(answer)
    pairs = [pair for own in by_text.values() for pair in combinations(sorted(own, key=lambda answer: answer.user), 2)]
    if not pairs:
        return None
    require_extra("sklearn", extra="label", capability="The agreement of people")
    from sklearn.metrics import cohen_kappa_score

    index = {identifier: label for label, identifier in enumerate(taxonomy.ids)}

    def category(answer: Answer, depth: int) -> str:
        labels = taxonomy.closure([index[label] for label in answer.labels])
        return " ".join(map(str, labels[taxonomy.depths[labels] == depth].tolist()))

    found: list[float | None] = []
    for depth in range(1, taxonomy.depth + 1):
        first, second = ([category(pair[place], depth) for pair in pairs] for place in (0, 1))
        constant = len({*first, *second}) < 2
        found.append(None if constant else float(cohen_kappa_score(first, second)))
    return found


def expected_gain(curve: Sequence[tuple[int, float, float, float]], step: int = STEP) -> tuple[float, float] | None:
    """Return the gain in Macro-F1 from ``step`` more answers and the half-width of its 95 % interval.

    The error falls as a power of the answers, ``1 - F = a n^-b``. ``log a`` and ``b`` are the least-squares line
    through the recorded points ``(log n, log(1 - F))``; if there are several models from n answers, the newest counts.
    The interval is the delta method on the covariance of both, from the residuals. Four points are needed, otherwise
    the result is None. The points share the texts that they are scored on, so the interval is for the trend.
    """
    points = {answers: max(1 - score, 1e-3) for answers, score, _, _ in curve if answers > 0}
    if len(points) < 4:
        return None
    x, y = np.log(list(points)), np.log(list(points.values()))
    design = np.stack([np.ones_like(x), x], axis=1)
    line, *_ = np.linalg.lstsq(design, y, rcond=None)
    variance = float(((y - design @ line) ** 2).sum()) / (len(x) - 2)
    covariance = variance * np.linalg.inv(design.T @ design)

    now, later = (np.array([1, math.log(n)]) for n in (max(points), max(points) + step))
    errors = float(np.exp(now @ line)), float(np.exp(later @ line))
    slope = errors[0] * now - errors[1] * later  # of the gain, by log a and -b
    return errors[0] - errors[1], 1.96 * math.sqrt(float(slope @ covariance @ slope))


def advice(
    curve: Sequence[tuple[int, float, float, float]], *, answers: int, leaves: int, without_text: int, open_texts: int
) -> str:
    """Return one sentence on what to do next."""
    if answers == 0:
        return "answer the first text: suggestions come from the label names until then"
    parts = []
    gain = expected_gain(curve)
    if gain is None:
        parts.append("a few more answers are needed to say what the next 100 would bring")
    else:
        change, width = (100 * value for value in gain)
        parts.append(f"the next {STEP} answers would bring about {change:+.1f} ± {width:.1f} Macro-F1")
    if without_text and answers >= leaves:
        one = without_text == 1
        parts.append(
            f"{without_text} {'label has' if one else 'labels have'} no text: search for {'it' if one else 'them'}"
        )
    if open_texts:
        parts.append("people disagree on 1 text" if open_texts == 1 else f"people disagree on {open_texts} texts")
    return "; ".join(parts)
