"""``hgclr data prepare arxiv``."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["arxiv"]


def arxiv(
    source: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="arxiv-metadata-oai-snapshot.json; .gz, or .zip as Kaggle hands it out, will do."
        ),
    ],
    output: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write; an earlier build is replaced.")],
    since: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], metavar="YYYY-MM-DD", help="First day to take papers of.")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], metavar="YYYY-MM-DD", help="Last day to take papers of.")
    ] = None,
    per_category: Annotated[
        int | None,
        typer.Option(
            min=1, help="Take at most so many papers of one primary category, picked by hash. Reads the file twice."
        ),
    ] = None,
    primary_only: Annotated[
        bool, typer.Option("--primary-only", help="One path a paper: that of its primary category.")
    ] = False,
    dev_share: Annotated[
        float | None, typer.Option(help="Share of papers drawn for dev, by hash of the id; default 0.1.")
    ] = None,
    test_share: Annotated[float | None, typer.Option(help="Share of papers drawn for test; default 0.1.")] = None,
    dev_from: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d"],
            metavar="YYYY-MM-DD",
            help="Split by date, not by hash: earlier papers are for training, later ones for dev.",
        ),
    ] = None,
    test_from: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], metavar="YYYY-MM-DD", help="First day of test, with --dev-from."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides what is drawn and picked by hash.")] = 0,
) -> None:
    """Turn arXiv's metadata into a data folder: title and abstract in, group, archive and category out.

    Dates are those of a paper's first version.
    """
    from hgclr.cli.prepare.showing import prepare_with_bar, show_summary
    from hgclr.corpora.arxiv import build_arxiv
    from hgclr.data.folder_writer import Progress, Summary

    def build(progress: Progress) -> Summary:
        return build_arxiv(
            source,
            output,
            since=_day(since),
            until=_day(until),
            per_category=per_category,
            primary_only=primary_only,
            dev_share=dev_share,
            test_share=test_share,
            dev_from=_day(dev_from),
            test_from=_day(test_from),
            seed=seed,
            progress=lambda done, total: progress(done // 10**6, None if total is None else total // 10**6),
        )

    show_summary(prepare_with_bar("megabytes", build))


def _day(moment: datetime | None) -> date | None:
    return None if moment is None else moment.date()
