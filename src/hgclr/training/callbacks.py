"""What watches a training run: early stopping, and a word when the model collapses."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from hgclr.errors import HGCLRError, require_extra

__all__ = ["CollapseWatch", "EarlyStop", "tensorboard"]

logger = logging.getLogger(__name__)


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
        """Count this evaluation."""
        metrics = kwargs["metrics"]
        better = [name for name in self.metrics if metrics[f"eval_{name}"] > self.best.get(name, -math.inf)]
        for name in better:
            self.best[name] = metrics[f"eval_{name}"]
        self.waited = 0 if better else self.waited + 1
        if self.waited >= self.patience:
            control.should_training_stop = True

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must remember."""
        return {
            "args": {"patience": self.patience, "metrics": self.metrics},
            "attributes": {"best": self.best, "waited": self.waited},
        }


class CollapseWatch(TrainerCallback):
    """Stop on a loss that is no number; warn when the model predicts nothing although training goes on."""

    def __init__(self, contrastive_weight: float) -> None:
        self.contrastive_weight = contrastive_weight
        self.empty = 0
        self.terms: dict[str, float] = {}

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Look at the loss."""
        logs = kwargs["logs"]
        if not math.isfinite(logs.get("loss", 0.0)):
            raise HGCLRError(
                f"the loss is {logs['loss']} at step {state.global_step}; lower training.learning_rate"
                " or set training.precision=fp32"
            )
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
