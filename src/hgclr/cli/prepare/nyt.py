"""``hgclr data prepare nyt``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from hgclr.cli.prepare.showing import prepare_with_bar, show_summary

__all__ = ["nyt"]


def nyt(
    source: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Folder nyt_corpus of LDC2008T19, with data/YYYY/MM.tgz; also with the archives unpacked.",
        ),
    ],
    output: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write.")],
    ids: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder with the literature's lists idnewnyt_train.json, idnewnyt_val.json, idnewnyt_test.json; "
            "default: --source.",
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The literature's label list, one path such as Top/News/Sports a line; "
            "default: nyt_label.vocab in the folder of --ids.",
        ),
    ] = None,
    text: Annotated[
        Literal["full", "literature"],
        typer.Option(
            help="full: all paragraphs, joined by spaces; literature: as published results were computed, "
            "without the first paragraph and without spaces between the others."
        ),
    ] = "full",
) -> None:
    """Turn the New York Times Annotated Corpus into a data folder: articles in, sections out.

    The archives are read as they are; nothing is unpacked.
    """
    from hgclr.corpora.nyt import build_nyt

    show_summary(
        prepare_with_bar(
            "files",
            lambda progress: build_nyt(source, output, ids=ids, labels=labels, text=text, progress=progress),
        )
    )
