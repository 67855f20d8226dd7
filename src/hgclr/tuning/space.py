"""What a search may vary: a grid over lambda and gamma, whose values are ours, or a space for Optuna to explore."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args

import torch

from hgclr.config import method_settings
from hgclr.errors import InputError
from hgclr.models import HGCLRConfig
from hgclr.models.pretrained import load_encoder_config, load_pretrained, new_encoder
from hgclr.registry import is_pretrained
from hgclr.remote import local
from hgclr.training import RunConfig
from hgclr.training.core import count_parameters
from hgclr.training.settings import ModelSettings, TrainingSettings, make_recipe, read_yaml

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

__all__ = [
    "Search",
    "attributes",
    "check_one",
    "default_space",
    "describe",
    "grid",
    "read_space",
    "short_name",
    "with_parameters",
]

# Every value that the paper states or that stands behind the published program's main table.
LAMBDAS = (0.05, 0.1, 0.3)
GAMMAS = (0.001, 0.002, 0.005, 0.02)
# The scale-free counterpart of gamma.
FRACTIONS = (0.3, 0.5, 0.7, 0.9)
WEIGHT = "model.contrastive_weight"
_RANGE = {"low", "high", "log", "step"}
# One of these decides which tokens are kept; who sets the one takes the other away.
_RIVALS = {"keep_threshold": "keep_fraction", "keep_fraction": "keep_threshold"}
_SYMBOLS = {WEIGHT: "lambda", "model.keep_threshold": "gamma", "model.contrastive_temperature": "tau"}


def with_parameters(
    run: RunConfig, parameters: Mapping[str, Any], *, output: Path | None = None, seed: int | None = None
) -> RunConfig:
    """Return ``run`` with ``parameters`` such as ``{"model.keep_fraction": 0.5}``, an output folder and a seed.

    What ``run`` leaves to recipe and preset stays theirs to decide.
    """
    tree = run.model_dump(mode="json", exclude_unset=True)
    if seed is not None:
        parameters = {**parameters, "training.seed": seed}
    for key, value in parameters.items():
        section, _, name = key.partition(".")
        tree.setdefault(section, {})[name] = value
        if name in _RIVALS and f"{section}.{_RIVALS[name]}" not in parameters:
            tree[section].pop(_RIVALS[name], None)
    if output is not None:
        tree["output"] = str(output)
    return RunConfig.build(tree)


def _method_of(run: RunConfig) -> dict[str, Any]:
    """Return the method's settings that ``run`` starts from; a name or value that does not fit is an InputError."""
    return method_settings("default" if run.model.start else run.model.preset, run.model.overrides)


def check_one(run: RunConfig, key: str, value: Any, path: Path | None = None) -> None:
    """Refuse a value that a run would refuse, naming the setting and the file it is in."""
    try:
        _method_of(with_parameters(run, {key: value}))
    except InputError as error:
        what = error.what if error.what.startswith(key) else f"{key}: {error.what}"
        raise InputError(what, path=path, remedy=error.remedy) from None


def short_name(key: str) -> str:
    """Return the paper's symbol of a setting, or its name without the section.

    Example:
        >>> short_name("model.contrastive_weight"), short_name("training.learning_rate")
        ('lambda', 'learning rate')
    """
    return _SYMBOLS.get(key, key.rpartition(".")[2].replace("_", " "))


def describe(parameters: Mapping[str, Any]) -> str:
    """Return parameters in a few words.

    Example:
        >>> describe({"model.contrastive_weight": 0.1, "model.keep_threshold": 0.02})
        'lambda 0.1, gamma 0.02'
    """
    return ", ".join(
        f"{short_name(key)} {value:.3g}" if isinstance(value, float) else f"{short_name(key)} {value}"
        for key, value in parameters.items()
    )


