"""What the examples of the docs find in their folder: data, models, reports, trees; made once, of toys."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "hooks"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the docs out of ``make test``: they show commands of ``hgclr.paper``, which is hidden there."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("slow")


@pytest.fixture(scope="session")
def workshop(make_encoder, toy_data: Path, taxonomy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that examples read, under the names that the pages use."""
    from hgclr import HierarchicalClassifier, Taxonomy, train
    from hgclr.data import DataFolder
    from hgclr.evaluation.report import report
    from hgclr.export.stock import export_sentence_transformers, export_stock
    from hgclr.training import RunConfig

    folder = tmp_path_factory.mktemp("workshop")
    data, runs = Path(shutil.copytree(toy_data, folder / "my-data")), folder / "runs"
    # Wrists are asked for on one page, in a tree that is otherwise the toys'.
    Taxonomy([*taxonomy.ids, "S60-S69"], [*taxonomy.parents, -1]).write(data / "taxonomy.tsv")
    settings = {"epochs": 1, "precision": "fp32"}
    model = {"encoder": make_encoder("bert"), "architecture": "hgclr"}  # whose label side one page looks at
    train(RunConfig(data={"path": data}, model=model, training=settings, output=runs / "first"))
    shutil.rmtree(runs / "first" / "checkpoints")
    shutil.copytree(runs / "first", runs / "my")
    classifier = HierarchicalClassifier.load(runs / "first" / "model")
    documents = DataFolder(data, taxonomy=classifier.taxonomy)
    for name in ("report-flat", "report-hgclr"):
        report(classifier, documents, "test", folder / name, name=name)
    export_stock(runs / "first" / "model", folder / "first-plain")
    export_sentence_transformers(runs / "first" / "model", folder / "first-modules")
    (folder / "old.tsv").write_text("Root\tsports\nsports\ttennis\tsquash\n")
    (folder / "new.tsv").write_text("Root\tsports\nsports\tracket sports\trowing\n")
    import optuna

    (runs / "tuned").mkdir()
    storage = f"sqlite:///{runs / 'tuned' / 'study.db'}"
    study = optuna.create_study(study_name="hgclr", storage=storage, direction="maximize")
    study.optimize(lambda trial: trial.suggest_float("training.learning_rate", 1e-5, 1e-3, log=True), n_trials=3)
    (folder / "texts").mkdir()
    (folder / "texts" / "part-0.jsonl").write_text(json.dumps({"text": "a lens of ice", "year": 2024}) + "\n")
    return folder
