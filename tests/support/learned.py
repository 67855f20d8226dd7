"""Training until the documents are learned, and no longer."""

from __future__ import annotations

from transformers import TrainerCallback


class StopWhenLearned(TrainerCallback):
    """Stop after the first epoch with perfect scores on dev."""

    def on_evaluate(self, args, state, control, metrics, **kwargs) -> None:
        if metrics["eval_micro_f1"] == metrics["eval_macro_f1"] == 1.0:
            control.should_training_stop = True
