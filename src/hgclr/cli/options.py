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
    from hgclr.decisions.settings import Decisions
    from hgclr.taxonomy import Taxonomy

__all__ = [
    "AddAncestors",
    "Data",
    "DataOutput",
    "Deciding",
    "Engine",
    "Folder",
    "JsonFile",
    "Model",
    "NewFolder",
    "Paths",
    "Raw",
    "RayAddress",
    "Reading",
    "Rule",
    "Seed",
    "Settings",
    "SkipBadRows",
    "TaxonomyFile",
    "deciding_options",
    "engine_options",
    "file",
    "folder",
    "number_list",
    "options_from",
    "ray_address_option",
    "reading_options",
    "rule_option",
]

Number = TypeVar("Number", int, float)
Rule = Literal["threshold", "closure", "drop-orphans", "min-parent", "best-path", "top-k-paths"]
"""The library's decoding rules, repeated so that help pages need no numpy."""


def file(text: str, *names: str, **more: Any) -> Any:
    """Return an option whose value is a file; it is called like its parameter, or by ``names``."""
    return typer.Option(*names, metavar="FILE", help=text, **more)


def folder(text: str, *names: str, **more: Any) -> Any:
    """Return an option whose value is a folder; it is called like its parameter, or by ``names``."""
    return typer.Option(*names, metavar="DIR", help=text, **more)


def ray_address_option(**more: Any) -> Any:
    """Return an option for the address of a Ray cluster."""
    help_text = (
        "With --engine ray: a running cluster, such as auto or 10.0.0.1:6379, whose nodes see the same files or URLs;"
        " default: Ray is started on this machine."
    )
    return typer.Option(metavar="ADDRESS", help=help_text, **more)


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


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="The folder 'model' that hgclr train wrote, a folder that hgclr export wrote, the URL of either (s3://…),"
        " or a hub name.",
    ),
]
Data = Annotated[Path, typer.Argument(metavar="DATA", help="Data folder, or its URL; hgclr data check looks at one.")]
Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder with train, dev, test and a taxonomy file, or its URL.")
]
# Where results go: the same names with the same meaning in all commands.
JsonFile = Annotated[
    Path | None,
    file("Write the result as JSON to this file; '-': to standard output, in place of the tables.", "--json"),
]
NewFolder = Annotated[Path, folder("Folder to write; it must be new or empty.")]
DataOutput = Annotated[Path, folder("Data folder to write; one that was built there before is replaced.")]
Raw = Annotated[
    bool,
    typer.Option("--raw", help="In CSV and TSV: no apostrophe before cells that a spreadsheet would run as formulas."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one setting, such as training.epochs=4; repeatable."),
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
# How data is read.
AddAncestors = Annotated[
    bool | None, typer.Option("--add-ancestors", help="Rows name only their deepest labels: add the labels above them.")
]
TaxonomyFile = Annotated[Path | None, file("The label tree, if it is not beside the documents.", "--taxonomy")]
SkipBadRows = Annotated[bool, typer.Option("--skip-bad-rows", help="Leave bad rows out, with a warning.")]
Paths = Annotated[int | None, typer.Option(min=1, help="Number of paths for top-k-paths; default: the model's.")]
# Where the work is done.
Engine = Literal["local", "ray"]
RayAddress = Annotated[str | None, ray_address_option()]


def engine_options(engine: Engine, workers: int | None, ray_address: str | None) -> dict[str, Any]:
    """Return the options of the engine ray; refuse them for the other one."""
    options = {"--workers": workers, "--ray-address": ray_address}
    given = [name for name, value in options.items() if value is not None]
    if engine == "local" and given:
        raise InputError(f"{given[0]} is for the engine ray", remedy="add --engine ray")
    return {"workers": workers, "address": ray_address}


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

    What is left out is as the folder remembers it, see `hgclr.data.folder.RowForm`.
    """

    text_column: Annotated[
        str | None, typer.Option(help="Column with the text; default: the one the folder remembers, or 'text'.")
    ] = None
    label_column: Annotated[
        str | None, typer.Option(help="Column with the labels; default: the one the folder remembers, or 'labels'.")
    ] = None
    label_separator: Annotated[
        str | None, typer.Option(help="What separates labels in one cell; default: as the folder remembers, or ';'.")
    ] = None
    path_separator: Annotated[
        str | None, typer.Option(help="What separates the names of a path; default: as the folder remembers, or ' > '.")
    ] = None
    add_ancestors: AddAncestors = None

    def open(self, path: Path, *, taxonomy: Taxonomy | Path | None = None, skip_bad_rows: bool = False) -> DataFolder:
        """Open a data folder to be read so; the arguments are those of `DataFolder`."""
        from hgclr.data import DataFolder

        return DataFolder(path, taxonomy=taxonomy, skip_bad_rows=skip_bad_rows, **asdict(self))


@dataclass(frozen=True)
class Deciding:
    """How a model decides, where not as it was saved: the values of the options that `deciding_options` adds."""

    threshold: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Predict labels more probable than this; default: the model's."),
    ] = None
    decode: Annotated[
        Rule | None,
        rule_option(
            "Decoding rule; default: the model's. threshold: each label by itself; closure: also all ancestors of"
            " those; drop-orphans: only labels whose parent is predicted; min-parent: the same, with no label more"
            " probable than its parent; best-path: one path; top-k-paths: as many as --paths says."
        ),
    ] = None
    paths: Paths = None
    abstain_below: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Stop above labels less probable than this, and list them as abstained."),
    ] = None

    def changed(self, decisions: Decisions) -> Decisions:
        """Return a model's decisions with these changes."""
        changes = vars(self) | {"rule": self.decode}
        del changes["decode"]
        return decisions.changed(**changes)


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
deciding_options = options_from(Deciding, "deciding")
"""Add the fields of `Deciding` to the options of a command, which gets them as its parameter ``deciding``."""
