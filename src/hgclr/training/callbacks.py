"""What watches a training: when to stop, when to write a checkpoint, when to warn."""

from __future__ import annotations

import logging
import math
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from hgclr.errors import require_extra
from hgclr.nn.gathering import world_size
from hgclr.training.distributed import from_first_rank

__all__ = ["BestCheckpoint", "CollapseWatch", "EarlyStop", "TimedCheckpoints", "tensorboard"]

logger = logging.getLogger(__name__)
SECONDS_BETWEEN = 600
"""After how long a checkpoint is due although the epoch has not ended."""


class EarlyStop(TrainerCallback, ExportableState):
    """Stop when no watched dev score has improved for ``patience`` evaluations.

    The paper watches Macro-F1; the published program starts counting anew when Macro- or Micro-F1 improves.
    The counter and the best scores survive a resume.
    """

    def __init__(self, patience: int, metrics: list[str]) -> None:
        self.patience, self.metrics = patience, metrics
        self.best: dict[str, float] = {}
        self.waited = 0

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        metrics = kwargs["metrics"]
        better = [name for name in self.metrics if metrics[f"eval_{name}"] > self.best.get(name, -math.inf)]
        for name in better:
            self.best[name] = metrics[f"eval_{name}"]
        self.waited = 0 if better else self.waited + 1
        if self.waited >= self.patience:
            control.should_training_stop = True

    def state(self) -> dict[str, Any]:
        return {
            "args": {"patience": self.patience, "metrics": self.metrics},
            "attributes": {"best": self.best, "waited": self.waited},
        }


class BestCheckpoint(TrainerCallback):
    """Look for the best checkpoint beside the others: the run may have been moved since its path was noted."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Note its path anew, which the Trainer takes for gone where there is nothing any more."""
        if state.best_global_step:
            state.best_model_checkpoint = str(Path(str(args.output_dir)) / f"checkpoint-{state.best_global_step}")


class TimedCheckpoints(TrainerCallback):
    """Write checkpoints within long epochs as well, by the clock of the first rank."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.written = time.monotonic()

    on_save = on_train_begin

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Ask for one if it is due; not after an epoch's last step, where dev is scored first."""
        if float(state.epoch or 0).is_integer() or (world_size() > 1 and state.global_step % 10):
            return  # several ranks ask each other in every tenth step
        if from_first_rank(time.monotonic() - self.written >= SECONDS_BETWEEN):
            control.should_save = True


class CollapseWatch(TrainerCallback):
    """Warn when the model predicts nothing although training goes on."""

    def __init__(self, contrastive_weight: float) -> None:
        self.contrastive_weight = contrastive_weight
        self.empty = 0
        self.terms: dict[str, float] = {}

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        logs = kwargs["logs"]
        self.terms = {name: logs[name] for name in ("loss_original", "loss_contrastive") if name in logs} or self.terms

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Warn at the second evaluation in a row at which nothing is predicted right."""
        self.empty = self.empty + 1 if kwargs["metrics"]["eval_micro_f1"] == 0 else 0
        if self.empty != 2:
            return
        ratio = self.contrastive_weight * self.terms.get("loss_contrastive", 0.0) / self.terms.get("loss_original", 1.0)
        if ratio > 1:
            cause = f"the contrastive term is {ratio:.0f} times the classification loss: lower model.contrastive_weight"
        else:
            cause = "raise training.learning_rate, set training.base_rate_bias, or train longer"
        logger.warning("no label has been predicted right for two evaluations; %s", cause)


def tensorboard(folder: Path) -> TrainerCallback:
    """Return a callback that writes everything logged into ``folder``, for TensorBoard."""
    require_extra("tensorboard", extra="tensorboard", capability="Logging for TensorBoard")
    from torch.utils.tensorboard import SummaryWriter
    from transformers.integrations.integration_utils import TensorBoardCallback

    return TensorBoardCallback(SummaryWriter(str(folder)))
