"""Data folders that were not made as published figures were: said where the paper's presets are trained."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from hgclr.data.folder_writer import write_corpus
from hgclr.paper.corpora import other_than_literature
from hgclr.taxonomy import Taxonomy
from hgclr.training import RunConfig
from hgclr.training.run import new_model


def prepared(folder: Path, corpus: str, **settings) -> Path:
    with write_corpus(folder, name=corpus, settings=settings) as writer:
        writer.taxonomy = Taxonomy(["a"], [-1])
        writer.add("train", "text", ["a"])
    return folder


@pytest.mark.parametrize(
    ("corpus", "settings", "found"),
    [
        ("nyt", {"text": "full"}, ["prepared with --text full; published figures are of literature"]),
        ("nyt", {"text": "literature"}, []),
        ("rcv1", {"text": "literature", "label_names": "codes"}, []),
        (
            "rcv1",
            {"text": "literature", "label_names": "descriptions"},
            ["prepared with --label-names descriptions; published figures are of codes"],
        ),
        ("wos", {"labels": "original"}, ["prepared with --labels original; published figures are of literature"]),
        ("arxiv", {"seed": 0}, []),
    ],
)
def test_what_a_folder_says_of_its_making(corpus: str, settings: dict, found: list[str], tmp_path: Path) -> None:
    assert other_than_literature(prepared(tmp_path / "data", corpus, **settings)) == found


@pytest.mark.parametrize("content", [None, "[]", "{}", '{"corpus": "nyt"}'])
def test_a_folder_that_somebody_else_made(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "corpus.json").write_text(content)
    assert other_than_literature(tmp_path) == []


def test_the_papers_presets_warn_and_the_default_does_not(
    make_encoder, toy_data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = shutil.copytree(toy_data, tmp_path / "data")
    shutil.copy(prepared(tmp_path / "nyt", "nyt", text="full") / "corpus.json", data)
    for preset in ("default", "paper", "published"):
        caplog.clear()
        model = {"encoder": make_encoder("bert"), "preset": preset, "architecture": "flat"}
        run = RunConfig(data={"path": data}, model=model, output=tmp_path / "run")
        with caplog.at_level(logging.WARNING):
            new_model(run)
        warned = f"{data}: prepared with --text full; published figures are of literature" in caplog.text
        assert warned == (preset != "default")
