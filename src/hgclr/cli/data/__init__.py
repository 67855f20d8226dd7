"""``hgclr data``: prepare, split, check and describe data folders."""

from __future__ import annotations

import typer

from hgclr.cli import prepare
from hgclr.cli.data import check, split, stats

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Prepare, split, check and describe data folders.")
app.add_typer(prepare.app, name="prepare")
app.command("split")(split.split)
app.command("check")(check.check)
app.command("stats")(stats.stats)
