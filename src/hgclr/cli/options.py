"""Options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from hgclr.errors import InputError

if TYPE_CHECKING:
    from hgclr.data import DataFolder
    from hgclr.data.layout import Layout
    from hgclr.decisions.settings import Decisions
    from hgclr.taxonomy import Taxonomy

Number = TypeVar("Number", int, float)
Rule = Literal["threshold", "closure", "drop-orphans", "best-path", "top-k-paths"]
"""The library's decoding rules, repeated here because help pages must not import numpy."""
RULES = "threshold, closure, drop-orphans, best-path or top-k-paths; default: the model's."


def option(text: str, *names: str, **more: Any) -> Any:
    """Return an option with its help; its name is that of the parameter, or ``names``."""
    return typer.Option(*names, help=text, **more)


file, folder = partial(option, metavar="FILE"), partial(option, metavar="DIR")
"""Options whose values are files and folders."""
ray_address_option = partial(
    option, "Address of a running Ray cluster; default: Ray is started on this machine.", metavar="ADDRESS"
)
Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="Folder that hgclr train or export wrote, its URL, or a hub name.")
]
Data = Annotated[Path, typer.Argument(metavar="DATA", help="Data folder with train, dev and test, or its URL.")]
JsonFile = Annotated[Path | None, file("Write the result as JSON to this file; '-': to standard output.", "--json")]
NewFolder = Annotated[Path, folder("Folder to write; it must be new or empty.")]
DataOutput = Annotated[Path, folder("Data folder to write; an earlier one is replaced.")]
Raw = Annotated[bool, option("Do not escape cells of CSV and TSV that a spreadsheet would run as formulas.", "--raw")]
TextColumn = Annotated[str | None, option("Column with the text; default: 'text', or that of the training.")]
Encoding = Annotated[
    str | None, option("Encoding of text files, such as cp1252; default: UTF-8, or detected.", metavar="NAME")
]
Settings = Annotated[
    list[str] | None,
    option("Override one setting, such as training.epochs=4; repeatable.", "--set", metavar="KEY=VALUE"),
]
Seed = Annotated[int, option("Random seed.", min=0)]
AddAncestors = Annotated[bool | None, option("Add the ancestors of the labels in a row.", "--add-ancestors")]
TaxonomyFile = Annotated[Path | None, file("The label tree; default: the one in the data folder.", "--taxonomy")]
SkipBadRows = Annotated[bool, option("Skip bad rows, with a warning.", "--skip-bad-rows")]
Paths = Annotated[int | None, option("Number of paths for top-k-paths; default: the model's.", min=1, metavar="N")]
Engine = Literal["local", "ray"]


def number_list(option: str, text: str, kind: type[Number]) -> list[Number]:
    """Return the comma-separated numbers in the value of an option."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        what, example = ("whole numbers", "1,2") if kind is int else ("numbers", ".05,.1")
        remedy = f"write for example {option} {example}"
        raise InputError(f"{option} {text!r} is not a list of {what}", remedy=remedy) from None


@dataclass(frozen=True)
class Reading:
    """Values of the options for reading a data folder, which `reading_options` adds.

    The defaults are those that the folder has stored, see `hgclr.data.folder.RowForm`.
    """

    text_column: Annotated[str | None, option("Column with the text; default: 'text'.")] = None
    label_column: Annotated[str | None, option("Column with the labels; default: 'labels'.")] = None
    label_separator: Annotated[str | None, option("Separator of labels in a cell; default: ';'.")] = None
    path_separator: Annotated[str | None, option("Separator of the names of a path; default: ' > '.")] = None
    add_ancestors: AddAncestors = None

    def open(self, path: Path, *, taxonomy: Taxonomy | Path | None = None, skip_bad_rows: bool = False) -> DataFolder:
        """Open a data folder with these options; the arguments are those of `DataFolder`."""
        from hgclr.data import DataFolder

        return DataFolder(path, taxonomy=taxonomy, skip_bad_rows=skip_bad_rows, **asdict(self))


@dataclass(frozen=True)
class Table:
    """Values of the options that describe a user's table, which `table_options` adds."""

    text: Annotated[str | None, option("Column with the text.", metavar="COLUMN")] = None
    labels: Annotated[str | None, option("Columns with labels, as paths or names.", metavar="A,B")] = None
    levels: Annotated[str | None, option("Columns with the levels of one path, from the top.", metavar="A,B,C")] = None
    id_column: Annotated[str | None, option("Column with ids of the documents.", "--id", metavar="COLUMN")] = None
    label_separator: Annotated[str | None, option("Separator of labels in a cell, such as ';'.")] = None
    path_separator: Annotated[str | None, option("Separator of the names of a path, such as '>'.")] = None

    @property
    def layout(self) -> Layout:
        """The known columns and separators."""
        from hgclr.data.layout import Layout

        if self.labels is not None and self.levels is not None:
            raise InputError("--labels and --levels are both given", remedy="give one of them")
        return Layout(
            text=self.text or "",
            labels=tuple(part.strip() for part in (self.levels or self.labels or "").split(",") if part.strip()),
            levels=self.levels is not None,
            id=self.id_column,
            label_separator=self.label_separator or None,
            path_separator=self.path_separator or None,
        )


@dataclass(frozen=True)
class Deciding:
    """Values of the options that change a model's decisions, which `deciding_options` adds."""

    threshold: Annotated[float | None, option("Predict labels more probable than this.", min=0, max=1, metavar="X")] = (
        None
    )
    rule: Annotated[Rule | None, option(RULES, metavar="RULE")] = None
    paths: Paths = None
    abstain_below: Annotated[
        float | None, option("List labels less probable than this as abstained.", min=0, max=1, metavar="X")
    ] = None

    def changed(self, decisions: Decisions) -> Decisions:
        """Return a model's decisions with these changes."""
        return decisions.changed(**vars(self))


def options_from(
    kind: type, parameter: str, *, first: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the fields of a dataclass, which are annotated as options, to a command.

    The command gets an instance as ``parameter``. With ``first``, these options come before the command's own.
    """
    fields = inspect.signature(kind, eval_str=True).parameters

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [each for name, each in signature.parameters.items() if name != parameter]

        @wraps(command)
        def with_options(**values: Any) -> None:
            command(**{parameter: kind(**{name: values.pop(name) for name in fields})}, **values)

        # Typer builds the command line from this signature.
        listed = (*fields.values(), *own) if first else (*own, *fields.values())
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in listed]
        with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return with_options

    return decorate


reading_options = options_from(Reading, "reading")
table_options = options_from(Table, "table")
deciding_options = options_from(Deciding, "deciding")
