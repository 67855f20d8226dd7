"""``hgclr data prepare wos``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = ["wos"]


def wos(
    source: Annotated[
        Path,
        typer.Option(
            metavar="PATH",
            help="Data.xlsx, the same saved as tab-separated Data.txt, the literature's wos_total.json, "
            "or a folder with one of these or with wos_train.json, wos_val.json and wos_test.json.",
        ),
    ],
    output: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write; an earlier build is replaced.")],
    labels: Annotated[
        Literal["literature", "original"],
        typer.Option(
            help="literature: merge areas that share a code, as in the published figures (141 labels); "
            "original: keep every area's own name."
        ),
    ] = "literature",
) -> None:
    """Web of Science (WOS-46985): abstracts of papers, sorted into 7 domains and their areas.

    Nothing is downloaded: get WebOfScience.zip from Mendeley Data (doi:10.17632/9rw3vkcfy4.6) and unpack it. The split
    is the literature's, 30,070 / 7,518 / 9,397.
    """
    from hgclr.cli.prepare.showing import prepare_with_bar, show_summary
    from hgclr.corpora.wos import build_wos

    show_summary(prepare_with_bar("rows", lambda progress: build_wos(source, output, labels=labels, progress=progress)))
