"""Export a model to int8 ONNX and predict with it: onnxruntime is enough, torch need not be installed there."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tickets import read_tickets, train_classifier

from hgclr import HierarchicalClassifier
from hgclr.export.onnx import export_onnx


def main(encoder: str, epochs: int) -> None:
    classifier = train_classifier(encoder, epochs)
    texts = [text for text, _ in read_tickets()[0][-12:]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        classifier.save_pretrained(folder / "model")
        export_onnx(folder / "model", folder / "onnx", int8=True)
        small = HierarchicalClassifier.load(folder / "onnx")
        same = sum(one == other for one, other in zip(small.predict(texts), classifier.predict(texts), strict=True))
        sizes = [sum(file.stat().st_size for file in (folder / kind).iterdir()) for kind in ("model", "onnx")]
        print(f"{sizes[0] / 1e6:.1f} MB became {sizes[1] / 1e6:.1f} MB")
        print(f"{same} of {len(texts)} tickets get the same labels and probabilities")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--epochs", type=int, default=10)
    main(**vars(parser.parse_args()))
