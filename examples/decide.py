"""The same probabilities, decided in several ways: rules, thresholds, abstaining, calibrating."""

from __future__ import annotations

import argparse

from tickets import read_tickets, train_classifier

from hgclr import Decisions
from hgclr.data.folder import read_documents

TICKET = "the parcel is late and I want my money back"


def main(encoder: str, epochs: int) -> None:
    classifier = train_classifier(encoder, epochs)
    ways = {
        "as tuned": classifier.decisions,
        "one half": Decisions(classifier.taxonomy),
        "best path": Decisions(classifier.taxonomy, "best-path"),
        "two paths": Decisions(classifier.taxonomy, "top-k-paths", paths=2),
        "only if 90 % sure": Decisions(classifier.taxonomy, "closure", abstain_below=0.9),
    }
    for name, decisions in ways.items():
        prediction = classifier.predict([TICKET], decisions=decisions)[0]
        labels = ", ".join(" > ".join(label.path) for label in prediction.labels) or "no label"
        print(f"{name:>18}: {labels}" + (f" (left out: {len(prediction.abstained)})" if prediction.abstained else ""))

    pairs, taxonomy = read_tickets()
    documents = read_documents(pairs[-24:], taxonomy)
    calibrated = classifier.calibrate(classifier.outputs(documents))
    print(f"held-out Micro-F1 {calibrated.before.micro_f1:.2f} at one half, {calibrated.after.micro_f1:.2f} tuned")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--epochs", type=int, default=10)
    main(**vars(parser.parse_args()))
