"""Many short texts in one stream: texts a second against the backend alone, and memory from the start to the end.

    python benchmarks/bulk_prediction.py --data ../shared/data/clinc150 --texts 1000000 \
        --output benchmarks/results/bulk-prediction.json

The texts are utterances of the data with a word exchanged, so that hardly two are the same. Each runtime gets a process
of its own, so that its peak memory is its own. In regular intervals the stream is halted after some windows, and the
backend computes the very batches of these windows again, already tokenised and padded: how much longer the stream took
is what reading, tokenising and decoding cost.
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

from hgclr.cli.console import quiet_libraries
from hgclr.data import DataFolder
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.backends import Backend
from measuring import arguments_of, memory, peak_memory, provenance, show, spread, write

TORCH, INT8 = "torch fp32", "onnx int8"
FEWER, FEWEST = 20, 8192  # torch gets one text in so many, and as many as this at least
PARTS, COMPARISONS = 100, 20  # of the stream that are timed by themselves, and of which the backend is asked again


class Recorder:
    """A backend that keeps what it is given.

    Args:
        backend: computes.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend, self.batch_tokens = backend, backend.batch_tokens
        self.given: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []

    def logits(self, input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the backend's logits."""
        self.given.append((input_ids, attention_mask))
        return self.backend.logits(input_ids, attention_mask)

    def again(self) -> float:
        """Let the backend compute all that was kept once more, and return the seconds it takes."""
        started = time.perf_counter()
        for given in self.given:
            self.backend.logits(*given)
        return time.perf_counter() - started


def short_texts(data: Path, number: int) -> Iterator[str]:
    """Yield utterances of the training split over and over, each time with another word exchanged."""
    utterances = [document.text.split() for document in DataFolder(data).documents("train")]
    words = sorted({word for utterance in utterances for word in utterance})
    random = Random(0)
    for utterance in islice(cycle(utterances), number):
        place = random.randrange(len(utterance))
        yield " ".join([*utterance[:place], random.choice(words), *utterance[place + 1 :]])


def measure(model: Path, data: Path, texts: int) -> dict[str, Any]:
    """Stream texts through one model and return rates and memory."""
    classifier = HierarchicalClassifier.load(model)
    if texts < 2 * classifier.window:
        raise ValueError(f"{texts} texts are too few: {classifier.window} warm up, and as many are timed at least")
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
    """Return rates and memory of torch and of onnxruntime in int8.

    Args:
        data: data folder with short texts.
        model: folder of a trained model; an untrained one on the data's label tree if left out.
        encoder: of the untrained model.
        texts: how many to label in int8; torch, which is slower, gets fewer.
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
    """Stream the texts, write the result and print the table."""
    parser = arguments_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="data folder, such as ../shared/data/clinc150")
    parser.add_argument("--model", type=Path, help="trained model; an untrained one if left out")
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2", help="of the untrained model")
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--output", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    quiet_libraries()
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
        "A stream of short texts",
        ("", "texts", "texts/s", "of the backend's own rate", "peak memory", "in the second half"),
        rows,
    )


if __name__ == "__main__":
    main()
