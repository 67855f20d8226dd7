"""The optimisation settings of a run: defaults follow from data and encoder, or from the paper."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from hgclr.errors import InputError
from hgclr.training.settings import TrainingSettings

Precision = Literal["fp32", "bf16", "fp16"]


@dataclass(frozen=True)
class Recipe:
    """All optimisation settings, with defaults filled in."""

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
"""Learning rate of a MiniLM-L6; larger encoders have lower ones."""
SMALL_BATCH = 16
"""Documents in a batch, unless there are many short ones."""
MANY_DOCUMENTS = 10_000
"""From this number of documents on, batches of short texts are larger, and the head is refitted. With fewer documents,
larger batches leave too few steps, and an encoder overfits its training documents too much for a head refit."""
LARGEST_BATCH = 64
"""Limit on the documents in a batch of short texts."""
FULL_STEP = 1024
"""Tokens beyond which larger batches save no time; at a sixth of them, a third of a step's time is overhead."""
LORA_RATE = 10.0
"""Learning rate of adapters, as a multiple of the encoder's."""
STEPS, STEPS_FROM_NAMES = 750, 300
"""Training steps for a head that starts from random weights, and for one that starts from label names."""


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
    """Return the recipe, with defaults for all that ``settings`` do not set.

    Args:
        settings: the user's choices.
        documents: size of the training set.
        encoder_parameters: size of the encoder without its embeddings.
        mean_length: mean number of tokens in a document.
        pretrained: whether the encoder is pretrained; otherwise it needs higher learning rates and more epochs.
        head_rate: learning rate of the layers on top of the encoder, as a multiple of the encoder's. If it is above 1
            and no rate is set, it multiplies :data:`SMALL_RATE` for encoders of any size, because new layers need it.
        from_names: the head starts from the label names, and needs fewer steps.
        lora: adapters are trained instead of the encoder, at :data:`LORA_RATE` times its rate.
    """
    paper = settings.recipe == "paper"
    if pretrained:
        batch_size, rate = (12, 3e-5) if paper else (SMALL_BATCH, default_rate(encoder_parameters))
    else:  # the paper's recipe for baselines without a pretrained encoder
        batch_size, rate, head_rate = (64, 1e-4, 1.0) if paper else (SMALL_BATCH, 1e-3, 1.0)
    times = LORA_RATE if lora else 1.0
    new_rate = SMALL_RATE if pretrained and head_rate > 1 else rate  # multiplied by head_rate
    if pretrained and not paper and settings.batch_size is None and settings.gradient_accumulation == 1:
        batch_size = default_batch(documents, mean_length)
        rise = math.sqrt(batch_size / SMALL_BATCH)  # larger batches are less noisy, and allow larger steps
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
    """Return the encoder's learning rate: 3e-4 for a MiniLM-L6 (11 M parameters), 4e-5 for a base model (85 M)."""
    return min(SMALL_RATE, max(1e-5, SMALL_RATE * 11e6 / max(encoder_parameters, 1)))


def default_batch(documents: int, mean_length: float) -> int:
    """Return the documents in a batch: 16, or up to 64 if there are many short texts."""
    batch_size = SMALL_BATCH
    while documents >= MANY_DOCUMENTS and batch_size < LARGEST_BATCH and 2 * batch_size * mean_length <= FULL_STEP:
        batch_size *= 2
    return batch_size


def default_epochs(steps: int, wanted: int) -> int:
    """Return the number of epochs, 5 to 30, that comes closest to the ``wanted`` steps."""
    return min(30, max(5, round(wanted / steps)))


def choose_precision(requested: Literal["auto", "fp32", "bf16", "fp16"]) -> Precision:
    """Return the precision to train in; ``auto`` is bf16 on a GPU that supports it and fp32 otherwise.

    Raises:
        InputError: if the requested precision does not run on this machine.
    """
    import torch

    if requested == "fp16" and not torch.accelerator.is_available():
        raise InputError("precision fp16 needs a GPU, and there is none", remedy="set training.precision=auto")
    native = torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    if requested == "bf16" and torch.cuda.is_available() and not native:
        raise InputError("this GPU does not support bf16", remedy="set training.precision to fp16 or auto")
    if requested == "auto":
        return "bf16" if native else "fp32"
    return requested
