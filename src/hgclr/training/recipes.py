"""Optimisation recipes: ``paper`` for the paper's data, ``default`` for any data and encoder.

The paper's recipe (Adam at 3e-5 for everything, 2,000 warm-up steps) needs tens of thousands of documents to get off
the ground. The default recipe starts the head's bias at the labels' log base rates, so that the first steps need not
learn that most labels are absent, gives new layers ten times the encoder's rate, and takes the encoder's rate from its
size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hgclr.training.settings import TrainingSettings

__all__ = ["Recipe", "make_recipe"]


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


def make_recipe(
    settings: TrainingSettings,
    *,
    documents: int,
    encoder_parameters: int,
    pretrained: bool = True,
    head_rate: float = 10.0,
) -> Recipe:
    """Fill what ``settings`` leave open.

    Args:
        settings: the user's choices.
        documents: size of the training set.
        encoder_parameters: size of the encoder without its embeddings.
        pretrained: the encoder knows the language already; one that does not needs higher rates and more epochs.
        head_rate: how many times the encoder's rate the layers on top of it take.
    """
    paper = settings.recipe == "paper"
    if pretrained:
        batch_size, rate = (12, 3e-5) if paper else (16, default_rate(encoder_parameters))
    else:  # the paper's is the recipe of the systems on TextRCNN that it compares with
        batch_size, rate, head_rate = (64, 1e-4, 1.0) if paper else (16, 1e-3, 1.0)
    batch_size, rate = settings.batch_size or batch_size, settings.learning_rate or rate
    steps = math.ceil(documents / (batch_size * settings.gradient_accumulation))

    def choose(given: Any, of_paper: Any, otherwise: Any) -> Any:
        return given if given is not None else of_paper if paper else otherwise

    return Recipe(
        epochs=choose(settings.epochs, 100 if pretrained else 200, default_epochs(steps) * (1 if pretrained else 5)),
        steps_per_epoch=steps,
        batch_size=batch_size,
        learning_rate=rate,
        head_learning_rate=choose(settings.head_learning_rate, rate, head_rate * rate),
        warmup=choose(settings.warmup, 2000.0 if pretrained else 0.0, 0.1),
        schedule=choose(settings.schedule, "constant", "linear"),
        weight_decay=choose(settings.weight_decay, 0.0, 0.01),
        max_gradient_norm=choose(settings.max_gradient_norm, 0.0, 1.0),
        base_rate_bias=choose(settings.base_rate_bias, False, True),
    )


def default_rate(encoder_parameters: int) -> float:
    """Return the encoder's rate: 3e-4 for a MiniLM-L6 (11 M without word embeddings), 4e-5 for a base model (85 M)."""
    return min(3e-4, max(1e-5, 3e-4 * 11e6 / max(encoder_parameters, 1)))


def default_epochs(steps: int) -> int:
    """Return the number of epochs for an epoch of ``steps``: about 750 steps in all, but 5 to 30 epochs."""
    return min(30, max(5, round(750 / steps)))
