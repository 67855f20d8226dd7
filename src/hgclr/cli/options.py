"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = [
    "AddAncestors",
    "Decode",
    "JsonFile",
    "LabelColumn",
    "LabelSeparator",
    "Model",
    "PathSeparator",
    "TextColumn",
    "Threshold",
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
Decode = Annotated[
    Literal["threshold", "closure"], typer.Option(help="closure adds the ancestors of every label given.")
]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result here as JSON.")]
