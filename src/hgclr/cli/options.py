"""Options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast, get_args

import typer

from hgclr.errors import InputError

if TYPE_CHECKING:
    from hgclr.data import DataFolder
    from hgclr.taxonomy import Taxonomy

__all__ = [
    "AbstainBelow",
    "AddAncestors",
    "Decode",
    "Engine",
    "Folder",
    "JsonFile",
    "Model",
    "Paths",
    "Raw",
    "RayAddress",
    "Reading",
    "Rule",
    "Settings",
    "SkipBadRows",
    "TaxonomyFile",
    "Threshold",
    "engine_options",
    "number_list",
    "options_from",
    "reading_options",
    "rule_option",
]

Number = TypeVar("Number", int, float)
Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="The folder 'model' written by hgclr train, a folder written by hgclr export, the URL of one (s3://…), or"
        " a hub name.",
    ),
]
Raw = Annotated[
    bool,
    typer.Option("--raw", help="In CSV and TSV: no apostrophe before cells that a spreadsheet would run as formulas."),
]
AddAncestors = Annotated[
    bool | None, typer.Option("--add-ancestors", help="Rows name only their deepest labels; add the ones above.")
]
Threshold = Annotated[
    float | None,
    typer.Option(min=0.0, max=1.0, help="Probability above which a label is predicted; default: the model's."),
]
Engine = Literal["local", "ray"]
RayAddress = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="A running Ray cluster, such as auto or 10.0.0.1:6379, whose nodes see the same files or URLs;"
        " default: Ray is started on this machine.",
    ),
]
# The library's rules, repeated so that help pages need no numpy.
Rule = Literal["threshold", "closure", "drop-orphans", "min-parent", "best-path", "top-k-paths"]


def engine_options(engine: Engine, workers: int | None, ray_address: str | None) -> dict[str, Any]:
    """Return the options of the engine ray; refuse them for the other one."""
    options = {"--workers": workers, "--ray-address": ray_address}
    given = [name for name, value in options.items() if value is not None]
    if engine == "local" and given:
        raise InputError(f"{given[0]} is for the engine ray", remedy="add --engine ray")
    return {"workers": workers, "address": ray_address}


def rule_option(explanation: str, *others: str) -> Any:
    """Return an option for a decoding rule or another word; names of version 0.1 are taken with a notice."""
    choices = (*others, *get_args(Rule))

    def read(word: str) -> str:
        if word in choices:
            return word
        from hgclr.decisions.decoding import FORMER_RULES, current_rule

        if word in FORMER_RULES:
            return current_rule(cast(Rule, word))
        raise typer.BadParameter(f"{word!r} is not one of {', '.join(map(repr, choices))}.")

    metavar = f"<{'|'.join(choices)}>"
    return typer.Option(help=explanation, parser=read, metavar=metavar, autocompletion=lambda: list(choices))


Decode = Annotated[
    Rule | None,
    rule_option(
        "Decoding rule; default: the model's. threshold: each label by itself; closure: and all ancestors;"
        " drop-orphans: only below labels that are given; min-parent: likewise, no label more probable than"
        " its parent; best-path: one path; top-k-paths: --paths of them."
    ),
]
Paths = Annotated[int | None, typer.Option(min=1, help="Number of paths for top-k-paths; default: the model's.")]
AbstainBelow = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=1.0,
        help="Stop above a label less probable than this, and list it as abstained.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one setting, such as training.epochs=4; repeatable."),
]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result here as JSON.")]
Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder with train, dev, test and a taxonomy file, or its URL.")
]
TaxonomyFile = Annotated[
    Path | None, typer.Option("--taxonomy", metavar="FILE", help="The label tree, if it is not beside the documents.")
]
SkipBadRows = Annotated[bool, typer.Option("--skip-bad-rows", help="Leave bad rows out, with a warning.")]


def number_list(option: str, text: str, kind: type[Number]) -> list[Number]:
    """Read the numbers between commas that an option was given."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        what, example = ("whole numbers", "1,2") if kind is int else ("numbers", ".05,.1")
        remedy = f"write for example {option} {example}"
        raise InputError(f"{option} {text!r} is no list of {what}", remedy=remedy) from None


@dataclass(frozen=True)
class Reading:
    """How to read a data folder: the values of the options that `reading_options` adds.

    What is left out is as the folder remembers it, see `hgclr.data.rows.RowForm`.
    """

    text_column: Annotated[
        str | None, typer.Option(help="Column with the text; default: what the folder remembers, or text.")
    ] = None
    label_column: Annotated[str | None, typer.Option(help="Column with the labels; likewise, or labels.")] = None
    label_separator: Annotated[
        str | None, typer.Option(help="Between labels that are one string, as in CSV; likewise, or ';'.")
    ] = None
    path_separator: Annotated[
        str | None, typer.Option(help="Between the names of a label given as a path; likewise, or ' > '.")
    ] = None
    add_ancestors: AddAncestors = None

    def open(self, path: Path, *, taxonomy: Taxonomy | Path | None = None, skip_bad_rows: bool = False) -> DataFolder:
        """Open a data folder to be read so; the arguments are those of `DataFolder`."""
        from hgclr.data import DataFolder

        return DataFolder(path, taxonomy=taxonomy, skip_bad_rows=skip_bad_rows, **asdict(self))


def options_from(
    kind: type, parameter: str, *, first: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the fields of a dataclass to the options of a command.

    Args:
        kind: the dataclass, whose fields are annotated as options.
        parameter: name of the command's parameter that gets an instance of it.
        first: list these options before the command's own, not after them.
    """
    fields = inspect.signature(kind, eval_str=True).parameters

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [each for name, each in signature.parameters.items() if name != parameter]

        @wraps(command)
        def with_options(**values: Any) -> None:
            command(**{parameter: kind(**{name: values.pop(name) for name in fields})}, **values)

        # This is what typer makes the command line from.
        listed = (*fields.values(), *own) if first else (*own, *fields.values())
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in listed]
        with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return with_options

    return decorate


reading_options = options_from(Reading, "reading")
"""Add the fields of `Reading` to the options of a command, which gets them as its parameter ``reading``."""
