"""Compare the prediction speed of mean pooling and first-token pooling, in torch, ONNX fp32 and ONNX int8.

    python benchmarks/pooling_speed.py --data ../shared/data/clinc150 \
        --output benchmarks/results/pooling-speed-clinc150.json

Two models with one encoder and random heads differ only in ``pooling``. All take turns in one process on the same
documents, from raw text to labels.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hgclr.data import DataFolder
from hgclr.export.onnx import export_onnx
from hgclr.inference import HierarchicalClassifier
from measuring import arguments_of, in_turns, provenance, ratio, show, spread, write
from prediction_speed import INT8, ONNX, TORCH, sample
from untrained import write_untrained

POOLINGS = ("cls", "mean")


def run(
    data: Path, *, encoder: str = "all-MiniLM-L6-v2", documents: int = 240, rounds: int = 7, max_length: int = 512
) -> dict[str, Any]:
    """Return the documents per second of each backend and pooling, and the speed of mean relative to cls.

    Args:
        data: data folder with a test split.
        encoder: encoder of both models.
        documents: number of documents.
        rounds: number of timed rounds.
        max_length: tokens read per text.
    """
    folder = DataFolder(data)
    texts = [document.text for document in sample(folder, documents)]
    classifiers: dict[str, HierarchicalClassifier] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for pooling in POOLINGS:
            place = Path(scratch, pooling)
            model = write_untrained(encoder, folder.taxonomy, place / "torch", pooling=pooling, max_length=max_length)
            export_onnx(model, place / "fp32")
            export_onnx(model, place / "int8", int8=True)
            for runtime, name in ((TORCH, "torch"), (ONNX, "fp32"), (INT8, "int8")):
                classifiers[f"{runtime}, {pooling}"] = HierarchicalClassifier.load(place / name)
    seconds = in_turns({name: partial(classifier.predict, texts) for name, classifier in classifiers.items()}, rounds)
    tokenizer = classifiers[f"{TORCH}, mean"].tokenizer
    return {
        "documents_per_second": {
            name: spread([len(texts) / value for value in values]) for name, values in seconds.items()
        },
        "mean_to_cls": {
            runtime: ratio(seconds[f"{runtime}, mean"], seconds[f"{runtime}, cls"]) for runtime in (TORCH, ONNX, INT8)
        },
        "seconds": seconds,
        "setting": {
            "data": data.name,
            "encoder": encoder,
            "documents": len(texts),
            "labels": len(folder.taxonomy),
            "tokens_per_document": float(np.mean([len(tokens.ids) for tokens in tokenizer.encode_batch(texts)])),
            "rounds": rounds,
            "threads": torch.get_num_threads(),
        },
        **provenance(),
    }


def main() -> None:
    """Run the benchmark, write the result and print the table."""
    parser = arguments_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="data folder, such as ../shared/data/clinc150")
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--documents", type=int, default=240)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--max-length", type=int, default=512)
    parser.add_argument("--output", type=Path, help="write the result to this JSON file")
    arguments = parser.parse_args()
    result = run(
        arguments.data,
        encoder=arguments.encoder,
        documents=arguments.documents,
        rounds=arguments.rounds,
        max_length=arguments.max_length,
    )
    write(result, arguments.output)
    compared = {f"{name}, mean": value for name, value in result["mean_to_cls"].items()}
    rows = [
        (
            name.removeprefix("ours, "),
            f"{rate['median']:.1f} ({rate['lowest']:.1f}-{rate['highest']:.1f})",
            f"{compared[name]['median']:.2f} x" if name in compared else "",
        )
        for name, rate in result["documents_per_second"].items()
    ]
    show("Pooling", ("", "documents/s", "relative to cls"), rows)


if __name__ == "__main__":
    main()
