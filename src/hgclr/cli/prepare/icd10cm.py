"""``hgclr data prepare icd10cm``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hgclr.data.folder_writer import Summary

__all__ = ["build_with_bar", "icd10cm"]


def icd10cm(
    output: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write; an earlier build is replaced.")],
    levels: Annotated[
        int,
        typer.Option(
            min=1,
            help="How many levels of the book are labels: 1 chapters, 2 blocks, 3 categories, 4 to 7 subcategories.",
        ),
    ] = 2,
    seed: Annotated[int, typer.Option(help="Decides which text goes to which split.")] = 0,
) -> None:
    """Build ICD-10-CM, the code book of diagnoses: wording of a diagnosis in, its place in the book out.

    The book is in the package simple-icd-10-cm: pip install 'hgclr[icd10cm]'.
    """
    from hgclr.cli.prepare.showing import show_summary

    show_summary(build_with_bar(output, levels=levels, seed=seed))


def build_with_bar(output: Path, *, levels: int, seed: int = 0) -> Summary:
    """Build ICD-10-CM, with a progress bar on standard error where that is a terminal."""
    from hgclr.cli.prepare.showing import prepare_with_bar
    from hgclr.corpora.icd10cm import build_icd10cm

    return prepare_with_bar(
        "chapters", lambda progress: build_icd10cm(output, levels=levels, seed=seed, progress=progress)
    )
