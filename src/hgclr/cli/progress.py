"""Show a training run: the plan, a bar for each stage, the time left, and the scores and loss terms of each epoch."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from rich.logging import RichHandler
from rich.progress import TaskID
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hgclr.cli.console import Console, progress_bar, standard_error
from hgclr.evaluation.folds import FoldWatch
from hgclr.training.fitting import Plan
from hgclr.training.trainer import text_lengths

MEASURED = 10.0
"""Seconds of training after the first step from which its time is estimated."""
LONG = 15 * 60
"""Seconds of training from which a faster effort is recommended."""
FORWARD = 1 / 3
"""Time to encode a text, as a share of the time to train on it."""


class TrainingProgress(TrainerCallback):
    """A progress bar over the stages of a run; where there is no terminal, only the lines per epoch.

    ``title`` tells one of several runs apart.
    """

    def __init__(self, console: Console, title: str = "") -> None:
        self.console, self.title = console, title
        self._bar = progress_bar(console)
        self._task: TaskID | None = None
        self._scoring: TaskID | None = None
        self._plan: Plan | None = None
        self._last: dict[str, float] = {}
        self._tokens = 0
        self._first: tuple[float, int] | None = None
        self._estimated = False

    def __enter__(self) -> TrainingProgress:
        for handler in logging.getLogger("hgclr").handlers:
            if isinstance(handler, RichHandler):
                handler.console = self.console  # which knows of the bar, and puts lines above it
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def on_start(self, plan: Plan) -> None:
        """Print the plan."""
        self._plan = plan
        documents = ", ".join(f"{name} {count:,}" for name, count in plan.documents.items())
        labels = f"{plan.labels:,} labels on {plan.levels} level{'s' * (plan.levels > 1)}"
        lines = [f"{labels}; documents: {documents or 'none'}"]
        how = f"effort {plan.effort}"
        if (recipe := plan.recipe) is not None:
            steps = f"{recipe.steps_per_epoch:,} steps of {recipe.batch_size} documents"
            lines.append(f"{how}: up to {recipe.epochs} epochs of {steps}")
            if plan.lora is not None:
                lines.append(plan.lora)
            how = f"rate {recipe.learning_rate:.2g}, of the head {recipe.head_learning_rate:.2g}"
        cut = f": {plan.cut:.1%} of train" if plan.documents.get("train") else ""
        lines += [f"{how}; {plan.precision} on {plan.device}", f"texts are cut at {plan.max_length} tokens{cut}"]
        for line in lines:
            self.console.say(line)

    def on_stage(self, stage: str, total: int | None = None, **fields: Any) -> None:
        """Show the bar of a stage, and remove that of the stage before."""
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(self._named(stage), total=total, **fields)

    def on_documents(self, count: int) -> None:
        """Count documents of the stage."""
        if self._task is None:
            self.on_stage("documents")
        assert self._task is not None
        self._bar.advance(self._task, count)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Print the title, and measure the training in tokens, because steps have texts of different lengths."""
        if self.title:
            self.console.say(self.title)
        lengths = np.minimum(
            text_lengths(kwargs["train_dataloader"].dataset), kwargs["model"].config.cut_length or 2**31 - 1
        )
        self._tokens, self._first = int(lengths.sum()), None
        self.on_stage("training", round(self._tokens * args.num_train_epochs), count="")
        self._show_steps(state)

    def _show_steps(self, state: TrainerState) -> None:
        if self._task is not None:
            steps = f"step {state.global_step:,}/{state.max_steps:,}"
            self._bar.update(self._task, completed=state.num_input_tokens_seen, count=steps)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Advance the bar; print the estimated time once enough steps are measured."""
        self._show_steps(state)
        now, seen = time.monotonic(), state.num_input_tokens_seen
        if self._first is None:  # the first step also allocates memory
            self._first = now, seen
        elif not self._estimated and now - self._first[0] >= MEASURED and self._plan is not None:
            self._estimated = True
            each = (now - self._first[0]) / (seen - self._first[1])
            for line in estimate(self._plan, self._tokens, each, args.num_train_epochs, seen):
                self.console.say(line)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Remove the bar, in whose unit later stages are not counted."""
        if self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Remember the loss and its terms for the lines of this epoch."""
        if "loss" in kwargs["logs"]:
            self._last = kwargs["logs"]

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Count a batch that is being scored."""
        if self._scoring is None:
            loader = kwargs.get("eval_dataloader")
            total = None if loader is None else len(loader)
            self._scoring = self._bar.add_task(self._named("scoring dev"), total=total)
        self._bar.advance(self._scoring)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Print the scores of this epoch, and the terms of a loss that has several."""
        if self._scoring is not None:
            self._bar.remove_task(self._scoring)
            self._scoring = None
        metrics = kwargs["metrics"]
        micro, macro = 100 * metrics["eval_micro_f1"], 100 * metrics["eval_macro_f1"]
        self.console.print(
            f"epoch {state.epoch or 0:>2.3g}  dev Micro-F1 {micro:5.2f}  Macro-F1 {macro:5.2f}"
            f"  [dim]loss {self._last.get('loss', 0):.3g}[/]"
        )
        terms = {name.removeprefix("loss_"): value for name, value in self._last.items() if name.startswith("loss_")}
        if len(terms) > 1:
            listed = ", ".join(f"{name.replace('original', 'text')} {value:.3g}" for name, value in terms.items())
            kept = f"; tokens kept {self._last['kept']:.0%}" if "kept" in self._last else ""
            self.console.say(f"  loss: {listed}{kept}", "dim")

    def _named(self, text: str) -> str:
        return f"{self.title}: {text}" if self.title else text


def estimate(plan: Plan, tokens: int, each: float, epochs: float, seen: int = 0) -> list[str]:
    """Return lines with the estimated time of a run and, if it is long, that of the effort ``head``.

    ``tokens`` are those of an epoch, ``each`` is the measured time to train on one, and ``seen`` is the number of
    tokens that are done. Dev is scored after each epoch and twice at the end, test once.
    """
    train, dev, test = (plan.documents.get(name, 0) for name in ("train", "dev", "test"))
    forward = FORWARD * each * tokens / max(1, train)  # of a document
    rest = each * (tokens * epochs - seen) + forward * (dev * (epochs + 2) + test)
    lines = [f"about {duration(rest)} for up to {epochs:g} epochs"]
    if rest > LONG:
        lines.append(
            f"--effort head takes about {duration(forward * (train + 2 * dev + test))}: it trains only the head"
        )
    return lines


def duration(seconds: float) -> str:
    """Return a time in words, rounded."""
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.{1 if seconds < 10 * size and unit == 'hours' else 0}f} {unit}"
    return f"{max(1.0, seconds):.0f} seconds"


def fold_progress(folds: int) -> Callable[[int], AbstractContextManager[FoldWatch]]:
    """Return a function that shows the training of one of ``folds`` folds."""

    @contextmanager
    def watch(fold: int) -> Iterator[FoldWatch]:
        with TrainingProgress(standard_error(), f"fold {fold} of {folds}" if fold else "") as progress:
            yield FoldWatch([progress], progress.on_documents, progress.on_stage)

    return watch
