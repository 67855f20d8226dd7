"""Read from a YAML file what a search may turn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args

from hgclr.config import HGCLRConfig
from hgclr.errors import InputError
from hgclr.reproduction.tuning.parameters import check, check_one
from hgclr.reproduction.tuning.spaces import Search, attributes
from hgclr.training import RunConfig
from hgclr.training.settings import ModelSettings, TrainingSettings, read_yaml

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

__all__ = ["read_space"]

_RANGE = {"low", "high", "log", "step"}


def read_space(path: Path, run: RunConfig) -> Search:
    """Read a space from a YAML file: settings, each with ``low`` and ``high`` (``log``, ``step``) or ``choices``.

    Raises:
        InputError: naming the key, if a setting is unknown or cannot be searched, or a bound or choice does not fit.
    """
    tree = read_yaml(path)
    if not isinstance(tree, dict) or not tree:
        raise InputError(
            "expected settings with their ranges", path=path, remedy="write model.keep_fraction: {low: 0.3, high: 1}"
        )
    space = {str(key): _distribution(str(key), entry, run, path) for key, entry in tree.items()}
    try:  # what fits one by one may not fit together
        check(run, {key: _first(distribution) for key, distribution in space.items()})
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


def _first(distribution: BaseDistribution) -> Any:
    """Return a value of the space."""
    values = attributes(distribution)
    return values["choices"][0] if "choices" in values else values["low"]
