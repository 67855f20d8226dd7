"""The budget: read, refused, applied to every row alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from hgclr.errors import InputError
from hgclr.paper.experiment import Budget, Experiment
from hgclr.paper.systems import SYSTEMS


def test_it_is_read_and_said_in_words() -> None:
    assert Budget.parse("documents=1500, length=64,epochs=8") == Budget(documents=1500, length=64, epochs=8)
    assert str(Budget.parse("documents=1500,length=64,epochs=8")) == "1,500 documents, 64 tokens, 8 epochs"
    assert str(Budget.parse("epochs=8,test=400")) == "8 epochs, scored on test 400"
    assert str(Budget.parse("epochs=1")) == "1 epoch"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("docs=3", "--budget has no 'docs'; known are documents, length, epochs, dev, test, as in documents=1500"),
        ("", "--budget has no ''; known are"),
        ("epochs=3,epochs=4", "--budget has 'epochs' twice"),
        ("epochs=0", "--budget: epochs is '0'; give a whole number from 1"),
        ("epochs=2.5", "epochs is '2.5'"),
        ("epochs=²", "epochs is '²'"),
        ("epochs", "epochs is ''"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        Budget.parse(text)
    assert message in str(error.value)


def test_as_many_documents_are_scored_as_trained_on_unless_said_otherwise() -> None:
    assert Budget.parse("documents=50,dev=20").settings()["data"] == {"limit": 50, "dev_limit": 20, "test_limit": 50}
    whole = Budget(documents=50, dev=20, scores_all=True)
    assert whole.settings()["data"] == {"limit": 50, "dev_limit": 20}
    assert Budget.parse("epochs=2").settings() == {"data": {}, "model": {}, "training": {"epochs": 2}}


@pytest.mark.parametrize(
    ("key", "epochs", "patience"),
    [("flat", 8, 6), ("hgclr", 8, 6), ("hiagm", 8, 6), ("flat-long", 16, 12), ("textrcnn-hiagm", 40, 30)],
)
def test_every_row_gets_the_same(key: str, epochs: int, patience: int, tmp_path: Path) -> None:
    budget = Budget.parse("documents=150,length=32,epochs=8,test=70")
    run = Experiment(data=tmp_path, encoder="e", output=tmp_path, budget=budget).run(SYSTEMS[key], 3)
    assert (run.data.limit, run.data.dev_limit, run.data.test_limit) == (150, 150, 70)
    assert run.model.overrides["max_length"] == 32
    assert (run.training.epochs, run.training.patience) == (epochs, patience)


def test_without_one_the_recipe_decides(tmp_path: Path) -> None:
    plan = Experiment(data=tmp_path, encoder="e", output=tmp_path)
    for key, patience in (("hgclr", 6), ("textrcnn", 30)):
        run = plan.run(SYSTEMS[key], 3)
        assert (run.data.limit, run.training.epochs, run.training.patience) == (None, None, patience)