@dataclass(frozen=True)
class Search:
    """By setting, such as ``model.keep_fraction``, the values it may take; where it is a grid, the points to visit.

    Without points, the choice is left to Optuna's TPE.
    """

    space: dict[str, BaseDistribution]
    points: dict[str, list[float]] | None = None

    @property
    def size(self) -> int | None:
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
    """Return a grid of our values: every lambda (contrastive_weight) with every gamma (keep_threshold).

    Args:
        run: the settings that all points share.
        lambdas: weights of the contrastive loss.
        gammas: thresholds of keeping a token.
        fractions: shares of tokens to keep, instead of gammas. Where neither is given, the rule that ``run`` keeps
            tokens by decides which of the two is searched, over :data:`GAMMAS` or :data:`FRACTIONS`.
    """
    from optuna.distributions import FloatDistribution

    _refuse_others(run, "neither lambda nor gamma", "set model.architecture=hgclr")
    if gammas is not None and fractions is not None:
        raise InputError("gammas and fractions are both given", remedy="a text's tokens are kept by one of them")
    if gammas is None and fractions is None:
        by_fraction = _method_of(run).get("keep_threshold") is None
        gammas, fractions = (None, FRACTIONS) if by_fraction else (GAMMAS, None)
    keep, values = ("model.keep_threshold", gammas) if gammas is not None else ("model.keep_fraction", fractions)
    points = {WEIGHT: list(lambdas), keep: list(values or ())}
    space: dict[str, BaseDistribution] = {}
    for key, tried in points.items():
        if not tried:
            raise InputError(f"{key} has no value to try", remedy="give at least one")
        for value in tried:
            if tried.count(value) > 1:
                raise InputError(f"{key} is to be tried twice with {value}", remedy="give each value once")
            check_one(run, key, value)
        space[key] = FloatDistribution(min(tried), max(tried), log=min(tried) > 0)
    return Search(space, points)


def default_space(run: RunConfig) -> Search:
    """Return the settings of HGCLR worth searching: how much is kept, how it is drawn, and how the losses are weighted.

    The learning rate may differ from the recipe's by a factor of four. Where ``run`` keeps tokens by gamma, gamma is
    searched; else the share to keep and the least number of tokens.
    """
    from optuna.distributions import FloatDistribution, IntDistribution

    _refuse_others(run, "no default space", "describe what to search in a file and give it by --space")
    by_fraction = _method_of(run).get("keep_threshold") is None
    keeping: dict[str, BaseDistribution] = (
        {"model.keep_fraction": FloatDistribution(0.3, 1.0), "model.keep_at_least": IntDistribution(0, 24, step=4)}
        if by_fraction
        else {"model.keep_threshold": FloatDistribution(0.0005, 0.1, log=True)}
    )
    rate = _recipe_rate(run)
    return Search(
        {
            WEIGHT: FloatDistribution(0.003, 1.0, log=True),
            **keeping,
            "model.contrastive_temperature": FloatDistribution(0.05, 1.0, log=True),
            "model.gumbel_temperature": FloatDistribution(0.3, 2.0),
            "training.learning_rate": FloatDistribution(rate / 4, rate * 4, log=True),
        }
    )


def _recipe_rate(run: RunConfig) -> float:
    """Return the learning rate that ``run`` would train its encoder with."""
    if run.training.learning_rate is not None:
        return run.training.learning_rate
    if run.model.start is not None:
        config = load_pretrained(HGCLRConfig, local(run.model.start)).text_encoder
    else:
        if not is_pretrained(run.model.encoder):
            return make_recipe(run.training, documents=1, encoder_parameters=1, pretrained=False).learning_rate
        config = load_encoder_config(run.model.encoder)
    with torch.device("meta"):
        parameters = count_parameters(new_encoder(config))
    pretrained = is_pretrained(config.model_type)
    # That of small data: the one for many short documents is twice as high at most, and within the space.
    return make_recipe(
        run.training,
        documents=1,
        encoder_parameters=parameters,
        pretrained=pretrained,
        lora=run.model.lora is not None,
    ).learning_rate


def attributes(distribution: BaseDistribution) -> dict[str, Any]:
    """Return ``choices``, or ``low``, ``high``, ``log`` and ``step``."""
    from optuna.distributions import distribution_to_json

    values: dict[str, Any] = json.loads(distribution_to_json(distribution))["attributes"]
    return values


def _refuse_others(run: RunConfig, lack: str, remedy: str) -> None:
    if run.model.architecture != "hgclr":
        raise InputError(f"the architecture {run.model.architecture!r} has {lack}", remedy=remedy)


