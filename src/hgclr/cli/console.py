"""Printing results, progress bars and log lines, for all commands."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from rich import console as rich_console
from rich.cells import cell_len
from rich.segment import Segment
from rich.text import Text

from hgclr.files import HARMLESS, json_text, write_json

if TYPE_CHECKING:
    from pathlib import Path

    from rich.progress import Progress

    from hgclr.inference import HierarchicalClassifier

STARTED = time.monotonic()
"""The time at which the command started."""
GAP = 3
"""Characters between two columns of a table."""
TEXT_WIDTH = 24
"""Smallest width, in characters, of a text column that is narrowed."""


class Console(rich_console.Console):
    """A console that never interprets labels, texts or file names as control sequences."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, **options)

    def say(self, line: str, style: str | None = None) -> None:
        """Print a line without interpreting markup and without wrapping it."""
        self.print(line, style=style, markup=False, soft_wrap=True)

    def render(
        self, renderable: rich_console.RenderableType, options: rich_console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments without control sequences, except rich's own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=segment.text.translate(HARMLESS))


def is_first_rank() -> bool:
    """Return whether this process prints: of several that torchrun starts, only the first does."""
    return os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"


def standard_error(*, on_every_node: bool = False) -> Console:
    """Return a console on standard error that prints on the first rank only, or on the first rank of every node."""
    quiet = not is_first_rank() and not (on_every_node and os.environ.get("LOCAL_RANK") == "0")
    return Console(stderr=True, quiet=quiet)


def results(json_file: Path | None) -> Console:
    """Return the console for tables: standard output, unless ``--json -`` writes JSON there."""
    return Console(quiet=str(json_file) == "-")


def write_result(json_file: Path | None, content: Any) -> None:
    """Write a result to the file of ``--json``, if it is given; ``-`` is standard output."""
    if str(json_file) == "-":
        sys.stdout.write(json_text(content, indent=2) + "\n")
    elif json_file is not None:
        write_json(json_file, content)


def print_written(files: Iterable[Path], console: Console | None = None) -> None:
    """Print the names of the files that a command wrote."""
    for file in files:
        (console or Console()).say(f"written: {file}")


def print_table(
    console: Console,
    headings: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    *,
    texts: int = 1,
    title: str = "",
    caption: str = "",
) -> None:
    """Print a table with ``texts`` columns of text, followed by columns of numbers.

    Columns of numbers that do not fit the terminal follow in further tables below; numbers are never cut.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    if title:
        console.say(title, "bold")
    cells = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    widths = []
    for column, heading in enumerate(headings):
        lines = [line.plain for row in cells for line in row[column].split()]
        longest = max(map(cell_len, [*heading.split(), *lines]), default=0)  # headings wrap at spaces
        widths.append(min(longest, TEXT_WIDTH) if column < texts else longest)
    left = list(range(texts, len(headings)))
    while left:
        shown = [*range(texts), left.pop(0)]
        while left and sum(widths[column] + GAP for column in (*shown, left[0])) <= console.width:
            shown.append(left.pop(0))
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for column in shown:
            if column < texts:
                table.add_column(Text(headings[column]))
            else:
                table.add_column(Text(headings[column]), justify="right", width=widths[column])
        for row in cells:
            table.add_row(*(row[column] for column in shown))
        console.print(table)
    if caption:
        console.say(caption)


def progress_bar(console: Console | None = None) -> Progress:
    """Return a progress bar with elapsed and remaining time, shown only if standard error is a terminal.

    A task's field ``count`` is shown instead of its completed and total number.
    """
    from rich import progress

    class Count(progress.MofNCompleteColumn):
        def render(self, task: progress.Task) -> Text:
            return Text(task.fields["count"]) if "count" in task.fields else super().render(task)

    console = console or standard_error()
    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=20),  # leaves room for two long times in 80 columns
        Count(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("left"),
        progress.TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


@contextmanager
def counting(what: str) -> Iterator[Callable[[int], None]]:
    """Show a count; the yielded function adds to it."""
    with progress_bar() as bar:
        yield partial(bar.advance, bar.add_task(what, total=None))


@contextmanager
def share_done(what: str, size: int = 1) -> Iterator[Callable[[int, int | None], None]]:
    """Show a share; call the yielded function with the finished and the total number, if known, both times ``size``."""
    with progress_bar() as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done // size, total=total and total // size)


def show_log(verbose: bool) -> None:
    """Show the library's warnings, and with ``verbose`` its information, on standard error."""
    from rich.logging import RichHandler

    handler = RichHandler(console=standard_error(), show_time=False, show_path=False)
    logger = logging.getLogger("hgclr")
    logger.handlers = [handler]
    logger.setLevel(logging.INFO if verbose else logging.WARNING)


def find_folder(model: str, data: Path | None = None) -> Path:
    """Return a model's folder, given by path, URL or hub name; check paths before torch, which imports slowly."""
    from hgclr.data.folder import find_data
    from hgclr.errors import require_extra
    from hgclr.inference.loading import find_model, is_onnx

    folder = find_model(model)
    if data is not None:
        find_data(data)
    if not is_onnx(folder):
        require_extra("torch", extra="train", capability="A model in torch")
    return folder


def open_classifier(model: str, data: Path | None = None) -> HierarchicalClassifier:
    """Load a model; see `find_folder`."""
    from hgclr.inference import HierarchicalClassifier

    return HierarchicalClassifier.load(find_folder(model, data))
