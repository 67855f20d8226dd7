"""The ``hgclr`` command; each command lives in a file of its own and imports what is heavy only when it runs."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from hgclr.cli import data, doctor, taxonomy
from hgclr.errors import HGCLRError

__all__ = ["app"]


class Commands(TyperGroup):
    """Turn our errors into one line on standard error and exit code 2."""

    def invoke(self, ctx: typer.Context) -> object:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except HGCLRError as error:
            Console(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    help="Sort text into a tree of labels.",
    rich_markup_mode="rich",
)
app.add_typer(taxonomy.app, name="taxonomy")
app.add_typer(data.app, name="data")
app.command("doctor")(doctor.doctor)
