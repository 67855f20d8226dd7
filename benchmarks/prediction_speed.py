"""Compare prediction speed: the published test loop, transformers' pipeline, and hgclr with three backends.

    python benchmarks/prediction_speed.py --data ../shared/data/arxiv --model runs/arxiv/model \
        --output benchmarks/results/prediction-speed.json

All systems label the same documents with the same weights, from raw text, and take turns in one process, because the
speed of the machine changes by the minute. The pipeline runs at several batch sizes; the best counts. Before timing,
the fp32 probabilities must agree to 1e-3. Without --model the head is random, and F1 is not compared.
"""

from __future__ import annotations

import copy
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase, pipeline

import published_style
from hgclr.data import DataFolder
from hgclr.data.folder import Document
from hgclr.export.onnx import export_onnx
from hgclr.inference import HierarchicalClassifier
from hgclr.metrics.scores import MultiLabelScores
from hgclr.models import FlatForSequenceClassification
from hgclr.models.base import load_tokenizer
from hgclr.models.stock import no_stock_form, to_stock
from hgclr.taxonomy import Taxonomy
from measuring import arguments_of, in_turns, provenance, ratio, show, spread, write
from published_style import pad_to_512, score_label_by_label
from untrained import write_untrained

BATCH = 12
PIPELINE_BATCHES = (1, 2, 4, 8, 16, 32)
PUBLISHED, TORCH, ONNX, INT8 = "published style", "ours, torch fp32", "ours, onnx fp32", "ours, onnx int8"
AGREEMENT = 1e-3

Probabilities = NDArray[np.float32]


def sample(folder: DataFolder, documents: int) -> list[Document]:
    """Return a random sample of the test split, in the order of the file."""
    everything = list(folder.documents("test"))
    chosen = np.random.default_rng(0).permutation(len(everything))[:documents]
    return [everything[place] for place in sorted(chosen.tolist())]


def published_loop(
    model: FlatForSequenceClassification, tokenizer: PreTrainedTokenizerBase, documents: Sequence[Document]
) -> Callable[[], dict[str, float]]:
    """Return the published test loop over documents, tokenisation included."""

    def batches() -> Iterator[dict[str, torch.Tensor]]:
        for start in range(0, len(documents), BATCH):
            part = documents[start : start + BATCH]
            encoded = tokenizer(
                [document.text for document in part], truncation=True, max_length=published_style.LENGTH
            )["input_ids"]
            rows = [
                {"input_ids": ids, "labels": list(document.labels)} for ids, document in zip(encoded, part, strict=True)
            ]
            yield pad_to_512(rows, model.config.label_count, tokenizer.pad_token_id)

    return lambda: score_label_by_label(model, batches())


def published_probabilities(model: FlatForSequenceClassification, loop: Callable[[], object]) -> Probabilities:
    """Return the probabilities of the published loop."""
    logits: list[torch.Tensor] = []
    hook = model.classifier.register_forward_hook(lambda _module, _inputs, output: logits.append(output))
    loop()
    hook.remove()
    return torch.sigmoid(torch.cat(logits)).numpy()


def pipeline_probabilities(answers: Sequence[Sequence[dict[str, Any]]], labels: Sequence[str]) -> Probabilities:
    """Return the pipeline's probabilities in the order of the labels."""
    scores = [{answer["label"]: answer["score"] for answer in row} for row in answers]
    return np.array([[row[label] for label in labels] for row in scores], dtype=np.float32)


def f1(classifiers: dict[str, HierarchicalClassifier], documents: Sequence[Document]) -> dict[str, dict[str, float]]:
    """Return Micro- and Macro-F1 of each classifier, in percent."""
    found = {}
    for name, classifier in classifiers.items():
        gold = np.zeros((len(documents), len(classifier.taxonomy)), dtype=np.bool_)
        for row, document in enumerate(documents):
            gold[row, list(document.labels)] = True
        scores = MultiLabelScores(classifier.taxonomy)
        scores.update(
            classifier.decisions.decide(classifier.predict_proba([document.text for document in documents])).predicted,
            gold,
        )
        found[name] = {"micro_f1": 100 * scores.micro().f1, "macro_f1": 100 * scores.macro().f1}
    return found


def load(
    model: Path | None, encoder: str, taxonomy: Taxonomy
) -> tuple[dict[str, HierarchicalClassifier], FlatForSequenceClassification, PreTrainedTokenizerBase]:
    """Return hgclr's classifiers with all backends, and the network and tokenizer for the other systems."""
    with tempfile.TemporaryDirectory() as scratch:
        source = model or write_untrained(encoder, taxonomy, Path(scratch, "torch"))
        export_onnx(source, Path(scratch, "fp32"))
        export_onnx(source, Path(scratch, "int8"), int8=True)
        ours = {
            TORCH: HierarchicalClassifier.load(source),
            ONNX: HierarchicalClassifier.load(Path(scratch, "fp32")),
            INT8: HierarchicalClassifier.load(Path(scratch, "int8")),
        }
        return ours, FlatForSequenceClassification.from_pretrained(source).eval(), load_tokenizer(str(source))


