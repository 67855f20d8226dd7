"""The optimisation settings of a run: what the user leaves out follows from data and encoder, or from the paper."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from hgclr.errors import InputError
from hgclr.training.settings import TrainingSettings

Precision = Literal["fp32", "bf16", "fp16"]


@dataclass(frozen=True)
class Recipe:
    """Every optimisation choice, decided."""

    epochs: int
    steps_per_epoch: int
    batch_size: int
    learning_rate: float
    head_learning_rate: float
    warmup: float
    schedule: str
    weight_decay: float
    max_gradient_norm: float
    base_rate_bias: bool


SMALL_RATE = 3e-4
"""Rate of a MiniLM-L6, which larger encoders stay below."""
SMALL_BATCH = 16
"""Documents of a batch, unless there are many short ones."""
MANY_DOCUMENTS = 10_000
"""From how many documents on batches of short ones are larger, of fewer they would be few steps; and from how many on
the head is fitted once more: an encoder sees fewer so often that it knows them by heart."""
LARGEST_BATCH = 64
"""Documents of a batch of many short ones, at most."""
FULL_STEP = 1024
"""Tokens of a batch beyond which a larger one saves nothing: on a sixth of them a third of a step is fixed costs."""
LORA_RATE = 10.0
"""How many times the rate of a whole encoder its adapters take."""
STEPS, STEPS_FROM_NAMES = 750, 300
"""Steps that a head needs which starts from random weights, and one that starts from the labels' names."""


def make_recipe(
    settings: TrainingSettings,
    *,
    documents: int,
    encoder_parameters: int,
    mean_length: float = math.inf,
    pretrained: bool = True,
    head_rate: float = 10.0,
    from_names: bool = False,
    lora: bool = False,
) -> Recipe:
    """Fill what ``settings`` leave open.

    Args:
        settings: the user's choices.
        documents: size of the training set.
        encoder_parameters: size of the encoder without its embeddings.
        mean_length: tokens of a document, on average.
        pretrained: the encoder knows the language already; one that does not needs higher rates and more epochs.
        head_rate: how many times the encoder's rate the layers on top of it take. If it is more than once, and the rate
            is not set, they take it of a small encoder's, :data:`SMALL_RATE`: they start anew on one of any size.
        from_names: the head starts from the labels' names, and is soon where it belongs.
        lora: adapters are trained in the place of the encoder, at :data:`LORA_RATE` times its rate.
    """
    paper = settings.recipe == "paper"
    if pretrained:
        batch_size, rate = (12, 3e-5) if paper else (SMALL_BATCH, default_rate(encoder_parameters))
    else:  # the paper's is the recipe of the baselines that it trains without a pretrained encoder
        batch_size, rate, head_rate = (64, 1e-4, 1.0) if paper else (SMALL_BATCH, 1e-3, 1.0)
    times = LORA_RATE if lora else 1.0
    new_rate = SMALL_RATE if pretrained and head_rate > 1 else rate  # what head_rate multiplies
    if pretrained and not paper and settings.batch_size is None and settings.gradient_accumulation == 1:
        batch_size = default_batch(documents, mean_length)
        rise = math.sqrt(batch_size / SMALL_BATCH)  # larger batches are less noisy, and bear larger steps
        rate, new_rate = rise * rate, rise * new_rate
    if settings.learning_rate is not None:
        new_rate = settings.learning_rate / times
    batch_size, rate = settings.batch_size or batch_size, settings.learning_rate or times * rate
    steps = math.ceil(documents / (batch_size * settings.gradient_accumulation))
    epochs = default_epochs(steps, STEPS_FROM_NAMES if from_names and pretrained else STEPS)

    def choose(given: Any, of_paper: Any, otherwise: Any) -> Any:
        return given if given is not None else of_paper if paper else otherwise

    return Recipe(
        epochs=choose(settings.epochs, 100 if pretrained else 200, epochs * (1 if pretrained else 5)),
        steps_per_epoch=steps,
        batch_size=batch_size,
        learning_rate=rate,
        head_learning_rate=choose(settings.head_learning_rate, rate / times, head_rate * new_rate),
        warmup=choose(settings.warmup, 2000.0 if pretrained else 0.0, 0.1),
        schedule=choose(settings.schedule, "constant", "linear"),
        weight_decay=choose(settings.weight_decay, 0.0, 0.01),
        max_gradient_norm=choose(settings.max_gradient_norm, 0.0, 1.0),
        base_rate_bias=choose(settings.base_rate_bias, False, True),
    )


def default_rate(encoder_parameters: int) -> float:
    """Return the encoder's rate: 3e-4 for a MiniLM-L6 (11 M without word embeddings), 4e-5 for a base model (85 M)."""
    return min(SMALL_RATE, max(1e-5, SMALL_RATE * 11e6 / max(encoder_parameters, 1)))


def default_batch(documents: int, mean_length: float) -> int:
    """Return the documents of a batch: 16, or up to 64 of many short texts, as long as they fill a step no more."""
    batch_size = SMALL_BATCH
    while documents >= MANY_DOCUMENTS and batch_size < LARGEST_BATCH and 2 * batch_size * mean_length <= FULL_STEP:
        batch_size *= 2
    return batch_size


def default_epochs(steps: int, wanted: int) -> int:
    """Return the number of epochs for an epoch of ``steps``: about as many in all as are wanted, but 5 to 30 epochs."""
    return min(30, max(5, round(wanted / steps)))


def choose_precision(requested: Literal["auto", "fp32", "bf16", "fp16"]) -> Precision:
    """Return the precision to train in; ``auto`` is bf16 on a GPU that supports it and fp32 otherwise.

    Raises:
        InputError: if the requested precision does not run on this machine.
    """
    import torch

    if requested == "fp16" and not torch.accelerator.is_available():
        raise InputError("precision fp16 needs a GPU and there is none", remedy="use precision auto")
    native = torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    if requested == "bf16" and torch.cuda.is_available() and not native:
        raise InputError("this GPU has no bfloat16", remedy="use precision fp16 or auto")
    if requested == "auto":
        return "bf16" if native else "fp32"
    return requested
