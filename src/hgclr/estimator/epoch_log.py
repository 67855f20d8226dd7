"""One line in the log for each epoch."""

from __future__ import annotations

import logging
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

__all__ = ["EpochLog"]

logger = logging.getLogger(__name__)


class EpochLog(TrainerCallback):
    """Log the scores of each epoch on the documents held out."""

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:  # noqa: ARG002 (the Trainer decides the arguments)
        """Log the scores of this epoch."""
        metrics = kwargs["metrics"]
        logger.info(
            "epoch %.0f of %.0f: validation Micro-F1 %.2f %%, Macro-F1 %.2f %%",
            state.epoch or 0,
            args.num_train_epochs,
            100 * metrics["eval_micro_f1"],
            100 * metrics["eval_macro_f1"],
        )
