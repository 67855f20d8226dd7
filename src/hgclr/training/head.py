"""Fit the head to the encoder's vectors, tune decisions on dev, and score a model."""

from __future__ import annotations

import copy
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import datasets
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hgclr.decisions.settings import Decisions
from hgclr.decisions.tuning import ENTRIES, Calibrated, Outputs, calibrate
from hgclr.files import cache_dir
from hgclr.metrics.scores import MultiLabelScores
from hgclr.models import FlatForSequenceClassification, HierarchicalPreTrainedModel
from hgclr.nn.gathering import rank, world_size
from hgclr.nn.objective import classification_loss
from hgclr.training.distributed import add_scores, add_up, from_first_rank, gather_objects, share_weights
from hgclr.training.trainer import Collator, longest_first, text_lengths

logger = logging.getLogger(__name__)
SILENT = logging.getLogger(f"{__name__}.candidates")
"""Drops warnings on the heads that :func:`best_head` tries; tuning repeats those on the head that is kept."""
SILENT.disabled = True
BATCH = 64
"""Documents scored at a time."""
LEAST = 10
"""Documents in dev that tuning needs."""
STRENGTH = 3e-4
"""λ of :func:`fit_head` on an encoder that was only pretrained, if dev cannot choose it."""
STRENGTHS = (3e-5, 3e-4, 1e-3)
"""λ that :func:`choose_head` tries; long texts and rare labels need more."""
MANY_STRENGTH = 3e-5
"""λ for many documents."""
CHOICE_ENTRIES = 2**19
"""Documents of dev times labels that :func:`choose_head` compares heads on."""
TRAINED_STRENGTH = 1e-3
"""λ on a trained encoder, whose head is nearly right."""
ITERATIONS = 50
"""Limit on the iterations of L-BFGS."""
FEATURE_ENTRIES = 2**24
"""Limit on documents times labels, or features, in a part of the gradient."""
IN_MEMORY = 2**26
"""Limit on the bytes of vectors in memory."""


@torch.inference_mode()
def encode_documents(
    model: HierarchicalPreTrainedModel,
    tokens: datasets.Dataset,
    collator: Collator,
    compute: Callable[[dict[str, torch.Tensor]], torch.Tensor],
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]]]:
    """Yield indices of documents, the rows that ``compute`` returns for them, and gold labels, the longest texts first.

    ``compute`` gets a batch without labels. The model is set to evaluation mode. Each rank yields its own part.
    """
    model.eval()
    order = longest_first(text_lengths(tokens))[rank() :: world_size()]
    for start in range(0, len(order), BATCH):
        places = order[start : start + BATCH]
        batch = collator([tokens[int(place)] for place in places])
        gold = batch.pop("labels").bool().numpy()
        rows = compute({name: value.to(model.device) for name, value in batch.items()})
        yield places, rows.float().cpu().numpy(), gold


