"""``hgclr data prepare rcv1``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = ["rcv1"]


def rcv1(
    source: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Folder with the Reuters disks anywhere below it: zip files of news items, or folders of XML files.",
        ),
    ],
    output: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write; an earlier build is replaced.")],
    train_ids: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The training documents, as lines '.I id'; default: lyrl2004_tokens_train.dat[.gz] below the source.",
        ),
    ] = None,
    topics: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The topic tree; default: rcv1.topics.hier.orig below the source."),
    ] = None,
    label_names: Annotated[
        Literal["codes", "descriptions"],
        typer.Option(
            help="What labels are called: codes, as in the paper (GCRIM), or descriptions (CRIME, LAW ENFORCEMENT), "
            "from which a model that embeds the names learns more. Their ids are the codes in both cases."
        ),
    ] = "codes",
    text: Annotated[
        Literal["full", "literature"],
        typer.Option(
            help="full puts a space between paragraphs; literature puts nothing, as the published preparations do."
        ),
    ] = "full",
    ids: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Take the documents of this list (rcv1v2-ids.dat[.gz], one id a line) instead of all that have a "
            "topic and a region.",
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that read; default: one for each core, at most 4.")
    ] = None,
) -> None:
    """Prepare RCV1-V2: Reuters news, 103 topics in a tree of four levels."""
    from hgclr.cli.prepare.showing import prepare_with_bar, show_summary
    from hgclr.corpora.rcv1 import build_rcv1

    summary = prepare_with_bar(
        "archives",
        lambda progress: build_rcv1(
            source,
            output,
            train_ids=train_ids,
            topics=topics,
            label_names=label_names,
            text=text,
            ids=ids,
            workers=workers,
            progress=progress,
        ),
    )
    show_summary(summary)
