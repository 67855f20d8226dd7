"""From a CSV file with a text and a path per row to a saved model."""

from __future__ import annotations

import argparse
import csv
import tempfile
from pathlib import Path

from hgclr import HGCLRClassifier

TICKETS = Path(__file__).with_name("tickets.csv")


def main(encoder: str, epochs: int) -> None:
    with TICKETS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    texts, topics = [row["ticket"] for row in rows], [row["topic"] for row in rows]
    train, held_out = slice(None, -12), slice(-12, None)

    # The label tree is drawn from the paths.
    classifier = HGCLRClassifier(encoder, epochs=epochs, random_state=0).fit(texts[train], topics[train])
    print(f"Micro-F1 on 12 tickets held out: {classifier.score(texts[held_out], topics[held_out]):.2f}")

    with tempfile.TemporaryDirectory() as folder:
        classifier.save(Path(folder) / "model")  # `hgclr predict` and `hgclr serve` read the same folder
        again = HGCLRClassifier.load(Path(folder) / "model")
        print(again.predict(["my parcel never came", "please pay me back"]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--epochs", type=int, default=10)
    main(**vars(parser.parse_args()))
