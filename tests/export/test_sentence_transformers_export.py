"""The export to sentence-transformers: the library itself gives our logits, where there is no hgclr."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from hgclr.decisions.calibration import Temperatures
from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError
from hgclr.export import sentence_transformers as exporting
from hgclr.export.onnx import export_onnx
from hgclr.export.sentence_transformers import export_sentence_transformers
from hgclr.inference import HierarchicalClassifier
from hgclr.models import FlatForSequenceClassification
from hgclr.paper.models.hiagm import HiAGMTPForSequenceClassification
from support.fresh_process import fresh_processes

TEXTS = ["atom", "the lens of a prism in a lake is a mirror", "judge " * 100, "a boat", ""]

# An installation without hgclr: whatever asks for it is told that it does not exist. Warnings are errors.
ENCODE = """
import json, sys, warnings
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "hgclr":
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Hide())
from sentence_transformers import SentenceTransformer
warnings.simplefilter("error")
model = SentenceTransformer(sys.argv[1], device="cpu")
if len(sys.argv) > 3:
    model.save(sys.argv[3], create_model_card=False)
labels = model[0].auto_model.config.id2label
logits = model.encode(json.loads(sys.argv[2]), batch_size=3)
print(json.dumps({
    "logits": logits.tolist(),
    "labels": [labels[index] for index in range(len(labels))],
    "modules": [type(module).__name__ for module in model],
    "similar": model.similarity(logits, logits).shape[0],
}))
"""


@pytest.fixture(scope="module")
def in_library() -> Iterator[Callable[..., dict]]:
    """Return a function that tells what the library makes of a folder, and may let it save that."""
    with fresh_processes("sentence_transformers") as processes:

        def in_library(folder: Path, *save_to: Path) -> dict:
            done = processes.run(ENCODE, folder, json.dumps(TEXTS), *save_to)
            assert done.returncode == 0, done.stderr
            assert "LOAD REPORT" not in done.stderr  # no weights are missing, none too many
            return json.loads(done.stdout.splitlines()[-1])

        yield in_library


@pytest.fixture
def make_model(untrained: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that gives a model to change."""

    def make(kind: str = "bert", pooling: str = "mean", cls: type = FlatForSequenceClassification) -> Path:
        model = untrained(kind, cls=cls, spread=0.5, pooling=pooling, threshold=0.4, max_length=24)
        return Path(shutil.copytree(model, tmp_path_factory.mktemp("models") / f"{kind}-{pooling}"))

    return make


def logits_of(folder: Path) -> np.ndarray:
    return next(HierarchicalClassifier.load(folder).logits(TEXTS))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "pooling"), [("bert", "mean"), ("bert", "cls"), ("bert", "max"), ("mpnet", "mean"), ("distilbert", "mean")]
)
def test_the_library_gives_our_logits_where_there_is_no_hgclr(
    make_model, in_library, taxonomy, tmp_path: Path, kind: str, pooling: str
) -> None:
    model = make_model(kind, pooling)
    result = export_sentence_transformers(model, tmp_path / "st", texts=TEXTS)
    assert (result.pooling, result.folded) == (pooling, False)
    assert result.difference.logit < 1e-5
    assert result.difference.texts > len(TEXTS)
    found = in_library(result.folder)
    assert found["modules"] == ["Transformer", "Pooling", "Dense"]
    assert found["labels"] == list(taxonomy.ids)
    expected = logits_of(model)
    assert expected.std() > 0.3
    np.testing.assert_allclose(found["logits"], expected, atol=1e-5)


@pytest.mark.slow
def test_the_folder_takes_the_models_place_also_when_the_library_saved_it(
    make_model, in_library, tmp_path: Path
) -> None:
    model = make_model("mpnet")
    before = HierarchicalClassifier.load(model)
    before.decisions.changed(rule="closure", threshold=0.3).write(model)
    folder = export_sentence_transformers(model, tmp_path / "st").folder
    after = HierarchicalClassifier.load(folder)
    np.testing.assert_array_equal(after.predict_proba(TEXTS), before.predict_proba(TEXTS))
    assert after.taxonomy == before.taxonomy
    assert (after.decisions.rule, float(after.decisions.thresholds)) == ("closure", pytest.approx(0.3))
    in_library(folder, tmp_path / "saved")
    np.testing.assert_allclose(logits_of(tmp_path / "saved"), logits_of(model), atol=1e-6)
    graph = export_onnx(folder, tmp_path / "onnx").folder  # what was exported can be exported again
    np.testing.assert_allclose(logits_of(graph), logits_of(model), atol=1e-4)


