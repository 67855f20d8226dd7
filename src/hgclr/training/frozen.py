"""Fit the head to vectors of an encoder as it is; tune decisions, and score, with what a model computes."""

from __future__ import annotations

import copy
import io
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import datasets
import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from hgclr.decisions.settings import Decisions
from hgclr.decisions.tuning import ENTRIES, Calibrated, Outputs, calibrate
from hgclr.files import cache_dir
from hgclr.metrics.scores import MultiLabelScores
from hgclr.models import FlatForSequenceClassification, HierarchicalPreTrainedModel
from hgclr.nn.gathering import rank, world_size
from hgclr.training.batches import Collator, SortedByLength, text_lengths
from hgclr.training.distributed import add_scores, add_up, from_first_rank, gather_objects, share_weights

__all__ = ["final_scores", "fit_head", "refit_head", "tune_decisions"]

logger = logging.getLogger(__name__)
BATCH = 64
"""Documents scored at a time."""
LEAST = 10
"""Documents of dev below which nothing is tuned."""
STRENGTH = 3e-5
"""λ of :func:`fit_head` on an encoder as it comes."""
TRAINED_STRENGTH = 1e-3
"""λ on a trained one, where the head is near its place already."""
ITERATIONS = 50
"""Steps of L-BFGS at most."""
FEATURE_ENTRIES = 2**24
"""Documents times labels, or features, that are computed with at a time."""
IN_MEMORY = 2**26
"""Bytes of vectors that stay in memory; more are in a file in the cache."""


@torch.inference_mode()
def encode_documents(
    model: HierarchicalPreTrainedModel,
    tokens: datasets.Dataset,
    collator: Collator,
    compute: Callable[[dict[str, torch.Tensor]], torch.Tensor],
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]]]:
    """Yield documents in batches of similar length, from the longest: their places, what is computed, gold labels.

    ``compute`` takes a batch without its labels and returns a row for each document. The model is put into evaluation
    mode. Of several ranks each has its part of the documents.
    """
    model.eval()
    order = SortedByLength(text_lengths(tokens)).order
    for start in range(0, len(order), BATCH):
        places = order[start : start + BATCH]
        batch = collator([tokens[int(place)] for place in places])
        gold = batch.pop("labels").bool().numpy()
        rows = compute({name: value.to(model.device) for name, value in batch.items()})
        yield places, rows.float().cpu().numpy(), gold


def model_logits(
    model: HierarchicalPreTrainedModel, tokens: datasets.Dataset, collator: Collator
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]]]:
    """Yield places, logits and gold labels; see :func:`encode_documents`."""
    return encode_documents(model, tokens, collator, lambda batch: model(**batch).logits)


def tune_decisions(
    model: HierarchicalPreTrainedModel, tokens: datasets.Dataset, collator: Collator, *, seed: int
) -> Calibrated | None:
    """Find the best decisions on dev, or on a random sample of a large one; None if it is too small to tell."""
    taxonomy = model.config.taxonomy
    most = max(LEAST, ENTRIES // len(taxonomy))
    if len(tokens) < LEAST:
        logger.warning(
            "decisions stay at one half: %d documents in dev are too few to tune on; give dev %d or more, or tune on"
            " train by hgclr calibrate --folds 5",
            len(tokens),
            LEAST,
        )
        return None
    if len(tokens) > most:
        logger.info("decisions are tuned on %d of the %d documents of dev, a random sample", most, len(tokens))
        tokens = tokens.select(np.sort(np.random.default_rng(seed).choice(len(tokens), most, replace=False)))
    logits = np.zeros((len(tokens), len(taxonomy)), dtype=np.float32)
    gold = np.zeros(logits.shape, dtype=np.bool_)
    for places, rows, labels in model_logits(model, tokens, collator):
        logits[places], gold[places] = rows, labels
    _fill(logits, gold)
    if rank() > 0:
        return from_first_rank(None)
    start = Decisions(taxonomy, thresholds=model.config.threshold)
    return from_first_rank(calibrate(Outputs(logits, gold), start, seed=seed))


def _fill(*parts: NDArray[Any]) -> None:
    """Put what other ranks have computed where this one has zeros."""
    for part in parts:
        add_up(torch.from_numpy(part.view(np.uint8) if part.dtype == np.bool_ else part))


def final_scores(
    model: HierarchicalPreTrainedModel, tokens: datasets.Dataset, collator: Collator, decisions: Mapping[str, Decisions]
) -> dict[str, MultiLabelScores]:
    """Return the scores of one model with several decisions, by their names; the documents are encoded once."""
    scores = {name: MultiLabelScores(each.taxonomy) for name, each in decisions.items()}
    for _, logits, gold in model_logits(model, tokens, collator):
        for name, each in decisions.items():
            scores[name].update(each.decide(each.probabilities(logits)).predicted, gold)
    return {name: add_scores(counted) for name, counted in scores.items()}


class VectorFile:
    """Vectors of N documents, (N, H), in a file that nobody else sees and that is gone with the process.

    They are written and read by parts, and not mapped into memory, where a full disk would end the process.
    """

    def __init__(self, documents: int, width: int) -> None:
        self.row = np.dtype(np.float32).itemsize * width
        self.width = width
        if documents * self.row <= IN_MEMORY:
            self._file: Any = io.BytesIO()
        else:
            cache_dir().mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=cache_dir(), prefix="vectors-")  # noqa: SIM115

    def __enter__(self) -> VectorFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, places: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        for place, vector in zip(places.tolist(), vectors, strict=True):
            self._file.seek(place * self.row)
            self._file.write(vector.tobytes())

    def read(self, begin: int, end: int) -> Tensor:
        block = np.empty((end - begin, self.width), dtype=np.float32)
        self._file.seek(begin * self.row)
        self._file.readinto(block)
        return torch.from_numpy(block)


