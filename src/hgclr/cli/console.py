"""What all commands share on a terminal: results, progress bars, log lines, quiet libraries."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from rich import console as rich_console
from rich.segment import Segment

from hgclr.files import HARMLESS, json_text, write_json

if TYPE_CHECKING:
    from pathlib import Path

    from rich.progress import Progress

    from hgclr.inference import HierarchicalClassifier


class Console(rich_console.Console):
    """A console on which nothing that is shown, a label's name or a text or the name of a file, gives orders."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, **options)

    def say(self, line: str, style: str | None = None) -> None:
        """Print a line as it is: brackets in it are no markup, and it is not folded."""
        self.print(line, style=style, markup=False, soft_wrap=True)

    def render(
        self, renderable: rich_console.RenderableType, options: rich_console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the pieces of what is to be shown; control sequences among them are rich's own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=segment.text.translate(HARMLESS))


def is_first_rank() -> bool:
    """Return whether this process may speak: of those that torchrun has started, the first one does."""
    return os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"


def standard_error(*, on_every_node: bool = False) -> Console:
    """Return a console on standard error, so that standard output holds results only; quiet but on the first rank.

    An error may be one of its node, and is to be seen ``on_every_node``.
    """
    quiet = not is_first_rank() and not (on_every_node and os.environ.get("LOCAL_RANK") == "0")
    return Console(stderr=True, quiet=quiet)


def results(json_file: Path | None) -> Console:
    """Return the console for what people read: standard output, which ``--json -`` leaves to the JSON."""
    return Console(quiet=str(json_file) == "-")


def write_result(json_file: Path | None, content: Any) -> None:
    """Write a result where ``--json`` says, if it is given; ``-`` is standard output."""
    if str(json_file) == "-":
        sys.stdout.write(json_text(content, indent=2) + "\n")
    elif json_file is not None:
        write_json(json_file, content)


def print_written(files: Iterable[Path], console: Console | None = None) -> None:
    """Name the files that a command leaves behind, on standard output."""
    for file in files:
        (console or Console()).say(f"written: {file}")


def print_table(console: Console, title: str, rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table whose first row holds the headings."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    if title:
        console.print(Text(title, "bold"))
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    headings, *others = rows
    for number, heading in enumerate(headings):
        table.add_column(Text(heading), justify="right" if number else "left")
    for row in others:
        table.add_row(*map(Text, row))
    console.print(table)


def progress_bar(console: Console | None = None) -> Progress:
    """Return a progress bar with the time left, which shows nothing where standard error is no terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.text import Text

    class Times(ProgressColumn):
        """Say which is the time that is gone, and which is left."""

        def render(self, task: Task) -> Text:
            """Return both, or one as long as the other cannot be told."""
            left = "" if task.time_remaining is None else f", {clock(task.time_remaining)} left"
            return Text(f"{clock(task.elapsed or 0)} gone{left}", style="progress.elapsed")

    console = console or standard_error()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),  # with two long times within 80 columns
        MofNCompleteColumn(),
        Times(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


@contextmanager
def counting(what: str) -> Iterator[Callable[[int], None]]:
    """Show how many there have been; what is yielded takes how many more there are."""
    with progress_bar() as bar:
        yield partial(bar.advance, bar.add_task(what, total=None))


@contextmanager
def share_done(what: str, size: int = 1) -> Iterator[Callable[[int, int | None], None]]:
    """Show how many of how many are done; what is yielded takes both, times ``size``, the second if it is known."""
    with progress_bar() as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done // size, total=total and total // size)


def clock(seconds: float) -> str:
    """Return a time as minutes and seconds, from an hour on with hours.

    Example:
        >>> clock(34.4), clock(3723)
        ('0:34', '1:02:03')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def show_log(verbose: bool) -> None:
    """Show the library's warnings, and with ``verbose`` what it is doing, on standard error."""
    from rich.logging import RichHandler

    handler = RichHandler(console=standard_error(), show_time=False, show_path=False)
    logger = logging.getLogger("hgclr")
    logger.handlers = [handler]
    logger.setLevel(logging.INFO if verbose else logging.WARNING)


def quiet_libraries() -> None:
    """Turn off the bars and notices of transformers and datasets, which know nothing of ours."""
    import datasets
    import transformers

    datasets.disable_progress_bars()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def find_folder(model: str, data: Path | None = None) -> Path:
    """Return a model's folder; ask for torch, whose import takes seconds, only if the model needs it.

    Args:
        model: the folder, its URL, or a hub name.
        data: a data folder that the command will read, so that a wrong path is told before the seconds have passed.
    """
    from hgclr.data.folder import find_data
    from hgclr.errors import require_extra
    from hgclr.inference.loading import find_model, is_onnx

    folder = find_model(model)
    if data is not None:
        find_data(data)
    if not is_onnx(folder):
        require_extra("torch", extra="train", capability="A model that is no ONNX folder")
        quiet_libraries()
    return folder


def open_classifier(model: str, data: Path | None = None) -> HierarchicalClassifier:
    """Load a model; the arguments are those of `find_folder`."""
    from hgclr.inference import HierarchicalClassifier

    return HierarchicalClassifier.load(find_folder(model, data))
