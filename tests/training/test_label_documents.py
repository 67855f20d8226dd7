"""The label tree as training data: which documents it gives, where they go, and where they never go."""

from __future__ import annotations

from pathlib import Path

import pytest

from hgclr.data.folder import label_documents, label_texts
from hgclr.models.base import save
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.tree import read_model_tree
from hgclr.training import RunConfig, train
from hgclr.training.run import new_model, started_model


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


def test_alternative_names_are_documents_unless_several_labels_have_them() -> None:
    alternatives = [["jurisprudence", "rules", "games"], [], ["rules", "play_time"]]
    tree = Taxonomy(["l", "g", "p"], [-1, -1, 1], ["law", "games", "play"], alternatives=alternatives)
    found = [(document.text, document.labels) for document in label_documents(tree)]
    assert found[:2] == [("law", (0,)), ("jurisprudence", (0,))]
    assert ("play time", (1, 2)) in found
    texts = [text for text, _ in found]
    assert "rules" not in texts
    assert texts.count("games") == 1


def test_a_name_that_several_labels_share_is_read_with_its_path() -> None:
    tree = Taxonomy(["a", "b", "ao", "bo"], [-1, -1, 0, 1], ["arts", "law", "other", "other"])
    assert label_texts(tree) == ["arts", "law", "arts > other", "law > other"]
    texts = [document.text for document in label_documents(tree)]
    assert len(texts) == len(set(texts)) == 4, "the path is said once"


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
def test_they_are_trained_on_by_default_and_not_in_the_presets(sections: dict, used: bool) -> None:
    assert RunConfig(data={"path": "d"} | sections.pop("data", {}), output="o", **sections).uses_label_documents is used


def test_they_are_added_to_train_alone(make_encoder, toy_data: Path, tmp_path: Path, taxonomy) -> None:
    for wanted in (True, False):
        sections = {"data": {"label_documents": wanted}, "training": {"effort": "head"}}
        metrics = train(make_run(make_encoder("bert"), toy_data, tmp_path / str(wanted), **sections)).metrics
        assert metrics["documents"] == {"train": 96, "dev": 24, "test": 24}
        assert metrics["label_documents"] == (len(list(label_documents(taxonomy))) if wanted else 0)


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
    assert "lens and mirror" in [document.text for document in label_documents(model.config.taxonomy)]
    save(model, tokenizer, tmp_path / "model")
    place = taxonomy.resolve("optics")
    assert read_model_tree(tmp_path / "model").descriptions[place] == "lens and mirror"
    begun = {"model": {"start": tmp_path / "model"}, "training": {}, "output": tmp_path / "next"}
    for text, expected in (("", "lens and mirror"), ("prism", "prism")):  # the data's own, where it has any
        described(taxonomy, text).write(tmp_path / "tree.json")
        again, _, _ = started_model(RunConfig(data={"path": toy_data, **data}, **begun), tmp_path / "model")
        assert again.config.taxonomy.descriptions[place] == expected
