"""Compare the head of the effort ``head`` with plain logistic regression on the same vectors of a frozen encoder.

    python benchmarks/frozen_heads.py data/icd10cm --output benchmarks/results/head

Every system reads the same documents and tunes its decisions on dev with the same search. *Plain* is logistic
regression for each label, without the label tree, with its C chosen on dev (the same optimiser, which a test compares
with scikit-learn). *Before* is the head of version 0.2, with one strength for all data. The seeds share no training
document. Test is read once.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hgclr.data import DataFolder
from hgclr.data.folder import label_documents
from hgclr.data.tokens import tokenize_documents
from hgclr.decisions.settings import Decisions
from hgclr.decisions.tuning import Outputs, calibrate
from hgclr.metrics.scores import MultiLabelScores
from hgclr.models import FlatForSequenceClassification
from hgclr.models.base import load_tokenizer
from hgclr.training.fitting import FROZEN_LENGTH, base_rates, label_counts
from hgclr.training.head import best_head, encode_all, fit_vectors
from hgclr.training.trainer import Collator
from measuring import arguments_of, provenance, write

STRENGTHS = (1.0, 10.0)
"""C of the plain logistic regression."""
POOL = 3000
"""Documents of each split that are encoded; the training samples of the seeds are parts of it."""


def compare(data: Path, options: Any) -> Iterator[dict[str, Any]]:
    """Yield the test scores of every system and seed."""
    folder, tokenizer = DataFolder(data), load_tokenizer(options.encoder)
    tree = folder.taxonomy
    model = FlatForSequenceClassification.from_encoder(options.encoder, tree, tokenizer, max_length=options.length)
    collator = Collator(len(tree), tokenizer.pad_token_id, model.config.cut_length)
    documents = {"label": list(label_documents(tree))}
    for split in ("train", "dev", "test"):
        usable = list(folder.usable(split))
        documents[split] = [usable[place] for place in np.random.default_rng(0).permutation(len(usable))[:POOL]]
    tokens = {
        split: tokenize_documents(each, tokenizer, max_length=options.length) for split, each in documents.items()
    }
    cache = options.vectors / f"cache-{data.name}.npz"
    if not cache.is_file():
        found: dict[str, NDArray[Any]] = {}
        for split, each in tokens.items():
            found[f"X_{split}"], found[f"G_{split}"] = encode_all(
                model, each, collator, lambda batch: model.encode(**batch), model.config.text_encoder.hidden_size
            )
        np.savez(cache, **found)
    stored = np.load(cache)
    rows = {split: (stored[f"X_{split}"], stored[f"G_{split}"]) for split in documents}

    def logits(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.no_grad():
            result: NDArray[np.float32] = model.classifier(torch.from_numpy(vectors)).numpy()
        return result

    size = options.documents
    for seed in options.seeds:
        part, tuning = slice((seed - 1) * size, seed * size), slice((seed - 1) * options.dev, seed * options.dev)
        train, dev = tokens["train"].select(range(part.start, part.stop)), [each[tuning] for each in rows["dev"]]
        learned = tokenize_documents(
            [*documents["train"][part], *documents["label"]], tokenizer, max_length=options.length
        )
        vectors = np.concatenate([rows["train"][0][part], rows["label"][0]])
        rates = base_rates(label_counts(train, len(tree)), size)
        for system in ("plain", "before", "head"):
            started = time.process_time()
            if system == "plain":
                best, kept = -1.0, None
                for strength in STRENGTHS:
                    torch.nn.init.zeros_(model.classifier.weight)
                    model.set_base_rates(rates)
                    fit_vectors(model, vectors[:size], train, 1 / (strength * size), iterations=200)
                    value = calibrate(Outputs(logits(dev[0]), dev[1]), Decisions(tree), seed=seed).after.by("both")
                    if value > best:
                        best, kept = value, (strength, size)
                        state = {name: each.clone() for name, each in model.classifier.state_dict().items()}
                model.classifier.load_state_dict(state)
                chosen = kept
            else:
                model.start_from_names(tokenizer, length=FROZEN_LENGTH)
                model.set_base_rates(rates)
                if system == "before":
                    fit_vectors(model, vectors, learned, 3e-5)
                    chosen = 3e-5, len(learned)
                else:
                    chosen = best_head(model, vectors, learned, dev, documents=size, seed=seed)
            row = {"data": data.name, "seed": seed, "system": system, "strength": chosen[0], "vectors": chosen[1]}
            row["cpu_seconds"] = round(time.process_time() - started, 1)
            tuned = calibrate(Outputs(logits(dev[0]), dev[1]), Decisions(tree), seed=seed).decisions
            for name, decisions in (("tuned", tuned), ("half", Decisions(tree))):
                scores = MultiLabelScores(tree)
                vectors_of_test, gold = rows["test"]
                scores.update(decisions.decide(decisions.probabilities(logits(vectors_of_test))).predicted, gold)
                row[name] = [round(100 * f1, 2) for f1 in (scores.micro().f1, scores.macro().f1)]
            print(json.dumps(row), flush=True)
            yield row | {"rule": tuned.rule}


def main() -> None:
    """Compare the systems and write the scores."""
    parser = arguments_of(__doc__)
    parser.add_argument("data", type=Path, nargs="+", help="data folders")
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--length", type=int, default=32, help="tokens of a text that are read")
    parser.add_argument("--documents", type=int, default=1000, help="training documents of each seed")
    parser.add_argument("--dev", type=int, default=500, help="dev documents of each seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--vectors", type=Path, default=Path(), help="folder to keep the vectors in")
    parser.add_argument("--output", type=Path, required=True, help="folder to write to")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    options.output.mkdir(parents=True, exist_ok=True)
    for data in options.data:
        runs = list(compare(data, options))
        write({"runs": runs, **provenance()}, options.output / f"{data.name}-{options.documents}.json")


if __name__ == "__main__":
    main()
