"""Show a training run: the plan, a bar with the time left, and the scores and loss terms of each epoch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from rich.logging import RichHandler
from rich.progress import TaskID
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hgclr.cli.console import Console, progress_bar, standard_error
from hgclr.evaluation.folds import FoldWatch
from hgclr.training.fitting import Plan


class TrainingProgress(TrainerCallback):
    """A progress bar over the steps of a run; where there is no terminal, only the lines per epoch."""

    def __init__(self, console: Console, title: str) -> None:
        self.console, self.title = console, title
        self._bar = progress_bar(console)
        self._documents: TaskID | None = self._bar.add_task(f"{title}: reading", total=None)
        self._steps: TaskID | None = None
        self._scoring: TaskID | None = None
        self._train: int | None = None
        self._last: dict[str, float] = {}

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
        self._train = plan.documents.get("train")
        documents = ", ".join(f"{name} {count:,}" for name, count in plan.documents.items())
        labels = f"{plan.labels:,} labels on {plan.levels} level{'s' * (plan.levels > 1)}"
        lines = [f"{self.title}: {labels}; documents: {documents or 'none'}"]
        how = f"effort {plan.effort}"
        if (recipe := plan.recipe) is not None:
            steps = f"{recipe.steps_per_epoch:,} steps of {recipe.batch_size} documents"
            lines.append(f"{how}: up to {recipe.epochs} epochs of {steps}")
            if plan.lora is not None:
                lines.append(plan.lora)
            how = f"rate {recipe.learning_rate:.2g}, of the head {recipe.head_learning_rate:.2g}"
        cut = f": {plan.cut:.1%} of train" if self._train else ""
        lines += [f"{how}; {plan.precision} on {plan.device}", f"texts are cut at {plan.max_length} tokens{cut}"]
        for line in lines:
            self.console.say(line)

    def on_documents(self, count: int) -> None:
        """Count documents that were read, or, after training, encoded to fit the head to."""
        if self._documents is None:
            self._documents = self._bar.add_task(f"{self.title}: fitting the head", total=self._train)
        self._bar.advance(self._documents, count)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._documents is not None:
            self._bar.remove_task(self._documents)
            self._documents = None
        self._steps = self._bar.add_task(self.title, total=state.max_steps, completed=state.global_step)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._steps is not None:
            self._bar.update(self._steps, completed=state.global_step)

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
            self._scoring = self._bar.add_task(f"{self.title}: scoring", total=total)
        self._bar.advance(self._scoring)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Print the scores of this epoch, and the terms of a loss that has several."""
        if self._scoring is not None:
            self._bar.remove_task(self._scoring)
            self._scoring = None
        metrics = kwargs["metrics"]
        micro, macro = 100 * metrics["eval_micro_f1"], 100 * metrics["eval_macro_f1"]
        self.console.print(
            f"{self.title}  epoch {state.epoch or 0:>2.3g}  dev Micro-F1 {micro:5.2f}  Macro-F1 {macro:5.2f}"
            f"  [dim]loss {self._last.get('loss', 0):.3g}[/]"
        )
        terms = {name.removeprefix("loss_"): value for name, value in self._last.items() if name.startswith("loss_")}
        if len(terms) > 1:
            listed = ", ".join(f"{name.replace('original', 'text')} {value:.3g}" for name, value in terms.items())
            kept = f"; tokens kept {self._last['kept']:.0%}" if "kept" in self._last else ""
            self.console.say(f"  loss: {listed}{kept}", "dim")


def fold_progress(folds: int) -> Callable[[int], AbstractContextManager[FoldWatch]]:
    """Return a function that shows the training of one of ``folds`` folds."""

    @contextmanager
    def watch(fold: int) -> Iterator[FoldWatch]:
        with TrainingProgress(standard_error(), f"fold {fold} of {folds}") as progress:
            yield FoldWatch([progress], progress.on_documents)

    return watch
