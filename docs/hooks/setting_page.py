"""The reference page of the settings of a run, written from the classes that check them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from docstrings import argument_texts
from pydantic import BaseModel

from hgclr.config import PRESETS, HGCLRConfig, method_settings
from hgclr.data import DataFolder
from hgclr.errors import InputError
from hgclr.training.settings import DataSettings, ModelSettings, TrainingSettings

__all__ = ["settings_page"]

INTRODUCTION = """# Settings of a run

What the file of [`hgclr train`](commands/train.md) can hold, and `--set SECTION.NAME=VALUE` on the command line;
[how to train](../how-to/training.md) has an example. An unknown name or a value that does not fit is refused before
anything else is done. This page is written from the program when the pages are built."""
METHOD = """## model: the method

Any of these can stand in the section `model` as well. A preset that has another value than `default` is named; what the
presets are is told [beside the method](../concepts/method.md#presets)."""
TRAINING = """What has no default here comes from the [recipe](../how-to/training.md#recipes)."""
BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<", "min_length": "at least"}


def settings_page() -> str:
    """Return the page in Markdown."""
    parts = [INTRODUCTION, "## data", *_section(DataSettings, argument_texts(DataFolder)), "## model"]
    parts += [*_section(ModelSettings, {}), METHOD, *_method()]
    parts += ["## training", TRAINING, *_section(TrainingSettings, {})]
    return "\n\n".join(parts) + "\n"


def _section(section: type[BaseModel], texts: Mapping[str, str]) -> list[str]:
    """Return the definitions of a section; ``texts`` are used where the section itself says nothing of a setting."""
    own = argument_texts(section)
    entries = []
    for name, field in section.model_fields.items():
        text = field.description or own.get(name) or texts[name]
        facts = [_kind(field.annotation), *(_bound(bound) for bound in field.metadata)]
        facts.append("required" if field.is_required() else _default(field.default))
        entries.append(_definition(name, text, facts))
    return entries


def _method() -> list[str]:
    entries = []
    for name, text in argument_texts(HGCLRConfig).items():
        default = getattr(HGCLRConfig, name)
        if not _is_a_choice(name, default):
            continue
        facts = [_kind(HGCLRConfig.__dataclass_fields__[name].type), _default(default)]
        facts += [
            f"{preset} `{_written(values[name])}`"
            for preset, values in PRESETS.items()
            if name in values and values[name] != default
        ]
        entries.append(_definition(name, text, facts))
    return entries


def _is_a_choice(name: str, value: Any) -> bool:
    """Tell a user's choice from what describes encoder and tree and is filled in."""
    try:
        method_settings("default", {name: value})
    except InputError:
        return False
    return True


def _definition(name: str, text: str, facts: Iterable[str]) -> str:
    shown = " · ".join(fact for fact in facts if fact)
    if text[0].isascii():  # not γ
        text = text[0].upper() + text[1:]
    text = text.replace("``None``", "``null``")
    return f"`{name}`\n:   {text.rstrip('.')}.\n    <span class='facts'>{shown}</span>"


def _kind(annotation: Any) -> str:
    """Name the values that an annotation lets through."""
    origin = get_origin(annotation)
    if origin is Literal:
        return " ".join(f"`{value}`" for value in get_args(annotation))
    if origin in (Union, UnionType):
        return " or ".join(_kind(part) for part in get_args(annotation) if part is not NoneType)
    if origin is list:
        return f"a list of {_kind(get_args(annotation)[0])}"
    return {Path: "path", str: "text", int: "whole number", float: "number", bool: "true or false"}[annotation]


def _bound(bound: Any) -> str:
    """Write a limit such as ``Ge(ge=1)``."""
    return " ".join(f"{sign} {getattr(bound, name)}" for name, sign in BOUNDS.items() if hasattr(bound, name))


def _default(value: Any) -> str:
    return "" if value is None else f"default `{_written(value)}`"


def _written(value: Any) -> str:
    """Return a value as YAML writes it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)