def run(
    data: Path,
    *,
    model: Path | None = None,
    encoder: str = "all-MiniLM-L6-v2",
    documents: int = 120,
    scored: int = 3000,
    rounds: int = 3,
    pipeline_batches: Sequence[int] = PIPELINE_BATCHES,
) -> dict[str, Any]:
    """Return documents per second, ratios and the agreement of all systems.

    Args:
        data: data folder with a test split.
        model: folder of a model trained on the data's label tree; default: a random head.
        encoder: encoder of the model with a random head.
        documents: number of documents to label.
        scored: number of documents for F1, if the model is trained.
        rounds: number of timed rounds.
        pipeline_batches: batch sizes of the pipeline.

    Raises:
        ValueError: if the probabilities differ.
    """
    ours, network, tokenizer = load(model, encoder, DataFolder(data).taxonomy)
    reads, padded = network.config.max_length, published_style.LENGTH
    if reads < padded:
        raise ValueError(
            f"the model reads {reads} tokens, the published loop {padded}; give a model with max_length {padded}"
        )
    taxonomy = ours[TORCH].taxonomy
    folder = DataFolder(data, taxonomy=taxonomy)
    chosen = sample(folder, documents)
    texts = [document.text for document in chosen]
    stock = partial(
        pipeline(
            "text-classification",
            # transformers' own class has no mean pooling; then the pipeline runs the class of hgclr.
            model=to_stock(network) if no_stock_form(network) is None else copy.deepcopy(network),
            tokenizer=tokenizer,
            top_k=None,
            function_to_apply="sigmoid",
            device="cpu",
        ),
        texts,
        truncation=True,
        max_length=published_style.LENGTH,
    )
    network.encoder.set_attn_implementation("eager")
    loop = published_loop(network, tokenizer, chosen)

    probabilities = {name: classifier.predict_proba(texts) for name, classifier in ours.items()}
    probabilities[PUBLISHED] = published_probabilities(network, loop)
    probabilities["pipeline"] = pipeline_probabilities(stock(batch_size=1), taxonomy.ids)
    differences = {
        name: float(np.abs(values - probabilities[PUBLISHED]).max()) for name, values in probabilities.items()
    }
    if apart := [name for name, value in differences.items() if value > AGREEMENT and name != INT8]:
        raise ValueError(f"{', '.join(apart)}: probabilities differ from the published style: {differences}")

    pipelines = {f"pipeline, batch {size}": partial(stock, batch_size=size) for size in pipeline_batches}
    contenders = {
        PUBLISHED: loop,
        **pipelines,
        **{name: partial(classifier.predict, texts) for name, classifier in ours.items()},
    }
    seconds = in_turns(contenders, rounds)
    best = min(pipelines, key=lambda name: statistics.median(seconds[name]))
    return {
        "documents_per_second": {
            name: spread([len(texts) / value for value in values]) for name, values in seconds.items()
        },
        "best_pipeline": best,
        "ratio_to_published_style": {name: ratio(values, seconds[PUBLISHED]) for name, values in seconds.items()},
        "ratio_to_best_pipeline": {name: ratio(seconds[name], seconds[best]) for name in ours},
        "largest_difference_of_probabilities": differences,
        "f1": f1({name: ours[name] for name in (TORCH, INT8)}, sample(folder, scored)) if model else None,
        "seconds": seconds,
        "setting": {
            "data": data.name,
            "model": model.name if model else f"untrained head on {encoder}",
            "documents": len(texts),
            "scored": scored if model else 0,
            "tokens_per_document": float(np.mean([len(ids) for ids in tokenizer(texts)["input_ids"]])),
            "rounds": rounds,
            "threads": torch.get_num_threads(),
        },
        **provenance(),
    }


def main() -> None:
    """Run the benchmark, write the result and print the table."""
    parser = arguments_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="data folder, such as ../shared/data/arxiv")
    parser.add_argument("--model", type=Path, help="folder of a trained model; default: a random head")
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2", help="encoder of the model with a random head")
    parser.add_argument("--documents", type=int, default=120)
    parser.add_argument("--scored", type=int, default=3000, help="number of test documents for F1, with --model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pipeline-batches", type=int, nargs="+", default=PIPELINE_BATCHES)
    parser.add_argument("--output", type=Path, help="write the result to this JSON file")
    arguments = parser.parse_args()
    result = run(
        arguments.data,
        model=arguments.model,
        encoder=arguments.encoder,
        documents=arguments.documents,
        scored=arguments.scored,
        rounds=arguments.rounds,
        pipeline_batches=arguments.pipeline_batches,
    )
    write(result, arguments.output)
    rows = []
    for name, rate in result["documents_per_second"].items():
        pipelined = result["ratio_to_best_pipeline"].get(name)
        score = (result["f1"] or {}).get(name)
        rows.append(
            (
                name + (" (best)" if name == result["best_pipeline"] else ""),
                f"{rate['median']:.1f} ({rate['lowest']:.1f}-{rate['highest']:.1f})",
                f"{result['ratio_to_published_style'][name]['median']:.2f} x",
                f"{pipelined['median']:.2f} x" if pipelined else "",
                f"{score['micro_f1']:.2f} / {score['macro_f1']:.2f}" if score else "",
            )
        )
    show("Prediction", ("", "documents/s", "x published style", "x best pipeline", "Micro / Macro-F1"), rows)


if __name__ == "__main__":
    main()