def read_space(path: Path, run: RunConfig) -> Search:
    """Read a space from a YAML file: settings, each with ``low`` and ``high`` (``log``, ``step``) or ``choices``."""
    tree = read_yaml(path)
    if not isinstance(tree, dict) or not tree:
        raise InputError(
            "expected settings with their ranges", path=path, remedy="write model.keep_fraction: {low: 0.3, high: 1}"
        )
    space = {str(key): _distribution(str(key), entry, run, path) for key, entry in tree.items()}
    try:  # what fits one by one may not fit together
        first = {key: attributes(distribution) for key, distribution in space.items()}
        values = {key: each["choices"][0] if "choices" in each else each["low"] for key, each in first.items()}
        _method_of(with_parameters(run, values))
    except InputError as error:
        raise InputError(f"the settings do not fit together: {error.what}", path=path, remedy=error.remedy) from None
    return Search(space)


def _distribution(key: str, entry: object, run: RunConfig, path: Path) -> BaseDistribution:
    """Translate one entry of the file; both ends of a range and every choice must make a valid run."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    kind = _kind(key, run, path)
    if not isinstance(entry, dict) or not (set(entry) == {"choices"} or {"low", "high"} <= set(entry) <= _RANGE):
        raise InputError(
            f"{key}: expected low and high, with log or step where wanted, or choices; got {entry!r}", path=path
        )
    if "choices" in entry:
        if not isinstance(entry["choices"], list) or not entry["choices"]:
            raise InputError(f"{key}: choices is no list of values", path=path)
        choices = [
            value if kind is None or value is None else _number(key, value, kind, path) for value in entry["choices"]
        ]
        for choice in choices:
            check_one(run, key, choice, path)
        return CategoricalDistribution(choices)
    if kind is None:
        raise InputError(f"{key}: is no number and has no range", path=path, remedy="give choices")
    bounds = {name: _number(key, entry[name], kind, path) for name in ("low", "high", "step") if name in entry}
    if bounds["low"] >= bounds["high"]:
        raise InputError(f"{key}: low is {bounds['low']}, not below high, which is {bounds['high']}", path=path)
    if not isinstance(log := entry.get("log", False), bool):
        raise InputError(f"{key}: log is {log!r}", path=path, remedy="give true or false")
    if log and (bounds["low"] <= 0 or "step" in bounds):
        raise InputError(f"{key}: log needs a low above 0 and no step; got {entry!r}", path=path)
    if bounds.get("step", 1) <= 0:
        raise InputError(f"{key}: step is {bounds['step']}", path=path, remedy="give a positive number")
    for name in ("low", "high"):
        check_one(run, key, bounds[name], path)
    if kind is int:
        return IntDistribution(int(bounds["low"]), int(bounds["high"]), log, int(bounds.get("step", 1)))
    return FloatDistribution(bounds["low"], bounds["high"], log, bounds.get("step"))


def _kind(key: str, run: RunConfig, path: Path) -> type[int] | type[float] | None:
    """Return what numbers a setting takes, None where it takes none; refuse what cannot be searched."""
    section, _, name = key.partition(".")
    if key == "training.seed":
        raise InputError(f"{key}: a seed is no setting to choose", path=path, remedy="give the seeds by --seeds")
    if section not in ("model", "training"):
        raise InputError(
            f"{key}: is not to be searched",
            path=path,
            remedy="search settings of model and training; dev scores on other data cannot be compared",
        )
    fields: Mapping[str, Any] = TrainingSettings.model_fields if section == "training" else ModelSettings.model_fields
    if name in fields:
        annotation = fields[name].annotation
    elif section == "model" and name in HGCLRConfig.__dataclass_fields__:
        annotation = HGCLRConfig.__dataclass_fields__[name].type
    else:
        check_one(run, key, 0, path)
        raise InputError(f"{key}: unknown setting", path=path)
    kinds = set(get_args(annotation)) - {NoneType} or {annotation}
    return float if float in kinds else int if int in kinds else None


def _number(key: str, value: object, kind: type[int] | type[float], path: Path) -> float:
    """Return a value as the setting's kind of number; YAML 1.1 takes 3e-5 for a word."""
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (kind is int and number != int(number)):
        raise InputError(f"{key}: {value!r} is no {'whole ' if kind is int else ''}number", path=path)
    return kind(number)
