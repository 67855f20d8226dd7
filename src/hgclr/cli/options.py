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
    from hgclr.decisions.settings import Decisions
    from hgclr.taxonomy import Taxonomy

Number = TypeVar("Number", int, float)
Rule = Literal["threshold", "closure", "drop-orphans", "best-path", "top-k-paths"]
"""The library's decoding rules, repeated so that help pages need no numpy."""


def option(text: str, *names: str, **more: Any) -> Any:
    """Return an option with its help; it is called like its parameter, or by ``names``."""
    return typer.Option(*names, help=text, **more)


file, folder = partial(option, metavar="FILE"), partial(option, metavar="DIR")
"""Options whose values are files and folders."""


ray_address_option = partial(
    option,
    "With --engine ray: a running cluster, such as auto or 10.0.0.1:6379, whose nodes see the same files or URLs;"
    " default: Ray is started on this machine.",
    metavar="ADDRESS",
)
Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="The folder 'model' that hgclr train wrote, a folder that hgclr export wrote, the URL of either (s3://…),"
        " or a hub name.",
    ),
]
Data = Annotated[Path, typer.Argument(metavar="DATA", help="Data folder, or its URL; hgclr data check checks one.")]
Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder with train, dev, test and a taxonomy file, or its URL.")
]
JsonFile = Annotated[
    Path | None,
    file("Write the result as JSON to this file; '-': to standard output, in place of the tables.", "--json"),
]
NewFolder = Annotated[Path, folder("Folder to write; it must be new or empty.")]
DataOutput = Annotated[Path, folder("Data folder to write; one that was built there before is replaced.")]
Raw = Annotated[
    bool,
    option("In CSV and TSV: no apostrophe before cells that a spreadsheet would run as formulas.", "--raw"),
]
Settings = Annotated[
    list[str] | None,
    option("Override one setting, such as training.epochs=4; repeatable.", "--set", metavar="KEY=VALUE"),
]
Seed = Annotated[int, option("Random seed.", min=0)]
AddAncestors = Annotated[
    bool | None, option("Rows name only their deepest labels: add the labels above them.", "--add-ancestors")
]
TaxonomyFile = Annotated[Path | None, file("The label tree, if it is not beside the documents.", "--taxonomy")]
SkipBadRows = Annotated[bool, option("Leave bad rows out, with a warning.", "--skip-bad-rows")]
Paths = Annotated[int | None, option("Number of paths for top-k-paths; default: the model's.", min=1)]
Engine = Literal["local", "ray"]


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
        str | None, option("Column with the text; default: the one the folder remembers, or 'text'.")
    ] = None
    label_column: Annotated[
        str | None, option("Column with the labels; default: the one the folder remembers, or 'labels'.")
    ] = None
    label_separator: Annotated[
        str | None, option("What separates labels in one cell; default: as the folder remembers, or ';'.")
    ] = None
    path_separator: Annotated[
        str | None, option("What separates the names of a path; default: as the folder remembers, or ' > '.")
    ] = None
    add_ancestors: AddAncestors = None

    def open(self, path: Path, *, taxonomy: Taxonomy | Path | None = None, skip_bad_rows: bool = False) -> DataFolder:
        """Open a data folder to be read so; the arguments are those of `DataFolder`."""
        from hgclr.data import DataFolder

        return DataFolder(path, taxonomy=taxonomy, skip_bad_rows=skip_bad_rows, **asdict(self))


@dataclass(frozen=True)
class Cluster:
    """Where models are trained: the values of the options that `cluster_options` adds."""

    engine: Annotated[Engine, option("local: on this machine; ray: on Ray, here or on a cluster.")] = "local"
    workers: Annotated[
        int | None, option("With --engine ray: processes that share each batch; default: one per GPU or core.", min=1)
    ] = None
    ray_address: Annotated[str | None, ray_address_option()] = None

    def check(self) -> None:
        """Refuse options of the engine ray for the other one."""
        given = [name for name, value in vars(self).items() if name != "engine" and value is not None]
        if self.engine == "local" and given:
            name = f"--{given[0].replace('_', '-')}"
            raise InputError(f"{name} is for the engine ray", remedy="add --engine ray")


@dataclass(frozen=True)
class Deciding:
    """How a model decides, where not as it was saved: the values of the options that `deciding_options` adds."""

    threshold: Annotated[
        float | None, option("Predict labels more probable than this; default: the model's.", min=0.0, max=1.0)
    ] = None
    rule: Annotated[
        Rule | None,
        option(
            "Decoding rule; default: the model's. threshold: each label by itself; closure: also all ancestors of"
            " those; drop-orphans: only labels whose parent is predicted; best-path: one path;"
            " top-k-paths: as many as --paths says."
        ),
    ] = None
    paths: Paths = None
    abstain_below: Annotated[
        float | None, option("Stop above labels less probable than this, and list them as abstained.", min=0, max=1)
    ] = None

    def changed(self, decisions: Decisions) -> Decisions:
        """Return a model's decisions with these changes."""
        return decisions.changed(**vars(self))


def options_from(
    kind: type, parameter: str, *, first: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the fields of a dataclass, which are annotated as options, to a command.

    The command gets an instance as ``parameter``. With ``first``, these options are listed before those of the command.
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
deciding_options = options_from(Deciding, "deciding")
cluster_options = options_from(Cluster, "cluster")
