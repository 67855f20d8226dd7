"""Measure bulk prediction of short texts: speed compared with the backend alone, and memory over time.

    python benchmarks/bulk_prediction.py --data ../shared/data/clinc150 --texts 1000000 \
        --output benchmarks/results/bulk-prediction.json

The texts are utterances of the data with one word exchanged, so hardly two are equal. Each backend runs in its own
process, to measure its own peak memory. At regular intervals the stream stops, and the backend computes the last
batches again, already tokenised and padded. The difference is the cost of reading, tokenising and decoding.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import count, cycle, islice
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgclr.data import DataFolder
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.backends import Backend
from measuring import arguments_of, memory, peak_memory, provenance, show, spread, write

TORCH, INT8 = "torch fp32", "onnx int8"
FEWER, FEWEST = 20, 8192  # torch labels one text in FEWER, and at least FEWEST
PARTS, COMPARISONS = 100, 20  # timed parts of the stream, and comparisons with the backend


class Recorder:
    """A backend that records its inputs.

    Args:
        backend: the backend that computes.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend, self.batch_tokens = backend, backend.batch_tokens
        self.given: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []

    def logits(self, input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the backend's logits and record the inputs."""
        self.given.append((input_ids, attention_mask))
        return self.backend.logits(input_ids, attention_mask)

    def again(self) -> float:
        """Compute all recorded inputs again and return the seconds."""
        started = time.perf_counter()
        for given in self.given:
            self.backend.logits(*given)
        return time.perf_counter() - started


def short_texts(data: Path, number: int) -> Iterator[str]:
    """Yield utterances of the training split repeatedly, each time with another word exchanged."""
    utterances = [document.text.split() for document in DataFolder(data).documents("train")]
    words = sorted({word for utterance in utterances for word in utterance})
    random = Random(0)
    for utterance in islice(cycle(utterances), number):
        place = random.randrange(len(utterance))
        yield " ".join([*utterance[:place], random.choice(words), *utterance[place + 1 :]])


def measure(model: Path, data: Path, texts: int) -> dict[str, Any]:
    """Label a stream of texts with one model and return speed and memory."""
    classifier = HierarchicalClassifier.load(model)
    if texts < 2 * classifier.window:
        raise ValueError(f"{texts} texts are too few; give at least {2 * classifier.window}")
    loaded = memory()
    recorder = Recorder(classifier.backend)
    classifier.backend = recorder
    stream = classifier.stream(short_texts(data, texts))
    warm = len(list(islice(stream, classifier.window)))
    size = classifier.window * max(1, texts // classifier.window // PARTS)
    every = max(1, texts // size // COMPARISONS)
    done, seconds = 0, 0.0
    shares: list[float] = []
    held: list[tuple[int, int]] = []
    for number in count():
        recorder.given.clear()
        started = time.perf_counter()
        labelled = sum(1 for _ in islice(stream, size))
        elapsed = time.perf_counter() - started
        if not labelled:
            break
        done, seconds = done + labelled, seconds + elapsed
        held.append((warm + done, memory()))
        if number % every == 0 and labelled == size:
            shares.append(recorder.again() / elapsed)
    half = [value for _, value in held[len(held) // 2 :]]
    return {
        "texts": texts,
        "texts_per_second": done / seconds,
        "share_of_the_backends_own_rate": spread(shares),
        "bytes": {
            "peak": peak_memory(),
            "after_loading": loaded,
            "after_warming_up": held[0][1],
            "second_half": spread(half),
            "by_texts": held[:: max(1, len(held) // 50)],
        },
    }


def run(
    data: Path, *, model: Path | None = None, encoder: str = "all-MiniLM-L6-v2", texts: int = 1_000_000
) -> dict[str, Any]:
    """Return speed and memory of torch and of onnxruntime in int8.

    Args:
        data: data folder with short texts.
        model: folder of a trained model; default: a random head on the data's label tree.
        encoder: encoder of the model with a random head.
        texts: number of texts in int8; torch, which is slower, gets fewer.
    """
    from hgclr.export.onnx import export_onnx
    from untrained import write_untrained

    with tempfile.TemporaryDirectory() as scratch:
        source = model or write_untrained(encoder, DataFolder(data).taxonomy, Path(scratch, "torch"))
        export_onnx(source, Path(scratch, "int8"), int8=True)
        results = {}
        for name, folder, number in (
            (TORCH, source, max(FEWEST, texts // FEWER)),
            (INT8, Path(scratch, "int8"), texts),
        ):
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                results[name] = process.submit(measure, folder, data, number).result()
    return {
        **results,
        "setting": {
            "data": data.name,
            "model": source.name if model else f"untrained head on {encoder}",
            "texts": texts,
        },
        **provenance(),
    }


def main() -> None:
    """Run the benchmark, write the result and print the table."""
    parser = arguments_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="data folder, such as ../shared/data/clinc150")
    parser.add_argument("--model", type=Path, help="folder of a trained model; default: a random head")
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2", help="encoder of the model with a random head")
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--output", type=Path, help="write the result to this JSON file")
    arguments = parser.parse_args()
    result = run(arguments.data, model=arguments.model, encoder=arguments.encoder, texts=arguments.texts)
    write(result, arguments.output)
    rows = []
    for name in (TORCH, INT8):
        measured, held = result[name], result[name]["bytes"]
        share = measured["share_of_the_backends_own_rate"]
        rows.append(
            (
                name,
                f"{measured['texts']:,}",
                f"{measured['texts_per_second']:.0f}",
                f"{share['median']:.1%} ({share['lowest']:.1%}-{share['highest']:.1%})",
                f"{held['peak'] / 1e6:.0f} MB",
                f"{held['second_half']['lowest'] / 1e6:.0f}-{held['second_half']['highest'] / 1e6:.0f} MB",
            )
        )
    show(
        "Bulk prediction of short texts",
        ("", "texts", "texts/s", "share of the backend's speed", "peak memory", "memory, second half"),
        rows,
    )


if __name__ == "__main__":
    main()
