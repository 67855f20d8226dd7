"""Which words carry a label, and which tickets may be labelled wrong."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from tickets import read_tickets, train_classifier

from hgclr import audit
from hgclr.data import DataFolder


def main(encoder: str, epochs: int) -> None:
    classifier = train_classifier(encoder, epochs)
    explanation = classifier.explain("the parcel is late and I want my money back")
    for label in explanation.labels:
        words = ", ".join(explanation.word(index) for index in label.kept)
        print(" > ".join(label.label.path), "because of", words)

    pairs, taxonomy = read_tickets()
    wrong = ("My password is not accepted any more", ["Delivery", "Late"])  # planted
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        taxonomy.write(folder / "taxonomy.json")
        rows = [json.dumps({"text": text, "labels": labels}) for text, labels in [*pairs[-12:], wrong]]
        (folder / "test.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
        found = audit(classifier, DataFolder(folder), "test", top=3)
        for finding in found.findings:
            print(f"row {finding.row}: {finding.text}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--epochs", type=int, default=10)
    main(**vars(parser.parse_args()))