def tuned_on(dev: datasets.Dataset, labels: int) -> int:
    """Return the number of documents in dev that decisions are tuned on."""
    return min(len(dev), max(LEAST, ENTRIES // labels))


def tuning_sample(dev: datasets.Dataset, labels: int, seed: int) -> datasets.Dataset:
    """Return the documents in dev that decisions are tuned on: all, or a random sample if they are many."""
    most = tuned_on(dev, labels)
    if len(dev) <= most:
        return dev
    logger.info("tuning decisions on a random sample of %d of the %d documents in dev", most, len(dev))
    return dev.select(np.sort(np.random.default_rng(seed).choice(len(dev), most, replace=False)))


def tune_decisions(
    model: HierarchicalPreTrainedModel, tokens: datasets.Dataset, collator: Collator, *, seed: int
) -> Calibrated | None:
    """Tune decisions on dev, or on a random sample if it is large; return None if it is too small."""
    taxonomy = model.config.taxonomy
    if len(tokens) < LEAST:
        logger.warning(
            "thresholds stay at 0.5: tuning needs %d documents in dev, which has %d; add documents to dev, or tune on"
            " train with hgclr calibrate --folds 5",
            LEAST,
            len(tokens),
        )
        return None
    tokens = tuning_sample(tokens, len(taxonomy), seed)
    logits, gold = encode_all(model, tokens, collator, lambda batch: model(**batch).logits, len(taxonomy))
    if rank() > 0:
        return from_first_rank(None)
    start = Decisions(taxonomy, thresholds=model.config.threshold)
    return from_first_rank(calibrate(Outputs(logits, gold), start, seed=seed))


def encode_all(
    model: HierarchicalPreTrainedModel,
    tokens: datasets.Dataset,
    collator: Collator,
    compute: Callable[[dict[str, torch.Tensor]], torch.Tensor],
    width: int,
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return the rows of :func:`encode_documents`, (N, width), and gold labels, (N, K), of all ranks in order."""
    rows = np.zeros((len(tokens), width), dtype=np.float32)
    gold = np.zeros((len(tokens), model.config.label_count), dtype=np.bool_)
    for places, *parts in encode_documents(model, tokens, collator, compute):
        rows[places], gold[places] = parts
    for part in (rows, gold.view(np.uint8)):  # each rank has zeros in the rows of the others
        add_up(torch.from_numpy(part))
    return rows, gold


def final_scores(
    model: HierarchicalPreTrainedModel, tokens: datasets.Dataset, collator: Collator, decisions: Mapping[str, Decisions]
) -> dict[str, MultiLabelScores]:
    """Return the scores of a model with each of several decisions; the documents are encoded once."""
    scores = {name: MultiLabelScores(each.taxonomy) for name, each in decisions.items()}
    for _, logits, gold in encode_documents(model, tokens, collator, lambda batch: model(**batch).logits):
        for name, each in decisions.items():
            scores[name].update(each.decide(each.probabilities(logits)).predicted, gold)
    return {name: add_scores(counted) for name, counted in scores.items()}


def fit_head(
    model: FlatForSequenceClassification,
    learned: datasets.Dataset,
    collator: Collator,
    *,
    strength: float = STRENGTH,
) -> dict[str, Any]:
    """Fit the head to the encoder's vectors, regularised towards its current rows, and return the recipe.

    ``min over W, b of  1/N Σ_d Σ_k BCE(W_k h_d + b_k, y_dk) + λ/2 ‖W - W_0‖²``, by L-BFGS on all N documents; λ is the
    ``strength``, W_0 are the current rows. Without training, these are the vectors of the label names, so that a label
    with few documents stays near its name.

    Each document is encoded once. Many vectors are stored in a file and gradients are summed in parts, so memory hardly
    grows with the documents.
    """
    with encoded(model, learned, collator) as vectors:
        if rank() == 0:
            fit_vectors(model, vectors, learned, strength)
    share_weights(model.classifier)
    logger.info("fitted a head of %d labels to %d vectors", model.config.label_count, len(learned))
    return {"strength": strength, "iterations": ITERATIONS}


def choose_head(
    model: FlatForSequenceClassification,
    learned: datasets.Dataset,
    dev: datasets.Dataset,
    collator: Collator,
    *,
    documents: int,
    tuned: bool = True,
    seed: int = 0,
) -> dict[str, Any]:
    """Fit heads as :func:`fit_head` does, keep the best on dev, and return the recipe.

    The heads differ in their strength. One more knows nothing of the label names: it is fitted to the first
    ``documents`` of ``learned`` alone, without the label documents after them, and regularised towards rows of 0. It
    is for labels whose names say little, such as codes. Each head is scored with its own decisions, on documents
    that they were not tuned on, or at 0.5 unless ``tuned``. Every document is encoded once.
    """
    taxonomy = model.config.taxonomy
    if len(dev) * len(taxonomy) > CHOICE_ENTRIES:
        some = np.random.default_rng(seed).permutation(len(dev))[: max(LEAST, CHOICE_ENTRIES // len(taxonomy))]
        dev = dev.select(np.sort(some))
    with encoded(model, learned, collator) as vectors:
        width = model.config.text_encoder.hidden_size
        known = encode_all(model, dev, collator, lambda batch: model.encode(**batch), width)
        chosen = None
        if rank() == 0:
            chosen = best_head(model, vectors, learned, known, documents=documents, tuned=tuned, seed=seed)
    share_weights(model.classifier)
    strength, fitted = from_first_rank(chosen) or (STRENGTH, 0)
    logger.info("chose a head on dev: λ = %g, fitted to %d vectors", strength, fitted)
    return {"strength": strength, "iterations": ITERATIONS, "vectors": fitted}


def best_head(
    model: FlatForSequenceClassification,
    vectors: NDArray[np.float32],
    learned: datasets.Dataset,
    dev: tuple[NDArray[np.float32], NDArray[np.bool_]],
    *,
    documents: int,
    tuned: bool = True,
    seed: int = 0,
) -> tuple[float, int]:
    """Set the head to the best one of :func:`choose_head`; return its strength and the number of documents it is from.

    ``vectors`` are those of ``learned``, (N, H), ``dev`` the vectors and gold labels of dev.
    """
    head, today = model.classifier, Decisions(model.config.taxonomy, thresholds=model.config.threshold)
    start = copy.deepcopy(head.state_dict())
    nameless = start | {"weight": torch.zeros_like(start["weight"])}
    heads = [(strength, len(learned), start) for strength in STRENGTHS]
    if documents < len(learned):
        heads.append((STRENGTH, documents, nameless))
    scored = []
    for strength, number, rows in heads:
        head.load_state_dict(rows)
        fit_vectors(model, vectors[:number], learned.select(range(number)), strength)
        with torch.no_grad():
            logits = head(torch.from_numpy(dev[0]).to(head.weight.device)).cpu().numpy()
        found = calibrate(Outputs(logits, dev[1]), today, seed=seed, log=SILENT)
        value = (found.after if tuned else found.before).by("both")
        scored.append((value, strength, number, copy.deepcopy(head.state_dict())))
    _, strength, number, rows = max(scored, key=lambda one: one[0])  # ties: the first
    head.load_state_dict(rows)
    return strength, number


@contextmanager
def encoded(
    model: FlatForSequenceClassification,
    learned: datasets.Dataset,
    collator: Collator,
) -> Iterator[NDArray[np.float32]]:
    """Yield the vectors of documents, (N, H), on the first rank; the others yield none."""
    with vector_store(len(learned) if rank() == 0 else 0, model.config.text_encoder.hidden_size) as vectors:
        encoded = encode_documents(model, learned, collator, lambda batch: model.encode(**batch))
        for _ in range(-(-len(learned) // (BATCH * world_size()))):  # batches of the rank that has the most
            part = next(encoded, None)
            for each in gather_objects(None if part is None else part[:2]):
                if each is not None and rank() == 0:
                    vectors[each[0]] = each[1]
        yield vectors


@contextmanager
def vector_store(documents: int, width: int) -> Iterator[NDArray[np.float32]]:
    """Yield an array for vectors, (N, H), in memory or, if it is large, in a temporary file in the cache."""
    size = 4 * documents * width
    if size <= IN_MEMORY:
        yield np.zeros((documents, width), dtype=np.float32)
        return
    cache_dir().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=cache_dir(), prefix="vectors-") as file:
        if hasattr(os, "posix_fallocate"):  # otherwise a full disk kills the process when it writes vectors
            os.posix_fallocate(file.fileno(), 0, size)
        yield np.memmap(file, dtype=np.float32, mode="w+", shape=(documents, width))


def fit_vectors(
    model: FlatForSequenceClassification,
    vectors: NDArray[np.float32],
    learned: datasets.Dataset,
    strength: float,
    *,
    iterations: int | None = None,
) -> None:
    """Fit the head to vectors of documents, (N, H), by at most ``ITERATIONS`` iterations; see :func:`fit_head`."""
    head = model.classifier
    start = head.weight.detach().cpu()  # W_0
    weight, bias = (part.detach().cpu().clone().requires_grad_() for part in (head.weight, head.bias))
    optimizer = torch.optim.LBFGS(
        [weight, bias], max_iter=iterations or ITERATIONS, history_size=10, line_search_fn="strong_wolfe"
    )
    documents, step = len(learned), max(1, FEATURE_ENTRIES // max(start.shape))
    targets = target_rows(learned, len(start))

    def closure() -> Tensor:
        optimizer.zero_grad()
        total = strength / 2 * (weight - start).square().sum()
        total.backward()
        for begin in range(0, documents, step):
            end = min(begin + step, documents)
            logits = torch.from_numpy(np.array(vectors[begin:end])) @ weight.T + bias
            loss = classification_loss(logits, targets(begin, end), "document") * ((end - begin) / documents)
            loss.backward()
            total = total.detach() + loss.detach()
        return total

    optimizer.step(closure)
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.copy_(bias)


def target_rows(learned: datasets.Dataset, labels: int) -> Callable[[int, int], Tensor]:
    """Return a function from the range of some documents to their targets, (n, K), as the collator makes them."""
    columns = {name: value for name, value in (("labels", 1.0), ("unsure", np.nan)) if name in learned.column_names}
    table = learned.select_columns(list(columns)).with_format("arrow")[:]
    entries = []  # label indices, their target, and where those of each document begin
    for name, value in columns.items():
        column = table.column(name).combine_chunks()
        starts = np.concatenate([[0], np.cumsum(column.value_lengths().to_numpy(zero_copy_only=False))])
        entries.append((column.flatten().to_numpy(zero_copy_only=False), value, starts))

    def rows(begin: int, end: int) -> Tensor:
        targets = np.zeros((end - begin, labels), dtype=np.float32)
        for indices, value, starts in entries:
            places = np.repeat(np.arange(end - begin), np.diff(starts[begin : end + 1]))
            targets[places, indices[starts[begin] : starts[end]]] = value
        return torch.from_numpy(targets)

    return rows


def refit_head(
    model: FlatForSequenceClassification,
    learned: datasets.Dataset,
    dev: datasets.Dataset,
    collator: Collator,
    *,
    seed: int,
) -> tuple[dict[str, Any], Calibrated | None]:
    """Refit the head of a trained model, see :func:`fit_head`; return the recipe and the decisions tuned on dev.

    With many documents and few epochs, the head lags behind the encoder, most of all for rare labels. The better head
    on dev is kept; each is scored with its own decisions, on documents that they were not tuned on.
    """
    former, before = copy.deepcopy(model.classifier), tune_decisions(model, dev, collator, seed=seed)
    recipe = fit_head(model, learned, collator, strength=TRAINED_STRENGTH)
    after = tune_decisions(model, dev, collator, seed=seed)
    kept = before is None or after is None or after.after.by("both") > before.after.by("both")
    if not kept:
        model.classifier.load_state_dict(former.state_dict())
    logger.info("head refit: the %s head is kept", "new" if kept else "old")
    return recipe | {"kept": kept}, after if kept else before
