"""Options that the commands on label trees share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = ["File", "FileFormat", "Format", "Separator"]

# The library's formats, repeated so that the help page needs no numpy.
FileFormat = Literal["auto", "literature", "table", "json", "paths"]

File = Annotated[Path, typer.Argument(metavar="FILE", help="The file that holds the label tree.", show_default=False)]
Format = Annotated[FileFormat, typer.Option("--format", help="The file's format; auto looks at the content.")]
Separator = Annotated[str, typer.Option(help="What stands between the names of a path.")]
