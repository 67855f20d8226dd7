"""Run the rows of a table, seed by seed; what is done stays, what was killed goes on."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from transformers import TrainerCallback

from hgclr.errors import HGCLRError, InputError
from hgclr.files import write_json
from hgclr.paper.classical import run_classical
from hgclr.paper.experiment import RESUMED, SETTINGS, Experiment, NotYetError, record
from hgclr.paper.summary import Summary, summarise, write_table
from hgclr.paper.systems import SYSTEMS, System, Table
from hgclr.provenance import first_difference
from hgclr.training import train
from hgclr.training.run_checks import CHECKPOINTS, data_folder

__all__ = ["Step", "Watch", "check_runs", "reproduce"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Step:
    """Where a table's run is: row ``number`` of ``total``, counting the rows that others need."""

    number: int
    total: int
    seed: int
    system: str


Watch = Callable[[Step], AbstractContextManager[tuple[Sequence[TrainerCallback], Callable[[int], None] | None]]]
"""Open a display of a run: what is to be called back from the trainer, and on documents read."""


@contextmanager
def unwatched(step: Step) -> Iterator[tuple[Sequence[TrainerCallback], None]]:
    """Show nothing."""
    logger.info("row %d of %d, seed %d: %s", step.number, step.total, step.seed, step.system)
    yield (), None


def reproduce(
    table: Table,
    seeds: Sequence[int],
    experiment: Experiment,
    *,
    rows: Sequence[str] | None = None,
    command: str = "",
    watch: Watch = unwatched,
    on_table: Callable[[Summary], None] | None = None,
) -> Summary:
    """Run rows of a table with every seed and write the table, anew after each run.

    The seeds are the outer loop: after the first, every row has a figure. A row that cannot be run (memory, data, an
    optional part that is missing) is noted in the table with the reason, and the others go on.

    Args:
        table: which table; its files go to ``experiment.output``.
        seeds: at least one.
        experiment: what all rows share.
        rows: keys of its rows; by default all but the extra ones.
        command: the command line, for the record.
        watch: shows each run's progress.
        on_table: called with the table each time that it has been written.

    Raises:
        InputError: before anything is run, if a key is unknown, the data lacks a split, or ``experiment.output``
            holds runs with other settings.
    """
    chosen = table.choose(rows)
    systems = check_runs(table, seeds, experiment, rows)
    refused: dict[tuple[str, int], str] = {}

    def written() -> Summary:
        summary = summarise(table, chosen, seeds, experiment, refused, command)
        write_table(summary, experiment.output)
        if on_table is not None:
            on_table(summary)
        return summary

    for seed in seeds:
        for number, system in enumerate(systems, 1):
            if system.after is not None and (reason := refused.get((system.after, seed))) is not None:
                refused[system.key, seed] = f"it needs a run of {system.after}, which was refused: {reason}"
                continue
            try:
                _run(system, experiment, Step(number, len(systems), seed, system.key), watch)
            except HGCLRError as error:
                refused[system.key, seed] = str(error)
            written()
    return written()


def check_runs(
    table: Table, seeds: Sequence[int], experiment: Experiment, rows: Sequence[str] | None = None
) -> list[System]:
    """Return the systems that rows of a table need, after making sure that nothing is in the way of their runs."""
    systems = _with_needed([row.system for row in table.choose(rows)])
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(f"the seeds are {', '.join(map(str, seeds)) or 'none'}", remedy="give each seed once")
    base = experiment.base()
    may_hold_out = table.split == "dev" and base.data.dev_share is not None
    if not may_hold_out and table.split not in data_folder(base, base.data.taxonomy).splits:
        hold_out = ", or hold out a tenth of train with --set data.dev_share=0.1" if table.split == "dev" else ""
        raise InputError(
            f"{table.key} shows scores on {table.split}, and there is no such split",
            path=base.data.path,
            remedy=f"add {table.split}.jsonl{hold_out}",
        )
    for seed in seeds:
        for system in systems:
            try:
                _check_place(system, seed, experiment)
            except NotYetError:  # checked again when its turn comes
                continue
    return systems


def _with_needed(keys: Sequence[str]) -> list[System]:
    """Return systems, each after the one that it needs a run of."""
    needed = [each for key in keys for each in (SYSTEMS[key].after, key) if each is not None]
    return [SYSTEMS[key] for key in dict.fromkeys(needed)]


def _check_place(system: System, seed: int, experiment: Experiment) -> dict[str, object]:
    """Return the record of a run, after making sure that its folder holds nothing, or that run."""
    folder = experiment.folder(system, seed)
    wanted = record(system, experiment.run(system, seed))
    finished = experiment.finished(system, seed) is not None
    if not finished and not (folder / CHECKPOINTS).exists():  # a row that was refused, or killed early, left nothing
        return wanted
    remedy = "give another --output, or delete that folder"
    there = experiment.settings_of(system, seed)
    if there is None:
        raise InputError(f"{folder} holds a run that hgclr reproduce did not make", remedy=remedy)
    if difference := first_difference(there, wanted, shared=True):
        place, before, now = difference
        raise InputError(
            f"{folder} holds a run with other settings: {place} is {before!r} there and {now!r} here", remedy=remedy
        )
    if finished and experiment.keep_models and system.classical is None and not (folder / "training-model").is_dir():
        raise InputError(f"{folder} is done, and its models were not kept", remedy=remedy)
    return wanted


def _run(system: System, experiment: Experiment, step: Step, watch: Watch) -> None:
    """Make one run, or go on with it, or leave it if it is done."""
    wanted = _check_place(system, step.seed, experiment)
    folder = experiment.folder(system, step.seed)
    checkpoints = folder / CHECKPOINTS
    if experiment.finished(system, step.seed) is None:
        write_json(folder / SETTINGS, wanted)
        if checkpoints.exists():
            (folder / RESUMED).touch()
        run = experiment.run(system, step.seed)
        with watch(step) as (callbacks, on_documents):
            if system.classical is not None:
                run_classical(system.classical, run, on_documents=on_documents)
            else:
                train(run, resume=True, callbacks=callbacks, on_documents=on_documents)
    elif not checkpoints.exists():  # as it is without a kill at the last moment
        return
    if not experiment.keep_models:
        for name in ("model", "training-model"):
            shutil.rmtree(folder / name, ignore_errors=True)
    shutil.rmtree(checkpoints, ignore_errors=True)