@pytest.mark.slow
def test_with_folded_thresholds_a_logit_above_0_decides(make_model, in_library, taxonomy, tmp_path: Path) -> None:
    model = make_model()
    thresholds = np.linspace(0.1, 0.8, len(taxonomy), dtype=np.float32)
    Decisions(taxonomy, thresholds=thresholds, calibration=Temperatures(taxonomy, (0.5, 1.0, 2.5))).write(model)
    ours = HierarchicalClassifier.load(model)
    given = ours.decisions.decide(ours.predict_proba(TEXTS)).predicted
    folded = export_sentence_transformers(model, tmp_path / "folded", fold_thresholds=True)
    assert folded.folded
    blank = [not text for text in TEXTS]  # hgclr gives an empty text no label, whatever its logits
    decided = np.array(in_library(folded.folder)["logits"]) > 0
    np.testing.assert_array_equal(decided & ~np.array(blank)[:, None], given)
    assert ((logits_of(model) > 0) != given).any()  # or the thresholds would not matter
    np.testing.assert_allclose(logits_of(folded.folder), logits_of(model), atol=1e-5)  # hgclr decides as before


def test_the_folder_holds_no_pickle_and_nothing_of_this_machine(make_model, tmp_path: Path) -> None:
    folder = export_sentence_transformers(make_model(), tmp_path / "st").folder
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files == {
        "1_Pooling/config.json",
        "2_Dense/config.json",
        "2_Dense/model.safetensors",
        "config.json",
        "config_sentence_transformers.json",
        "decisions.json",
        "manifest.json",
        "model.safetensors",
        "modules.json",
        "sentence_bert_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    for path in folder.rglob("*.json"):
        assert str(tmp_path.parent) not in path.read_text()
    covered = json.loads((folder / "manifest.json").read_text())["files"]
    assert set(covered) == files - {"manifest.json", "decisions.json"}
    with (folder / "2_Dense" / "model.safetensors").open("ab") as file:
        file.write(b" ")
    with pytest.raises(InputError, match=r"2_Dense/model\.safetensors: not the file that was exported"):
        HierarchicalClassifier.load(folder)


@pytest.mark.parametrize(("error", "refused"), [(1e-4, True), (2e-6, False), (float("nan"), True)])
def test_other_logits_are_refused(make_model, tmp_path: Path, monkeypatch, error: float, refused: bool) -> None:
    real = exporting.write_modules

    def another(model: FlatForSequenceClassification, folder: Path, shift=None) -> None:
        moved = np.zeros(model.config.label_count, dtype=np.float32)
        moved[3] = error
        real(model, folder, moved)

    monkeypatch.setattr(exporting, "write_modules", another)
    if not refused:
        assert export_sentence_transformers(make_model(), tmp_path / "out").difference.logit > 1e-6
        return
    with pytest.raises(InputError, match=r"this model as modules gives other logits, by .*; nothing was written"):
        export_sentence_transformers(make_model(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_exported_is_refused(make_model, tmp_path: Path) -> None:
    with pytest.raises(
        InputError,
        match=r"HiAGMTPForSequenceClassification has more than a linear layer .*; use --to onnx, or --to stock",
    ):
        export_sentence_transformers(make_model(cls=HiAGMTPForSequenceClassification), tmp_path / "out")
    model = make_model()
    with pytest.raises(InputError, match="the output is there already; give a new or empty folder"):
        export_sentence_transformers(model, model)
    with pytest.raises(InputError, match="no model could be loaded from nowhere"):
        export_sentence_transformers("nowhere", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