def fit_head(
    model: FlatForSequenceClassification,
    learned: datasets.Dataset,
    collator: Collator,
    *,
    strength: float = STRENGTH,
    on_documents: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Fit the head to frozen vectors, pulled towards where it stands, and return the recipe.

    ``min over W, b of  1/N Σ_d Σ_k BCE(W_k h_d + b_k, y_dk) + λ/2 ‖W - W_0‖²``, by L-BFGS on all N documents at a time;
    λ is the ``strength``, W_0 are the rows as they are. On an encoder as it comes they point to the labels' names, so
    that a label with few documents stays near its name and one with many goes where they are.

    Each document, those of the label tree included, is encoded once; ``on_documents`` is called with their number as it
    grows. Gradients are summed up over parts of the documents, so that memory does not grow with their number, but for
    8 bytes that order each by its length.
    """
    with VectorFile(len(learned) if rank() == 0 else 0, model.config.text_encoder.hidden_size) as vectors:
        encoded = encode_documents(model, learned, collator, lambda batch: model.encode(**batch))
        for _ in range(-(-len(learned) // (BATCH * world_size()))):  # batches of the rank that has the most
            part = next(encoded, None)
            if part is not None and on_documents is not None:
                on_documents(len(part[0]))
            for each in gather_objects(None if part is None else part[:2]):
                if each is not None and rank() == 0:
                    vectors.write(*each)
        if rank() == 0:
            _fit(model, vectors, learned, strength)
    share_weights(model.classifier)
    logger.info("fitted a head of %d labels to %d vectors", model.config.label_count, len(learned))
    return {"strength": strength, "iterations": ITERATIONS}


def _fit(model: FlatForSequenceClassification, vectors: VectorFile, learned: datasets.Dataset, strength: float) -> None:
    head = model.classifier
    start = head.weight.detach().cpu()  # W_0
    weight, bias = (part.detach().cpu().clone().requires_grad_() for part in (head.weight, head.bias))
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=ITERATIONS, history_size=10, line_search_fn="strong_wolfe")
    documents, step = len(learned), max(1, FEATURE_ENTRIES // max(start.shape))
    labels = learned.select_columns("labels").with_format("arrow")

    def closure() -> Tensor:
        optimizer.zero_grad()
        total = strength / 2 * (weight - start).square().sum()
        total.backward()
        for begin in range(0, documents, step):
            end = min(begin + step, documents)
            logits = vectors.read(begin, end) @ weight.T + bias
            gold = _gold(labels[begin:end], len(start))
            loss = F.binary_cross_entropy_with_logits(logits, gold, reduction="sum") / documents
            loss.backward()
            total = total.detach() + loss.detach()
        return total

    optimizer.step(closure)
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.copy_(bias)


def refit_head(
    model: FlatForSequenceClassification,
    learned: datasets.Dataset,
    dev: datasets.Dataset,
    collator: Collator,
    *,
    seed: int,
    on_documents: Callable[[int], None] | None = None,
) -> tuple[dict[str, Any], Calibrated | None]:
    """Fit the head of a trained model once more, see :func:`fit_head`; return the recipe and decisions found on dev.

    An encoder that has seen each of many documents a few times ends with a head that lags behind it, most of all for
    labels that are rare: gradients of single batches have moved it. The new head stays unless the old one is better on
    dev, each with decisions that are tuned for it and scored on documents that they were not tuned on.
    """
    former, before = copy.deepcopy(model.classifier), tune_decisions(model, dev, collator, seed=seed)
    recipe = fit_head(model, learned, collator, strength=TRAINED_STRENGTH, on_documents=on_documents)
    after = tune_decisions(model, dev, collator, seed=seed)
    kept = before is None or after is None or after.after.by("both") > before.after.by("both")
    if not kept:
        model.classifier.load_state_dict(former.state_dict())
    logger.info("the head was fitted once more, and %s", "stays so" if kept else "was put back, being worse on dev")
    return recipe | {"kept": kept}, after if kept else before


def _gold(table: Any, labels: int) -> Tensor:
    column = table.column("labels").combine_chunks()
    rows = np.repeat(np.arange(len(column)), column.value_lengths().to_numpy(zero_copy_only=False))
    gold = torch.zeros(len(column), labels)
    gold[rows, column.flatten().to_numpy(zero_copy_only=False).astype(np.int64)] = 1.0
    return gold
