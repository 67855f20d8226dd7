"""The label tree as training data: which documents it gives, where they go, and where they never go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hgclr.data.folder import label_documents, label_texts
from hgclr.models.base import save
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.tree import read_model_tree
from hgclr.training import RunConfig, train
from hgclr.training.core import label_counts, with_label_documents
from hgclr.training.run import new_model, started_model, tokenize_splits


def test_names_paths_and_descriptions_are_documents_with_the_whole_path_as_labels() -> None:
    tree = Taxonomy(
        ["b", "a", "x"], [1, -1, 0], ["card_declined", "money", "at the till"], [None, "Coins and notes.", None]
    )
    found = [(document.text, document.labels) for document in label_documents(tree)]
    assert found == [
        ("card declined", (0, 1)),
        ("money > card declined", (0, 1)),
        ("money", (1,)),
        ("Coins and notes.", (1,)),
        ("at the till", (0, 1, 2)),
        ("money > card declined > at the till", (0, 1, 2)),
    ]


def test_a_name_that_several_labels_share_is_read_with_its_path() -> None:
    tree = Taxonomy(["a", "b", "ao", "bo"], [-1, -1, 0, 1], ["arts", "law", "other", "other"])
    assert label_texts(tree) == ["arts", "law", "arts > other", "law > other"]
    texts = [document.text for document in label_documents(tree)]
    assert len(texts) == len(set(texts)) == 4, "the path is said once"


def test_a_name_of_underscores_alone_stays_as_it_is() -> None:
    assert label_texts(Taxonomy(["__", "a__b"], [-1, -1])) == ["__", "a b"]


def make_run(encoder: str, folder: Path, output: Path, **sections: dict) -> RunConfig:
    tree = {
        "data": {"path": folder},
        "model": {"encoder": encoder, "label_heads": 4},
        "training": {"epochs": 1, "precision": "fp32"},
    }
    return RunConfig(**{name: values | sections.get(name, {}) for name, values in tree.items()}, output=output)


@pytest.mark.parametrize(
    ("sections", "used"),
    [
        ({}, True),
        ({"model": {"preset": "paper"}}, False),
        ({"model": {"preset": "published"}}, False),
        ({"data": {"label_documents": False}}, False),
        ({"model": {"preset": "paper"}, "data": {"label_documents": True}}, True),
    ],
)
def test_they_are_trained_on_by_default_and_not_in_the_presets(
    make_encoder, toy_data: Path, tmp_path: Path, sections: dict, used: bool
) -> None:
    run = make_run(make_encoder("bert"), toy_data, tmp_path / "run", **sections)
    model, tokenizer, folder = new_model(run)
    tokens = tokenize_splits(run, folder, tokenizer, 64, None)
    learned = with_label_documents(tokens["train"], model, tokenizer, wanted=run.uses_label_documents)
    expected = list(label_documents(folder.taxonomy)) if used else []
    assert [tuple(row) for row in learned["labels"][96:]] == [document.labels for document in expected]
    assert list(learned["input_ids"][96:]) == [tokenizer(document.text)["input_ids"] for document in expected]
    assert [len(tokens[split]) for split in ("train", "dev", "test")] == [96, 24, 24]
    assert label_counts(tokens["train"], len(folder.taxonomy)).sum() == sum(map(len, tokens["train"]["labels"]))


def described(taxonomy: Taxonomy, text: str) -> Taxonomy:
    texts = [text if identifier == "optics" else None for identifier in taxonomy.ids]
    return Taxonomy(taxonomy.ids, taxonomy.parents, taxonomy.names, texts)


def test_descriptions_reach_training_and_stay_with_the_model(
    make_encoder, toy_data: Path, tmp_path: Path, taxonomy
) -> None:
    described(taxonomy, "lens and mirror").write(tmp_path / "tree.json")
    data = {"taxonomy": tmp_path / "tree.json"}
    run = make_run(make_encoder("bert"), toy_data, tmp_path / "run", data=data)
    model, tokenizer, _ = new_model(run)
    learned = with_label_documents(None, model, tokenizer, wanted=True)
    assert tokenizer("lens and mirror")["input_ids"] in list(learned["input_ids"])

    save(model, tokenizer, tmp_path / "model")
    place = taxonomy.resolve("optics")
    assert read_model_tree(tmp_path / "model").descriptions[place] == "lens and mirror"
    begun = {"model": {"start": tmp_path / "model"}, "training": {}, "output": tmp_path / "next"}
    for text, expected in (("", "lens and mirror"), ("prism", "prism")):  # the data's own, where it has any
        described(taxonomy, text).write(tmp_path / "tree.json")
        again, _, _ = started_model(RunConfig(data={"path": toy_data, **data}, **begun), tmp_path / "model")
        assert again.config.taxonomy.descriptions[place] == expected


@pytest.mark.slow
def test_a_run_says_how_many_there_were(make_encoder, toy_data: Path, tmp_path: Path, taxonomy) -> None:
    train(make_run(make_encoder("bert"), toy_data, tmp_path / "run"))
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["documents"]["train"] == 96
    assert metrics["label_documents"] == len(list(label_documents(taxonomy)))
