"""Every setting of a run with its values, its default and its meaning, from the classes that check them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from hgclr.config import PRESETS, method_fields, setting_classes
from hgclr.training.settings import DataSettings, ModelSettings, TrainingSettings

__all__ = ["Setting", "argument_texts", "list_settings", "written"]

ARGUMENT = re.compile(r" {8}(\w+(?:, \w+)*): (.*)")
# :class:`~hgclr.taxonomy.Taxonomy` is shown as Taxonomy, :meth:`predict` as predict.
ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):`(?:~[\w.]*\.)?([^`]+)`")
BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<", "min_length": "at least"}


@dataclass(frozen=True)
class Setting:
    """A setting of a run.

    Args:
        section: ``data``, ``model``, ``training``, or ``method``, whose settings stand in ``model`` as well.
        kind: the values it takes, in words.
        choices: the values themselves, if they are few.
        default: its value if it is not set; None also where the recipe or the preset decides.
        meaning: what it does, a sentence with code in backquotes.
        presets: the presets that set it to another value.
    """

    section: Literal["data", "model", "method", "training"]
    name: str
    kind: str
    choices: tuple[str, ...]
    default: Any
    meaning: str
    required: bool = False
    presets: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The name with its section, as ``--set`` takes it."""
        return f"{'model' if self.section == 'method' else self.section}.{self.name}"

    def to_json(self) -> dict[str, Any]:
        """Return the setting as plain values for a JSON file."""
        values = {"choices": list(self.choices)} if self.choices else {}
        decided = {"required": True} if self.required else {"default": self.default}
        presets = {"presets": self.presets} if self.presets else {}
        return {"name": self.key, "type": self.kind, **values, **decided, **presets, "meaning": self.meaning}


def list_settings() -> list[Setting]:
    """Return all settings, section by section."""
    return [
        *_section("data", DataSettings),
        *_section("model", ModelSettings),
        *_method(),
        *_section("training", TrainingSettings),
    ]


def written(value: Any) -> str:
    """Return a value as YAML writes it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)


def argument_texts(documented: type) -> dict[str, str]:
    """Return what the docstrings of a class and of ours above it say of each argument; ``a, b: …`` counts for both."""
    texts: dict[str, str] = {}
    for part in reversed([part for part in documented.__mro__ if part.__module__.startswith("hgclr.")]):
        _, _, arguments = (part.__doc__ or "").partition("\n    Args:\n")
        names: list[str] = []
        for line in arguments.splitlines():
            if line.strip() and not line.startswith(" " * 8):
                break
            if match := ARGUMENT.fullmatch(line):
                names, line = match[1].split(", "), match[2]
                texts.update(dict.fromkeys(names, ""))
            for name in names:
                texts[name] = f"{texts[name]} {line.strip()}".strip()
    return {name: ROLE.sub(r"`\1`", text) for name, text in texts.items()}


def _section(
    section: Literal["data", "model", "training"], model: type[BaseModel], inside: str = ""
) -> Iterator[Setting]:
    texts = argument_texts(model)
    for name, info in model.model_fields.items():
        bounds = (_bound(bound) for bound in info.metadata)
        yield Setting(
            section,
            inside + name,
            " ".join([_kind(info.annotation), *filter(None, bounds)]),
            _choices(info.annotation),
            None if info.is_required() else info.default,
            _sentence(info.description or texts[name]),
            required=info.is_required(),
        )
        for part in get_args(info.annotation):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from _section(section, part, f"{inside}{name}.")


def _method() -> Iterator[Setting]:
    texts = {name: text for kind in setting_classes() for name, text in argument_texts(kind).items()}
    for name, known in method_fields().items():
        default = PRESETS["default"].get(name, known.default)
        presets = {preset: values[name] for preset, values in PRESETS.items() if values.get(name, default) != default}
        yield Setting(
            "method", name, _kind(known.type), _choices(known.type), default, _sentence(texts[name]), presets=presets
        )


def _sentence(text: str) -> str:
    if text[0].isascii():  # not γ
        text = text[0].upper() + text[1:]
    return text.replace("``None``", "``null``").replace("``", "`").rstrip(".") + "."


def _kind(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _kind(get_args(annotation)[0])
    if origin is Literal:
        return " | ".join(map(str, get_args(annotation)))
    if origin in (Union, UnionType):
        return " or ".join(_kind(part) for part in get_args(annotation) if part is not NoneType)
    if origin is list:
        return f"list of {_kind(get_args(annotation)[0])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    return {Path: "path", str: "text", int: "whole number", float: "number", bool: "true | false"}[annotation]


def _choices(annotation: Any) -> tuple[str, ...]:
    if get_origin(annotation) is Literal:
        return tuple(map(str, get_args(annotation)))
    return next((found for part in get_args(annotation) if (found := _choices(part))), ())


def _bound(bound: Any) -> str:
    """Write a limit such as ``Ge(ge=1)``."""
    return " ".join(f"{sign} {getattr(bound, name)}" for name, sign in BOUNDS.items() if hasattr(bound, name))
