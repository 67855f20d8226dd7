"""``hgclr data prepare icd10cm``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["build_with_bar", "icd10cm"]


def icd10cm(
    output: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write.")],
    categories: Annotated[
        bool, typer.Option("--categories", help="Add the 3-character categories as a third level.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Decides which text goes to which split.")] = 0,
) -> None:
    """Build the ICD-10-CM data set: wording of a diagnosis in, chapter and block out."""
    written = build_with_bar(output, categories=categories, seed=seed)
    typer.echo(f"wrote {written}")


def build_with_bar(output: Path, *, categories: bool, seed: int = 0) -> Path:
    """Build ICD-10-CM, with a progress bar on standard error where that is a terminal; return its folder."""
    from hgclr.cli.console import progress_bar
    from hgclr.data.corpora.icd10cm import build_icd10cm

    with progress_bar() as bar:
        task = bar.add_task("chapters", total=None)
        return build_icd10cm(
            output,
            categories=categories,
            seed=seed,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
