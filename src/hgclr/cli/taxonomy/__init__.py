"""``hgclr taxonomy``: check, show, convert and compare label trees."""

from __future__ import annotations

import typer

from hgclr.cli.taxonomy import check, convert, diff, show

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Check, show, convert and compare label trees.

    A label tree is a UTF-8 file in one of these formats, told apart by their content:

    - [bold]literature[/bold]: lines 'parent TAB child TAB child', first that of 'Root'

    - [bold]table[/bold]: CSV or TSV with columns 'child' and 'parent', perhaps 'name', 'description'

    - [bold]json[/bold]: {"Science": {"Physics": {}, "Biology": {}}}, or nodes in lists

    - [bold]paths[/bold]: one 'Science > Physics > Optics' per line
    """,
)
app.command("check")(check.check)
app.command("show")(show.show)
app.command("convert")(convert.convert)
app.command("diff")(diff.diff)
