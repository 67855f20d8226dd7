"""Train with ``HierarchicalTrainer``: your own arguments, callbacks and schedule, as in transformers."""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

from tickets import read_tickets
from transformers import TrainerCallback, TrainingArguments

from hgclr import HierarchicalTrainer
from hgclr.models import HGCLRForSequenceClassification
from hgclr.models.base import load_tokenizer


class PrintScores(TrainerCallback):
    """Print the dev scores of each epoch."""

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        metrics = kwargs["metrics"]
        print(f"epoch {state.epoch:.0f}: Micro-F1 {metrics['eval_micro_f1']:.2f}")


def main(encoder: str, epochs: int) -> None:
    pairs, taxonomy = read_tickets()
    tokenizer = load_tokenizer(encoder)
    model = HGCLRForSequenceClassification.from_encoder(encoder, taxonomy, tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=epochs,
            learning_rate=3e-4,
            per_device_train_batch_size=16,
            lr_scheduler_type="cosine",
            eval_strategy="epoch",
            save_strategy="no",
            report_to=[],
            seed=0,
        )
        trainer = HierarchicalTrainer(
            model,
            arguments,
            processing_class=tokenizer,  # collator and metrics come by default
            train_dataset=pairs[:-12],
            eval_dataset=pairs[-12:],
            callbacks=[PrintScores()],
        )
        trainer.train()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--epochs", type=int, default=5)
    main(**vars(parser.parse_args()))
