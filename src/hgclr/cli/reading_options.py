"""Options that say how to read a data folder, for all commands that read one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hgclr.cli.options import AddAncestors, LabelColumn, LabelSeparator, PathSeparator, TextColumn

if TYPE_CHECKING:
    from hgclr.data import DataFolder
    from hgclr.taxonomy import Taxonomy

__all__ = ["Folder", "Reading", "TaxonomyFile", "reading_options"]

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
