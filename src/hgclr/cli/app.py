"""The ``hgclr`` command; each group of commands has its file, and heavy imports happen when a command runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperGroup

from hgclr.cli import data, deploy, evaluate, label, machine, predict, taxonomy, train
from hgclr.cli.console import show_log, standard_error
from hgclr.errors import HGCLRError, system_failure
from hgclr.registry import merged, resolve

USE, DATA, MACHINE, EXTENSIONS = "Train and use", "Data", "This machine", "Extensions"
"""Panels of the help page."""


class Commands(TyperGroup):
    """The group of all commands; prints our errors in one line on standard error, and exits with 2."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # Typer would list groups after all commands.
        panels = {panel: place for place, panel in enumerate((USE, DATA, MACHINE, EXTENSIONS))}
        ordered = sorted(self.commands.items(), key=lambda item: panels.get(item[1].rich_help_panel, 0))  # type: ignore[attr-defined]
        self.commands = dict(ordered)
        _hide_flag_types(self)

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # raises the error of a full disk
        except BrokenPipeError:  # the reader has stopped, as in `hgclr predict … | head`
            _drop_output()
            raise typer.Exit(0) from None
        except Exception as error:
            if isinstance(error, HGCLRError):
                message = str(error)
            elif (failure := system_failure(error)) is not None:
                _drop_output()
                message = failure
            else:
                raise
            errors = standard_error(on_every_node=True)
            errors.print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)
            raise typer.Exit(2) from None
        return result


def _hide_flag_types(command: Any) -> None:
    """Show no type beside flags, in a command and its subcommands."""
    for option in (*command.params, command.get_help_option(command.context_class(command))):
        if getattr(option, "is_flag", False) and option.metavar is None:
            option.metavar = ""
    for below in getattr(command, "commands", {}).values():
        _hide_flag_types(below)


def _drop_output() -> None:
    """Discard output that could not be printed, which Python would print again when it exits."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    rich_markup_mode="markdown",
    epilog="First time? **hgclr quickstart** trains and tries a model in a few minutes.",
)


def print_version(wanted: bool) -> None:
    """Print the version and exit, if wanted."""
    if wanted:
        from importlib.metadata import version

        typer.echo(f"hgclr {version('hgclr')}")
        raise typer.Exit


@app.callback()
def main(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print more log lines.")] = False,
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", help="Print the version and exit.", callback=print_version, is_eager=True)
    ] = False,
) -> None:
    """Sort text into a tree of labels.

    Train on your documents and your label tree; get a plain, fast text encoder with a linear head.

    Example: **hgclr train my-data**

    Next: **hgclr predict runs/my-data/model "a text"**
    """
    show_log(verbose)


def _add(panel: str, **commands: Callable[..., None] | typer.Typer) -> None:
    """Add commands, and groups of them, to a panel of the help page."""
    for name, command in commands.items():
        name = name.replace("_", "-")
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=panel)
        else:
            app.command(name, rich_help_panel=panel)(command)


_add(
    USE,
    quickstart=train.quickstart,
    train=train.train,
    settings=train.settings,
    tune=train.tune,
    calibrate=evaluate.calibrate,
    evaluate=evaluate.evaluate,
    compare=evaluate.compare,
    audit=evaluate.audit,
    watch=evaluate.watch,
    predict=predict.predict,
    review=predict.review,
    explain=predict.explain,
    serve=deploy.serve,
    export=deploy.export,
)
_add(DATA, data=data.app, taxonomy=taxonomy.app, label=label.label)
_add(MACHINE, doctor=machine.doctor, encoders=machine.encoders)
for _place, _reference in merged("commands").items():
    if _place == "data prepare":
        data.prepare_app.registered_commands += resolve(_reference).registered_commands
    else:
        _add(EXTENSIONS, **{_place: resolve(_reference)})
