"""TF-IDF systems against scikit-learn used by hand, on the documents that the neural systems read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from hgclr.data.folder import DataFolder, Document
from hgclr.data.tokens import tokenize_split
from hgclr.decisions.settings import Decisions
from hgclr.decisions.tuning import Outputs, calibrate
from hgclr.errors import InputError
from hgclr.models.base import load_tokenizer
from hgclr.paper.classical import Setting, read_splits, run_classical, settings_of
from hgclr.training import RunConfig
from hgclr.training.run import tokenize_splits
from hgclr.training.run_checks import data_folder


@pytest.fixture(scope="module")
def one_path(tmp_path_factory: pytest.TempPathFactory, toy_data: Path, taxonomy) -> Path:
    """The toy documents with a single topic each; some paths end at an inner label; 'rowing' is not in train."""
    folder = tmp_path_factory.mktemp("one-path")
    taxonomy.write(folder / "taxonomy.tsv")
    for split in ("train", "dev", "test"):
        rows = []
        with gzip.open(toy_data / f"{split}.jsonl.gz", "rt", encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                labels = [taxonomy.resolve(label) for label in row["labels"]]
                deepest = max(labels, key=lambda label: int(taxonomy.depths[label]))
                labels = taxonomy.closure([deepest]).tolist()
                if split != "train" or "rowing" not in row["labels"]:
                    rows.append(json.dumps({"text": row["text"], "labels": [taxonomy.ids[label] for label in labels]}))
        (folder / f"{split}.jsonl").write_text("\n".join(rows), encoding="utf-8")
    return folder


def make_run(data: Path, output: Path, model: dict | None = None, **settings) -> RunConfig:
    tree = {"data": {"path": data, **settings}, "model": model or {"max_length": None}, "training": {"seed": 3}}
    return RunConfig.model_validate({**tree, "output": output})


def gold(documents: list[Document], labels: int) -> np.ndarray:
    return np.array([[label in document.labels for label in range(labels)] for document in documents])


def texts(documents: list[Document]) -> list[str]:
    return [document.text for document in documents]


def by_hand(kind: str, train: list[Document], others: list[Document], taxonomy, setting: Setting) -> np.ndarray:
    """Return logits (tfidf), or labels (hiclass), each label or parent fitted by itself."""
    terms = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    rows, other_rows = terms.fit_transform(texts(train)), terms.transform(texts(others))
    if kind == "tfidf":
        logits = np.empty((len(others), len(taxonomy)))
        for label, column in enumerate(gold(train, len(taxonomy)).T):
            if len(set(column)) == 1:  # the odds with half a document more on either side
                logits[:, label] = np.log((sum(column) + 0.5) / (sum(~column) + 0.5))
            else:
                weights = "balanced" if setting.balanced else None
                model = LogisticRegression(C=setting.strength, solver="liblinear", class_weight=weights, tol=0.01)
                logits[:, label] = model.fit(rows, column).decision_function(other_rows)
        return logits
    predicted = np.zeros((len(others), len(taxonomy)), dtype=bool)
    for place in range(len(others)):  # down the tree, one document at a time
        parent = -1
        while True:
            pairs = [
                (number, label)
                for number, document in enumerate(train)
                for label in document.labels
                if taxonomy.parents[label] == parent
            ]
            if not pairs:
                break
            numbers, targets = zip(*pairs, strict=True)
            if len(set(targets)) == 1:
                parent = targets[0]
            else:
                names = [str(target) for target in targets]
                model = LogisticRegression(C=setting.strength, max_iter=1000).fit(rows[list(numbers)], names)
                parent = int(model.predict(other_rows[[place]])[0])
            predicted[place, parent] = True
    return predicted


def f1(expected: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    return {name: f1_score(expected, predicted, average=name, zero_division=0) for name in ("micro", "macro")}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tfidf", "hiclass"])
def test_scores_are_those_of_scikit_learn(kind: str, one_path: Path, tmp_path: Path) -> None:
    found = run_classical(kind, make_run(one_path, tmp_path / "run", limit=40))
    folder = DataFolder(one_path)
    splits, taxonomy = read_splits(make_run(one_path, tmp_path, limit=40), folder), folder.taxonomy
    dev, test = (gold(splits[name], 9) for name in ("dev", "test"))
    values, tuned = {}, {}
    for setting in settings_of(kind):
        output = by_hand(kind, splits["train"], splits["dev"], taxonomy, setting)
        if kind == "tfidf":
            tuned[setting] = calibrate(Outputs(output.astype(np.float32), dev), Decisions(taxonomy), seed=3)
            after = tuned[setting].after.micro_f1 + tuned[setting].after.macro_f1
            values[setting] = (after / 2, sum(f1(dev, output > 0).values()) / 2)
        else:
            values[setting] = (sum(f1(dev, output).values()) / 2,) * 2
    tried = {
        Setting(trial["strength"], trial["balanced"]): (trial["dev_tuned"], trial["dev_at_0.5"])
        for trial in found["recipe"]["tried"]
    }
    assert {key: pytest.approx(pair, abs=1e-6) for key, pair in values.items()} == tried
    best = max(settings_of(kind), key=lambda setting: tried[setting])  # the first of equals
    assert (found["recipe"]["strength"], found["recipe"]["balanced"]) == (best.strength, best.balanced)
    for name, expected in (("dev", dev), ("test", test)):
        output = by_hand(kind, splits["train"], splits[name], taxonomy, best)
        scores = f1(expected, output > 0 if kind == "tfidf" else output)
        assert {average: found[f"{name}_at_0.5"][average]["f1"] for average in scores} == pytest.approx(scores)
    assert 0 < found["test"]["micro"]["f1"] < 1
    assert ("tuned" in found) == (kind == "tfidf")
    if kind == "tfidf":
        decisions, logits = tuned[best].decisions, output.astype(np.float32)
        scores = f1(test, decisions.decide(decisions.probabilities(logits)).predicted)
        assert {average: found["test"][average]["f1"] for average in scores} == pytest.approx(scores)
        assert found["tuned"]["dev"]["after"]["macro_f1"] == pytest.approx(tuned[best].after.macro_f1)
    assert json.loads((tmp_path / "run" / "metrics.json").read_text()) == json.loads(json.dumps(found))
    assert found["documents"] == {"train": 40, "dev": 24, "test": 24}
    assert (found["history"], found["label_documents"]) == ([], 0)
    assert found["machine"]["packages"]["scikit-learn"] is not None
    seen = gold(splits["train"], 9).sum(axis=0)
    assert found["test"]["by_frequency"]["unseen"]["labels"] == int((seen == 0).sum())


def test_hiclass_refuses_several_paths(toy_data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        run_classical("hiclass", make_run(toy_data, tmp_path / "run"))
    assert not (tmp_path / "run" / "metrics.json").exists()
    run_classical("tfidf", make_run(toy_data, tmp_path / "run"))


def test_the_documents_are_those_of_the_neural_systems(make_encoder, toy_data: Path, tmp_path: Path) -> None:
    """The texts, cut, must give the very tokens that the neural systems read, in the same order."""
    encoder = make_encoder("bert")
    data = tmp_path / "data"
    data.mkdir()
    for name in ("taxonomy.tsv", "train.jsonl.gz", "test.jsonl.gz"):
        (data / name).write_bytes((toy_data / name).read_bytes())
    model = {"encoder": encoder, "max_length": 7}
    run = make_run(data, tmp_path / "run", model, limit=30, test_limit=11, dev_share=0.2)
    folder, tokenizer = data_folder(run, None), load_tokenizer(encoder)
    neural = tokenize_splits(run, folder, tokenizer, 7, None, lambda *_: None)
    seen: list[int] = []
    ours = read_splits(run, folder, seen.append)
    assert {name: len(documents) for name, documents in ours.items()} == {"train": 24, "dev": 6, "test": 11}
    assert sum(seen) == 41
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    for name, documents in ours.items():
        assert [list(document.labels) for document in documents] == neural[name]["labels"][:]
        assert [backend.encode(document.text).ids for document in documents] == neural[name]["input_ids"][:]
    whole = tokenize_split(folder, "train", tokenizer, max_length=64, limit=30, seed=3)
    assert max(whole["length"]) > 7
