"""Options that the formats of the literature share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["DevFile", "FormatSource", "Output", "TaxonomyFile", "TestFile", "TrainFile"]

FILES = "If --train, --dev or --test is given, only the files named so are read."

FormatSource = Annotated[
    Path | None,
    typer.Option(
        "--source",
        metavar="PATH",
        help="Folder whose files are called like splits, as x_train, x_val and x_test; or one file, all for training.",
    ),
]
Output = Annotated[Path, typer.Option(metavar="DIR", help="Data folder to write; an earlier build is replaced.")]
TrainFile = Annotated[
    Path | None, typer.Option("--train", metavar="FILE", help=f"The file for training, whatever its name. {FILES}")
]
DevFile = Annotated[Path | None, typer.Option("--dev", metavar="FILE", help="The development (validation) file.")]
TestFile = Annotated[Path | None, typer.Option("--test", metavar="FILE", help="The test file.")]
TaxonomyFile = Annotated[
    Path | None,
    typer.Option(
        "--taxonomy", metavar="FILE", help="The label tree, if it is not the one .taxonomy file beside the documents."
    ),
]
