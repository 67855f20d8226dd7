"""A table as JSON and as Markdown."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from hgclr.paper import experiment
from hgclr.paper.experiment import Budget, Experiment
from hgclr.paper.systems import TABLES
from hgclr.paper.tables import reproduce
from support.pretended_training import MACHINE, TUNED, PretendedTraining

SCORES = {
    ("flat", 1): (0.8011, 0.7012),
    ("flat", 2): (0.8130, 0.7231),
    ("flat", 7): (0.7921, 0.6972),
    ("hgclr", 1): (0.8222, 0.7313),
    ("hgclr", 2): (0.8097, 0.7402),
    ("hgclr", 7): (0.8201, 0.7155),
}


@pytest.fixture
def made(toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a table 2 of two rows and three seeds, whose scores are known."""
    training = PretendedTraining(lambda run: SCORES[run.model.architecture, run.training.seed])
    monkeypatch.setattr(experiment, "train", training)
    plan = Experiment(
        data=toy_data,
        encoder=str(tmp_path / "encoders" / "tiny"),
        output=tmp_path / "out",
        corpus="wos",
        budget=Budget(documents=1500, length=64, epochs=8),
    )
    reproduce(TABLES["table2"], [1, 2, 7], plan, rows=["bert", "hgclr"], command="hgclr reproduce …")
    return plan.output


def of(system: str, place: int) -> list[float]:
    return [100 * SCORES[system, seed][place] for seed in (1, 2, 7)]


def test_json_holds_every_figure_and_what_it_depends_on(made: Path) -> None:
    content = json.loads((made / "table2.json").read_text(encoding="utf-8"))
    flat, printed, ours = content["rows"]
    assert printed["key"] == "bert-chen"
    assert printed["paper"] == {"micro": 86.26, "macro": 80.58}
    assert (printed["ours"], printed["runs"]) == (None, [])
    for place, average in enumerate(("micro", "macro")):
        spread = ours["ours"][average]
        assert spread["values"] == pytest.approx(of("hgclr", place))
        assert spread["mean"] == pytest.approx(statistics.mean(of("hgclr", place)))
        assert spread["sd"] == pytest.approx(statistics.stdev(of("hgclr", place)), abs=1e-5)
        paper = (87.11, 81.20)[place]
        assert ours["difference"][average] == pytest.approx(statistics.mean(of("hgclr", place)) - paper)
        assert ours["paper_gain"][average] == pytest.approx(paper - (85.63, 79.07)[place])
        gains = [ours - base for ours, base in zip(of("hgclr", place), of("flat", place), strict=True)]
        assert ours["gain"][average]["values"] == pytest.approx(gains, abs=1e-5)
        assert ours["gain"][average]["sd"] == pytest.approx(statistics.stdev(gains), abs=1e-5)
        assert ours["tuned"][average]["values"] == pytest.approx([TUNED * value for value in of("hgclr", place)])
        assert ours["tuned_gain"][average]["values"] == pytest.approx([TUNED * gain for gain in gains], abs=1e-5)
    assert flat["gain"] is flat["tuned_gain"] is None
    assert flat["paper_gain"] is None
    run = ours["runs"][1]
    assert run["seed"] == 2
    assert run["test"] == pytest.approx({"micro": 80.97, "macro": 74.02})
    assert run["dev"] == pytest.approx({"micro": 80.97 / 2, "macro": 74.02 / 2})
    assert (run["kept"], run["commit"], run["recipe"]) == (pytest.approx(0.3), "abc", {"epochs": 4})
    assert (run["seconds"], run["cpu_seconds"], ours["cpu_seconds"]["mean"]) == (12.5, 10.2, pytest.approx(10.2))
    assert run["tuned"] == {
        "test": pytest.approx({"micro": TUNED * 80.97, "macro": TUNED * 74.02}),
        "dev": pytest.approx({"micro": TUNED * 80.97 / 2, "macro": TUNED * 74.02 / 2}),
        "rule": "closure",
        "thresholds": "level",
    }
    assert run["label_documents"] == 9
    assert content["machines"] == [MACHINE]
    assert content["command"] == "hgclr reproduce …"
    assert ours["settings"]["model"]["encoder"] == "tiny"
    assert ours["settings"]["training"]["epochs"] == 8
    assert "seed" not in ours["settings"]["training"]
    assert ours["documents"] == {"train": 1500, "dev": 5, "test": 5}
    assert str(made.parent) not in json.dumps(content)


def test_markdown_puts_the_paper_beside_ours(made: Path) -> None:
    text = (made / "table2.md").read_text(encoding="utf-8")
    assert text.startswith("# Table 2: the systems compared (budget: 1,500 documents, 64 tokens, 8 epochs)\n")
    micro, macro = statistics.mean(of("hgclr", 0)), statistics.mean(of("hgclr", 1))
    micro_sd, macro_sd = statistics.stdev(of("hgclr", 0)), statistics.stdev(of("hgclr", 1))
    (row,) = (line for line in text.splitlines() if line.startswith("| HGCLR"))
    assert f"| 87.11 / 81.20 | {micro:.2f} ± {micro_sd:.2f} / {macro:.2f} ± {macro_sd:.2f} |" in row
    assert f"| {micro - 87.11:+.2f} / {macro - 81.20:+.2f} | +1.48 / +2.13 |" in row
    assert row.endswith("| 3 | 10 | 30.0% |")
    assert "9 labels, documents: train 1,500, dev 5, test 5; tiny; preset default, recipe default, fp32; test" in text
    head = "| Micro / Macro-F1 | paper | at 0.5 | ours − paper | gain over BERT, paper | gain over BERT, ours |"
    assert f"{head} tuned on dev | gain, tuned | seeds | CPU seconds | kept |" in text
    assert f" | {TUNED * micro:.2f} ± {TUNED * micro_sd:.2f} / {TUNED * macro:.2f} ± {TUNED * macro_sd:.2f} | +" in row
    assert "| BERT (Chen et al., 2021) | 86.26 / 80.58 | — | — | +0.63 / +1.51 | — | — | — | 0 | — | — |" in text
    assert "Share of tokens that positive samples kept: BERT 30.0%; HGCLR 30.0%." in text
    assert "compare the gains over BERT, not the scores" in text
    assert "Commit abc; test, 1 thread;" in text
