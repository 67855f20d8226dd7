"""The tables: every row can be built, and the paper's figures are the paper's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hgclr.config import PRESETS
from hgclr.encoders import TEXTRCNN
from hgclr.errors import InputError
from hgclr.reproduction.tables.experiment import Experiment, NotYetError, record
from hgclr.reproduction.tables.layout import TABLES
from hgclr.reproduction.tables.systems import PRESETS_BY_CORPUS, SYSTEMS
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
        "BERT (Our implement)": "flat",
        "BERT+HiAGM (Our implement)": "hiagm",
        "BERT+HTCInfoMax (Our implement)": "htcinfomax",
        "BERT+HiMatch": "himatch",
        "HGCLR": "hgclr",
    },
    "table3": {
        "BERT": "flat",
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
        plain = re.sub(r"\\cite\{\w+\}|\\bottomrule|\\midrule|\\\\", "", line)
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


def test_tables_show_the_split_that_the_paper_shows() -> None:
    assert {key: table.split for key, table in TABLES.items()} == {
        "table2": "test",
        "table3": "dev",
        "table4": "dev",
        "table5": "dev",
        "systems": "test",
    }


@pytest.mark.parametrize("preset", PRESETS)
def test_every_system_has_settings_that_fit_together(preset: str, toy_data: Path, tmp_path: Path) -> None:
    plan = experiment(toy_data, tmp_path, preset=preset)
    pretend_finished(plan, "hgclr", 1, history=[{"kept": 0.2}, {"kept": 0.3}])
    pretend_finished(plan, "flat", 1, recipe={"epochs": 8})
    listed = {row.system for table in TABLES.values() for row in table.rows}
    assert listed == set(SYSTEMS)
    folders = set()
    for key, system in SYSTEMS.items():
        run = plan.run(system, 1)
        settings = record(system, run)
        folders.add(run.output.name)
        assert json.loads(json.dumps(settings)) == settings
        assert run.training.seed == 1
        if system.classical is None:
            follows = run.model.architecture == "hgclr" and key not in ("hgclr-paper", "hgclr-published")
            assert run.model.preset == (preset if follows else system.preset or "default")
            assert (run.model.encoder == TEXTRCNN) == key.startswith("textrcnn")
    # The two presets that are systems of their own share their runs with the preset that is chosen for HGCLR.
    assert len(folders) == len(SYSTEMS) - (preset != "default")


def test_what_makes_a_row_stands_above_what_the_user_sets(toy_data: Path, tmp_path: Path) -> None:
    plan = experiment(toy_data, tmp_path, overrides=("model.contrastive_weight=0.4", "model.label_layers=2"))
    ours, without = (record(SYSTEMS[key], plan.run(SYSTEMS[key], 1))["model"] for key in ("hgclr", "no-contrastive"))
    assert (ours["contrastive_weight"], without["contrastive_weight"]) == (0.4, 0.0)
    assert ours["label_layers"] == without["label_layers"] == 2


def test_the_published_program_removes_the_graph_encoder_in_its_own_way(toy_data: Path, tmp_path: Path) -> None:
    system = SYSTEMS["no-graph-encoder"]
    ours = record(system, experiment(toy_data, tmp_path).run(system, 1))["model"]
    theirs = record(system, experiment(toy_data, tmp_path, preset="published").run(system, 1))["model"]
    assert ours["label_encoder"] == "none"
    assert theirs["label_encoder"] == "graphormer"
    assert not any(theirs[name] for name in ("label_embedding", "spatial_encoding", "edge_encoding"))


@pytest.mark.parametrize("preset", ["paper", "published"])
@pytest.mark.parametrize("corpus", ["wos", "nyt", "rcv1"])
def test_a_corpus_has_the_weights_of_its_configuration(
    preset: str, corpus: str, toy_data: Path, tmp_path: Path
) -> None:
    config = RunConfig.read(ROOT / "configs" / preset / f"{corpus}.yaml").model.overrides
    plan = experiment(toy_data, tmp_path, preset=preset, corpus=corpus)
    model = record(SYSTEMS["hgclr"], plan.run(SYSTEMS["hgclr"], 1))["model"]
    for name in ("contrastive_weight", "keep_threshold"):
        assert model[name] == config[name]
    flat = record(SYSTEMS["flat"], plan.run(SYSTEMS["flat"], 1))
    assert flat == record(SYSTEMS["flat"], experiment(toy_data, tmp_path).run(SYSTEMS["flat"], 1))
    assert all(preset in PRESETS and corpus != "wos" for preset, corpus in PRESETS_BY_CORPUS)


def test_random_masking_keeps_what_was_measured(toy_data: Path, tmp_path: Path) -> None:
    plan = experiment(toy_data, tmp_path, preset="paper")
    with pytest.raises(NotYetError):
        plan.run(SYSTEMS["random"], 4)
    pretend_finished(plan, "hgclr", 4, history=[{"kept": 0.125}, {"kept": 0.375}, {"kept": 0.4}])
    model = record(SYSTEMS["random"], plan.run(SYSTEMS["random"], 4))["model"]
    assert model["keep_fraction"] == 0.3
    assert (model["keep_threshold"], model["keep_at_least"], model["positives"]) == (None, 0, "random")


def test_flat_can_be_trained_twice_as_long_as_the_recipe_says(toy_data: Path, tmp_path: Path) -> None:
    plan = experiment(toy_data, tmp_path)
    pretend_finished(plan, "flat", 1, recipe={"epochs": 7})
    run = plan.run(SYSTEMS["flat-long"], 1)
    assert (run.training.epochs, run.training.patience) == (14, 12)


def test_unknown_rows_are_named_with_the_nearest() -> None:
    with pytest.raises(InputError, match="table4 has no row 'no-egde'; did you mean 'no-edge'"):
        TABLES["table4"].choose(["hgclr", "no-egde"])
    with pytest.raises(InputError, match="its rows are hgclr, no-name, no-spatial, no-edge, layers-2"):
        TABLES["table4"].choose(["zzz"])
    assert [row.system for row in TABLES["table4"].choose(["layers-2", "hgclr"])] == ["hgclr", "layers-2"]
    assert "layers-2" not in [row.system for row in TABLES["table4"].choose(None)]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.seed=3", "training.seed is decided by --seeds; use that option"),
        ("model.architecture=flat", "model.architecture is decided by --rows"),
        ("training.epochs=3", "training.epochs is decided by --budget"),
        ("training.epoch=3", "training.epoch: unknown setting; did you mean 'epochs'"),
        ("model.node_widht=3", "unknown model setting 'node_widht'; did you mean 'node_width'"),
        ("seed", "--set 'seed' is no key=value"),
    ],
)
def test_settings_that_cannot_be_are_refused(override: str, message: str, toy_data: Path, tmp_path: Path) -> None:
    from hgclr.reproduction.tables.budget import Budget

    with pytest.raises(InputError, match=re.escape(message)):
        experiment(toy_data, tmp_path, overrides=(override,), budget=Budget(epochs=2)).base()
