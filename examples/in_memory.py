"""Train on documents in memory with ``hgclr.fit``, then save the classifier."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tickets import read_tickets

from hgclr import HierarchicalClassifier, fit
from hgclr.models import FlatForSequenceClassification
from hgclr.models.base import load_tokenizer
from hgclr.training import TrainingSettings


def main(encoder: str, epochs: int) -> None:
    pairs, taxonomy = read_tickets()
    tokenizer = load_tokenizer(encoder)
    model = FlatForSequenceClassification.from_encoder(encoder, taxonomy, tokenizer)
    fitted = fit(
        model,
        tokenizer,
        pairs[:-24],  # train: a list, a generator, a datasets.Dataset
        pairs[-24:-12],  # dev: the best epoch and the decisions are chosen on it
        test=pairs[-12:],
        settings=TrainingSettings(epochs=epochs, seed=0),
    )
    for epoch in fitted.metrics["history"]:
        print(f"epoch {epoch['epoch']:.0f}: dev Micro-F1 {epoch['micro_f1']:.2f}, Macro-F1 {epoch['macro_f1']:.2f}")
    print(f"test Micro-F1: {fitted.metrics['test']['micro']['f1']:.2f}, {fitted.decisions.summary()}")

    classifier = HierarchicalClassifier.from_model(model, tokenizer, fitted.decisions)
    with tempfile.TemporaryDirectory() as folder:
        classifier.save_pretrained(Path(folder) / "model")  # model, tokenizer and decisions
        again = HierarchicalClassifier.load(Path(folder) / "model")
        for label in again.predict(["the invoice is too high"])[0].labels:
            print(" > ".join(label.path), f"{label.probability:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--epochs", type=int, default=10)
    main(**vars(parser.parse_args()))
