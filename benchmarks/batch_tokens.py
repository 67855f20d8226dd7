"""How many tokens to compute at a time: each runtime with mean pooling on batches of several sizes.

    python benchmarks/batch_tokens.py --data ../shared/data/clinc150 \
        --output benchmarks/results/batch-tokens-clinc150.json

Texts are tokenised before anything is timed. They are dealt out in groups of similar length, and within a group the
sizes take turns in a random order: what differs by a few percent is lost in the noise of a whole pass on a machine
that others use too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgclr.cli.console import quiet_libraries
from hgclr.data import DataFolder
from hgclr.export.onnx import export_onnx
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.backends import Backend, session_options
from hgclr.inference.batches import batches_by_length, longest_first, pad, windows
from measuring import arguments_of, one_round, provenance, ratio, show, write
from prediction_speed import sample
from untrained import write_untrained

TOKENS = (256, 512, 1024, 2048)

Batch = tuple[NDArray[np.int64], NDArray[np.int64]]


def compute(backend: Backend, batches: Sequence[Batch]) -> None:
    """Compute the logits of batches."""
    for ids, mask in batches:
        backend.logits(ids, mask)


def run(
    data: Path,
    *,
    encoder: str = "all-MiniLM-L6-v2",
    documents: int = 1024,
    group: int = 512,
    rounds: int = 7,
    tokens: Sequence[int] = TOKENS,
    max_length: int = 512,
) -> dict[str, Any]:
    """Return how many times as fast each size of a batch is as one of them.

    Args:
        data: data folder with a test split.
        encoder: under a head of random weights.
        documents: how many to label.
        group: of so many texts, which is what a classifier tokenises at a time.
        rounds: how often each group has its turns.
        tokens: sizes of a batch to try; the third of them, or the last of fewer, is what they are compared with.
        max_length: tokens of a text that are read.
    """
    folder = DataFolder(data)
    texts = [document.text for document in sample(folder, documents)]
    with tempfile.TemporaryDirectory() as scratch:
        model = write_untrained(encoder, folder.taxonomy, Path(scratch, "torch"), pooling="mean", max_length=max_length)
        export_onnx(model, Path(scratch, "onnx"))
        export_onnx(model, Path(scratch, "onnx-int8"), int8=True)
        classifiers = {
            name: HierarchicalClassifier.from_pretrained(Path(scratch, name)) for name in ("torch", "onnx", "onnx-int8")
        }
    first = classifiers["torch"]
    ordered = [texts[row] for row in longest_first([len(text) for text in texts])]
    encoded = [encoding.ids for encoding in first.tokenizer.encode_batch_fast(ordered)]
    made = {
        str(size): [
            [
                pad([part[place] for place in places], first.pad_token)
                for places in batches_by_length([len(ids) for ids in part], size)
            ]
            for part in windows(encoded, group)
        ]
        for size in tokens
    }
    base = str(tokens[min(2, len(tokens) - 1)])
    random = np.random.default_rng(0)
    runtimes = {}
    for name, classifier in classifiers.items():
        seconds: dict[str, list[float]] = {size: [] for size in made}
        for turn in range(rounds + 1):
            for number in range(len(made[base])):
                order = random.permutation(list(made)).tolist()
                timed = one_round({size: partial(compute, classifier.backend, made[size][number]) for size in order})
                for size in made if turn else ():  # the first turn warms up
                    seconds[size].append(timed[size])
        runtimes[name] = {size: ratio(values, seconds[base]) for size, values in seconds.items()}
    real = sum(map(len, encoded))
    return {
        "runtimes": runtimes,
        "batches": {
            size: {
                "number": sum(map(len, groups)),
                "padded": sum(ids.size for batches in groups for ids, _ in batches) / real,
            }
            for size, groups in made.items()
        },
        "setting": {
            "data": data.name,
            "encoder": encoder,
            "documents": len(texts),
            "group": group,
            "tokens_per_document": real / len(texts),
            "compared_with": base,
            "rounds": rounds,
            "threads": session_options().intra_op_num_threads,
        },
        **provenance(),
    }


def main() -> None:
    """Run the rounds, write the result and print the table."""
    parser = arguments_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="data folder, such as ../shared/data/clinc150")
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--documents", type=int, default=1024)
    parser.add_argument("--group", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    quiet_libraries()
    result = run(
        arguments.data,
        encoder=arguments.encoder,
        documents=arguments.documents,
        group=arguments.group,
        rounds=arguments.rounds,
    )
    write(result, arguments.output)
    rows = [
        (
            f"{int(size):,} tokens",
            *(f"{found[size]['median']:.2f} x" for found in result["runtimes"].values()),
            f"{batches['number']:,}",
            f"{100 * (batches['padded'] - 1):.1f} %",
        )
        for size, batches in result["batches"].items()
    ]
    show("Tokens at a time", ("", *result["runtimes"], "batches", "padding"), rows)


if __name__ == "__main__":
    main()
