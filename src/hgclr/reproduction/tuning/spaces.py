"""What a search may turn: the paper's grid over lambda and gamma, or a space for Optuna to explore."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from hgclr.config import HGCLRConfig
from hgclr.encoders import TEXTRCNN
from hgclr.errors import InputError
from hgclr.models.base import load_encoder_config, new_encoder
from hgclr.models.textrcnn import TextRCNNConfig
from hgclr.reproduction.tuning.parameters import WEIGHT, check_one, method_of
from hgclr.training import RunConfig
from hgclr.training.preparing import count_parameters
from hgclr.training.recipes import make_recipe

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

__all__ = ["FRACTIONS", "GAMMAS", "LAMBDAS", "Search", "attributes", "default_space", "grid"]

# Every value that the paper states or that stands behind the published program's main table.
LAMBDAS = (0.05, 0.1, 0.3)
GAMMAS = (0.001, 0.002, 0.005, 0.02)
# The scale-free counterpart of gamma.
FRACTIONS = (0.3, 0.5, 0.7, 0.9)


@dataclass(frozen=True)
class Search:
    """A space of settings, and the points to visit where it is a grid.

    Args:
        space: by setting, such as ``model.keep_fraction``, the values it may take.
        points: by setting the values of the grid; None leaves the choice to Optuna's TPE.
    """

    space: dict[str, BaseDistribution]
    points: dict[str, list[float]] | None = None

    @property
    def size(self) -> int | None:
        """Return the number of points of a grid."""
        return None if self.points is None else math.prod(len(values) for values in self.points.values())

    def to_json(self) -> dict[str, Any]:
        """Return by setting the points of the grid, or the range or the choices."""
        if self.points is not None:
            return dict(self.points)
        return {
            key: {name: value for name, value in attributes(distribution).items() if value not in (None, False)}
            for key, distribution in self.space.items()
        }


def grid(
    run: RunConfig,
    *,
    lambdas: Sequence[float] = LAMBDAS,
    gammas: Sequence[float] | None = None,
    fractions: Sequence[float] | None = None,
) -> Search:
    """Return the paper's grid: every lambda (contrastive_weight) with every gamma (keep_threshold).

    Args:
        run: the settings that all points share.
        lambdas: weights of the contrastive loss.
        gammas: thresholds of keeping a token.
        fractions: shares of tokens to keep, instead of gammas. Where neither is given, the rule that ``run`` keeps
            tokens by decides which of the two is searched, over :data:`GAMMAS` or :data:`FRACTIONS`.

    Raises:
        InputError: if a value does not fit, is given twice, or the architecture has no lambda and gamma.
    """
    from optuna.distributions import FloatDistribution

    _refuse_others(run, "neither lambda nor gamma", "set model.architecture=hgclr")
    if gammas is not None and fractions is not None:
        raise InputError("gammas and fractions are both given", remedy="a text's tokens are kept by one of them")
    if gammas is None and fractions is None:
        by_fraction = method_of(run).get("keep_threshold") is None
        gammas, fractions = (None, FRACTIONS) if by_fraction else (GAMMAS, None)
    keep, values = ("model.keep_threshold", gammas) if gammas is not None else ("model.keep_fraction", fractions)
    points = {WEIGHT: list(lambdas), keep: list(values or ())}
    space: dict[str, BaseDistribution] = {}
    for key, given in points.items():
        if not given:
            raise InputError(f"{key} has no value to try", remedy="give at least one")
        for value, following in itertools.pairwise(sorted(given)):
            if value == following:
                raise InputError(f"{key} is to be tried twice with {value}", remedy="give each value once")
        for value in given:
            check_one(run, key, value)
        space[key] = FloatDistribution(min(given), max(given), log=min(given) > 0)
    return Search(space, points)


def default_space(run: RunConfig) -> Search:
    """Return what is worth searching in HGCLR: how much is kept, how it is drawn, and how the losses are weighed.

    The learning rate may differ from the recipe's by a factor of four. Where ``run`` keeps tokens by gamma, gamma is
    searched; else the share to keep and the least number of tokens.

    Raises:
        InputError: if ``run`` trains another architecture, or its encoder cannot be loaded.
    """
    from optuna.distributions import FloatDistribution, IntDistribution

    _refuse_others(run, "no default space", "describe what to search in a file and give it by --space")
    by_fraction = method_of(run).get("keep_threshold") is None
    keeping: dict[str, BaseDistribution] = (
        {"model.keep_fraction": FloatDistribution(0.3, 1.0), "model.keep_at_least": IntDistribution(0, 24, step=4)}
        if by_fraction
        else {"model.keep_threshold": FloatDistribution(0.0005, 0.1, log=True)}
    )
    rate = recipe_rate(run)
    return Search(
        {
            WEIGHT: FloatDistribution(0.003, 1.0, log=True),
            **keeping,
            "model.contrastive_temperature": FloatDistribution(0.05, 1.0, log=True),
            "model.gumbel_temperature": FloatDistribution(0.3, 2.0),
            "training.learning_rate": FloatDistribution(rate / 4, rate * 4, log=True),
        }
    )


def recipe_rate(run: RunConfig) -> float:
    """Return the learning rate that ``run`` would train its encoder with."""
    if run.training.learning_rate is not None:
        return run.training.learning_rate
    if run.model.start is not None:
        config = HGCLRConfig.from_pretrained(run.model.start).text_encoder
    else:
        config = TextRCNNConfig() if run.model.encoder == TEXTRCNN else load_encoder_config(run.model.encoder)
    with torch.device("meta"):
        parameters = count_parameters(new_encoder(config))
    recipe = make_recipe(
        run.training,
        documents=1,  # the rate does not depend on it
        encoder_parameters=parameters,
        pretrained=config.model_type != TEXTRCNN,
    )
    return recipe.learning_rate


def attributes(distribution: BaseDistribution) -> dict[str, Any]:
    """Return ``choices``, or ``low``, ``high``, ``log`` and ``step``."""
    from optuna.distributions import distribution_to_json

    found: dict[str, Any] = json.loads(distribution_to_json(distribution))["attributes"]
    return found


def _refuse_others(run: RunConfig, lack: str, remedy: str) -> None:
    if run.model.architecture != "hgclr":
        raise InputError(f"the architecture {run.model.architecture!r} has {lack}", remedy=remedy)
