"""Settings that a search turns: put into a run, checked as a run checks them, and named for people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hgclr.config import method_settings
from hgclr.errors import InputError
from hgclr.training import RunConfig

__all__ = ["WEIGHT", "check", "check_one", "describe", "method_of", "short_name", "with_parameters"]

WEIGHT = "model.contrastive_weight"
# One of these decides which tokens are kept; who sets the one takes the other away.
_RIVALS = {"keep_threshold": "keep_fraction", "keep_fraction": "keep_threshold"}
_SYMBOLS = {WEIGHT: "lambda", "model.keep_threshold": "gamma", "model.contrastive_temperature": "tau"}


def with_parameters(
    run: RunConfig, parameters: Mapping[str, Any], *, output: Path | None = None, seed: int | None = None
) -> RunConfig:
    """Return ``run`` with ``parameters`` such as ``{"model.keep_fraction": 0.5}``, an output folder and a seed.

    What ``run`` leaves to recipe and preset stays theirs to decide.

    Raises:
        InputError: if a value does not fit.
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


def method_of(run: RunConfig) -> dict[str, Any]:
    """Return the method's settings that ``run`` starts from, each name and value checked.

    Raises:
        InputError: unknown setting (with the nearest name), or a value out of range.
    """
    return method_settings("default" if run.model.start else run.model.preset, run.model.overrides)


def check(run: RunConfig, parameters: Mapping[str, Any]) -> None:
    """Raise the InputError that a run with ``parameters`` would stop with before its first step, if any."""
    method_of(with_parameters(run, parameters))


def check_one(run: RunConfig, key: str, value: Any, path: Path | None = None) -> None:
    """Refuse a value that a run would refuse, naming the setting and the file it is in."""
    try:
        check(run, {key: value})
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
