"""Options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from hgclr.data import DataFolder
    from hgclr.taxonomy import Taxonomy

__all__ = [
    "AbstainBelow",
    "AddAncestors",
    "Decode",
    "Folder",
    "JsonFile",
    "LabelColumn",
    "LabelSeparator",
    "Model",
    "PathSeparator",
    "Paths",
    "Reading",
    "Rule",
    "TaxonomyFile",
    "TextColumn",
    "Threshold",
    "reading_options",
]

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="Folder 'model' that hgclr train wrote, folder that hgclr export wrote, or a hub name."
    ),
]
TextColumn = Annotated[str, typer.Option(help="Column with the text.")]
LabelColumn = Annotated[str, typer.Option(help="Column with the labels.")]
LabelSeparator = Annotated[str, typer.Option(help="Between labels that are one string, as in CSV.")]
PathSeparator = Annotated[str, typer.Option(help="Between the names of a label given as a path.")]
AddAncestors = Annotated[
    bool, typer.Option("--add-ancestors", help="Rows name only their deepest labels; add the ones above.")
]
Threshold = Annotated[
    float | None, typer.Option(min=0.0, max=1.0, help="Probability above which a label is given; default: the model's.")
]
# The library's rules, repeated so that help pages need no numpy.
Rule = Literal["threshold", "closure", "drop-orphans", "min-parent", "top-down", "best-path", "top-k-paths"]
Decode = Annotated[
    Rule | None,
    typer.Option(
        help="Decoding rule; default: the model's. threshold: each label by itself; closure: and all ancestors;"
        " drop-orphans, top-down: only below labels that are given; min-parent: likewise, no label more probable than"
        " its parent; best-path: one path; top-k-paths: --paths of them."
    ),
]
Paths = Annotated[int | None, typer.Option(min=1, help="Paths that top-k-paths gives; default: the model's.")]
AbstainBelow = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=1.0,
        help="Stop at the parent of a label less probable than this; it is listed as abstained.",
    ),
]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result here as JSON.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder with train, dev, test and a taxonomy file.")]
TaxonomyFile = Annotated[
    Path | None, typer.Option("--taxonomy", metavar="FILE", help="The label tree, if it is not in the folder.")
]


@dataclass(frozen=True)
class Reading:
    """How to read a data folder: the values of the options that `reading_options` adds."""

    text_column: TextColumn = "text"
    label_column: LabelColumn = "labels"
    label_separator: LabelSeparator = ";"
    path_separator: PathSeparator = " > "
    add_ancestors: AddAncestors = False

    def open(self, path: Path, *, taxonomy: Taxonomy | Path | None = None, skip_bad_rows: bool = False) -> DataFolder:
        """Open a data folder to be read so; the arguments are those of `DataFolder`."""
        from hgclr.data import DataFolder

        return DataFolder(path, taxonomy=taxonomy, skip_bad_rows=skip_bad_rows, **asdict(self))


def reading_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the fields of `Reading` to the options of a command, which gets them as its parameter ``reading``.

    Example:
        >>> @reading_options
        ... def count(folder: Folder, reading: Reading) -> None:
        ...     data = reading.open(folder)
    """
    signature = inspect.signature(command, eval_str=True)
    fields = _fields()
    own = [parameter for name, parameter in signature.parameters.items() if name != "reading"]

    @wraps(command)
    def with_reading(**values: Any) -> None:
        reading = Reading(**{name: values.pop(name) for name in fields})
        command(reading=reading, **values)

    # This is what typer makes the command line from.
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own, *fields.values())]
    with_reading.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return with_reading


@cache
def _fields() -> Mapping[str, inspect.Parameter]:
    return inspect.signature(Reading, eval_str=True).parameters
