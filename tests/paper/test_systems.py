"""The systems and the paper's tables: figures as printed, settings as released."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hgclr.config import method_settings
from hgclr.paper.experiment import Experiment, record
from hgclr.paper.systems import SYSTEMS, TABLES
from hgclr.paper.tables import PRINTED as CORPORA_PRINTED
from hgclr.training import RunConfig

ROOT = Path(__file__).parents[2]
PAPER = ROOT.parent / "shared" / "paper" / "hgclr-acl2022.tex"

# What the paper calls the rows.
PRINTED = {
    "table2": {
        "TextRCNN": "textrcnn",
        "HiAGM": "textrcnn-hiagm",
        "HTCInfoMax": "textrcnn-htcinfomax",
        "HiMatch": "textrcnn-himatch",
        "BERT (Our implement)": "bert",
        "BERT of Chen et al.": "bert-chen",
        "BERT+HiAGM (Our implement)": "hiagm",
        "BERT+HTCInfoMax (Our implement)": "htcinfomax",
        "BERT+HiMatch": "himatch",
        "HGCLR": "hgclr",
    },
    "table3": {
        "BERT": "bert",
        "HGCLR": "hgclr",
        "-r.p. GCN": "gcn",
        "-r.p. GAT": "gat",
        "-r.m. graph encoder": "no-graph-encoder",
        "-r.m. contrastive loss": "no-contrastive",
    },
    "table4": {
        "Base architecture": "hgclr",
        "-w/o name embedding": "no-name",
        "-w/o spatial encoding": "no-spatial",
        "-w/o edge encoding": "no-edge",
    },
    "table5": {
        "Hierarchy-guided": "hgclr",
        "Dropout": "dropout",
        "Random masking": "random",
        "Adversarial attack": "adversarial",
    },
}


def experiment(toy_data: Path, output: Path, **settings) -> Experiment:
    return Experiment(data=toy_data, encoder="all-MiniLM-L6-v2", output=output, **settings)


def pretend_finished(plan: Experiment, key: str, seed: int, **metrics) -> None:
    folder = plan.folder(SYSTEMS[key], seed)
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(json.dumps({"history": [], **metrics}))


@pytest.mark.parametrize("table", PRINTED)
def test_the_figures_are_those_that_the_paper_prints(table: str) -> None:
    if not PAPER.is_file():
        pytest.skip("the paper's source (../shared/paper) is not on this machine")
    source = PAPER.read_text(encoding="utf-8")
    end = source.index(rf"\label{{tab:{table[-1]}}}")
    text = source[source.rindex(r"\begin{tabular}", 0, end) : end]
    printed: dict[str, list[str]] = {}
    for line in text.splitlines():
        cited = line.replace(r"BERT \cite{chenhierarchy}", "BERT of Chen et al.")  # the paper has two rows of that name
        plain = re.sub(r"\\cite\{\w+\}|\\bottomrule|\\midrule|\\\\", "", cited)
        plain = re.sub(r"\\text(?:bf|it)\{([^}]*)\}", r"\1", plain)
        name, *cells = (cell.strip() for cell in plain.split("&"))
        if cells and name in PRINTED[table]:
            printed[PRINTED[table][name]] = cells
    assert set(printed) == set(PRINTED[table].values())
    for row in TABLES[table].rows:
        if row.extra:
            assert not row.paper
            continue
        cells = printed[row.system]
        expected = {}
        for corpus, micro, macro in zip(("wos", "nyt", "rcv1"), cells[::2], cells[1::2], strict=False):
            if micro != "-":
                expected[corpus] = (float(micro), float(macro))
        assert row.paper == expected, row.system


def test_table1_is_the_one_that_the_paper_prints() -> None:
    if not PAPER.is_file():
        pytest.skip("the paper's source (../shared/paper) is not on this machine")
    source = PAPER.read_text(encoding="utf-8")
    text = source[: source.index(r"\label{tab:1}")]
    rows = {}
    for line in text[text.rindex(r"\begin{tabular}") :].splitlines():
        name, *cells = (cell.strip() for cell in re.sub(r"\\.*", "", line).split("&"))
        if name in ("WOS", "NYT", "RCV1-V2"):
            rows[name] = [float(cell.replace(",", "")) for cell in cells]
    names = {"wos": "WOS", "nyt": "NYT", "rcv1": "RCV1-V2"}
    assert {corpus: list(figures) for corpus, figures in CORPORA_PRINTED.items()} == {
        corpus: rows[name] for corpus, name in names.items()
    }


@pytest.mark.parametrize("preset", ["default", "paper", "published"])
def test_every_system_has_settings_that_fit_together(preset: str, toy_data: Path, tmp_path: Path) -> None:
    plan = experiment(toy_data, tmp_path, preset=preset)
    pretend_finished(plan, "hgclr", 1, history=[{"kept": 0.2}, {"kept": 0.3}])
    for key in ("flat", "flat-cls", "flat-random-head"):
        pretend_finished(plan, key, 1, recipe={"epochs": 8})
    listed = {row.system for table in TABLES.values() for row in table.rows if not row.printed}
    assert listed == set(SYSTEMS)
    for key, system in SYSTEMS.items():
        run = plan.run(system, 1)
        settings = record(system, run)
        assert json.loads(json.dumps(settings)) == settings
        assert run.training.seed == 1
        assert run.output == tmp_path / ("runs" if preset == "default" else f"runs-{preset}") / f"{key}-1"
        if system.classical is None:
            assert run.model.preset == (system.preset or preset)
            assert (run.model.encoder == "textrcnn") == key.startswith("textrcnn")


PAPERS_ROWS = sorted({row.system for name in PRINTED for row in TABLES[name].rows if not row.printed})


@pytest.mark.parametrize("key", PAPERS_ROWS)
def test_a_preset_holds_for_every_row_of_the_papers_tables(key: str, toy_data: Path, tmp_path: Path) -> None:
    """What the presets say is read from the configurations that a user would train with."""
    system = SYSTEMS[key]
    for preset in ("paper", "published"):
        plan = experiment(toy_data, tmp_path, preset=preset)
        if key == "random":
            pretend_finished(plan, "hgclr", 1, history=[{"kept": 0.2}])
        config, run = RunConfig.read(ROOT / "configs" / preset / "wos.yaml"), plan.run(system, 1)
        method, settings = method_settings(preset, {}), record(system, run)
        for name in ("classifier_start", "classification_loss"):
            assert settings["model"][name] == method[name]
        pooling = "max" if key.startswith("textrcnn") else "cls"
        assert (settings["model"]["classifier_start"], settings["model"]["pooling"]) == ("random", pooling)
        assert not settings["data"]["label_documents"]
        assert not settings["training"]["calibrate"]
        assert run.training.recipe == config.training.recipe == "paper"
        assert run.training.patience_metrics == config.training.patience_metrics
        assert (run.resolved_training.precision, run.resolved_training.batching) == ("fp32", "uniform")


# What the configuration files of the released programs say, on WOS; what is not here is our default.
HALF = {"classifier_dropout": 0.0, "feature_dropout": 0.5}
RELEASED = {
    "textrcnn": {"flat_regularisation": 1e-6, "classifier_dropout": 0.5},
    "textrcnn-hiagm": {"recursive_regularisation": 1e-6, "structure_encoder": "gcn", **HALF},
    "textrcnn-htcinfomax": {
        "recursive_regularisation": 1e-6,
        "structure_encoder": "tree-lstm",
        "textrcnn_features": "states",
        "label_embedding_dropout": 0.5,
        "classifier_dropout": 0.0,
    },
    "textrcnn-himatch": {"recursive_regularisation": 0.0, "joint_normalisation": False, **HALF},
    "himatch": {"recursive_regularisation": 0.0, "joint_normalisation": True, "max_length": 300},
    "htcinfomax": {"structure_encoder": "tree-lstm", "label_embedding_dropout": 0.5},
    "hiagm": {"recursive_regularisation": 1e-6, "classifier_dropout": 0.1},
}


@pytest.mark.parametrize("preset", ["paper", "published"])
@pytest.mark.parametrize("key", RELEASED)
def test_baselines_are_as_released_under_the_papers_presets(
    key: str, preset: str, toy_data: Path, tmp_path: Path
) -> None:
    plan = experiment(toy_data, tmp_path, preset=preset)
    found = record(SYSTEMS[key], plan.run(SYSTEMS[key], 1))["model"]
    assert {name: found[name] for name in RELEASED[key]} == RELEASED[key]
    news = experiment(toy_data, tmp_path, preset=preset, corpus="rcv1")
    assert record(SYSTEMS[key], news.run(SYSTEMS[key], 1))["model"]["structure_encoder"] == "gcn"


def test_the_systems_differ_in_what_they_are_named_for(toy_data: Path, tmp_path: Path) -> None:
    plan = experiment(toy_data, tmp_path)
    for key in ("flat", "flat-cls", "flat-random-head"):
        pretend_finished(plan, key, 1, recipe={"epochs": 8})
    runs = {key: plan.run(SYSTEMS[key], 1) for key in SYSTEMS if key != "random"}
    plain = RunConfig(data={"path": toy_data}, output=tmp_path)
    default = record(SYSTEMS["default"], runs["default"])
    without = {"training": {"seed": 0, "precision": "auto"}}
    assert default["model"] == record(SYSTEMS["default"], plain)["model"]
    assert default["training"] | without["training"] == record(SYSTEMS["default"], plain)["training"]

    def differences(key: str, other: str) -> dict[str, object]:
        ours, theirs = record(SYSTEMS[key], runs[key]), record(SYSTEMS[other], runs[other])
        return {
            f"{section}.{name}": value
            for section, values in ours.items()
            for name, value in values.items()
            if theirs[section].get(name) != value
        }

    assert differences("flat-cls", "flat") == {"model.pooling": "cls"}
    assert differences("flat-random-head", "flat") == {"model.classifier_start": "random"}
    assert differences("bert", "flat") == {"data.label_documents": True, "training.refit_head": None}
    assert differences("no-refit", "default") == {"training.refit_head": False}
    assert differences("head", "default") == {"training.effort": "head", "training.refit_head": False}
    for key in ("flat", "flat-cls", "flat-random-head"):
        assert differences(f"{key}-long", key) == {"training.epochs": 16, "training.patience": 12}
    for key in (row.system for row in TABLES["systems"].rows if row.system not in ("names", "hiclass")):
        assert runs[key].tunes_decisions, key
    assert runs["hgclr-published"].training.patience_metrics == ["macro_f1", "micro_f1"]
