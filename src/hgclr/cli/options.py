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
    "Paths",
    "Rule",
    "Sure",
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
Sure = Annotated[
    float | None,
    typer.Option(
        min=0.0, max=1.0, help="Stop at the parent of a label less probable than this; it is listed as doubtful."
    ),
]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result here as JSON.")]
