"""The export to transformers' own classes: it loads where there is no hgclr, and predicts the same."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from hgclr.decisions.calibration import Isotonic, Temperatures
from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError
from hgclr.export import stock as exporting
from hgclr.export.onnx import export_onnx
from hgclr.export.stock import export_stock
from hgclr.inference import HierarchicalClassifier
from hgclr.models import FlatForSequenceClassification
from support.fresh_process import FreshProcesses

TEXTS = ["atom", "the lens of a prism in a lake is a mirror", "judge " * 100, "a boat"]

# An installation without hgclr: whatever asks for it is told that it does not exist.
PIPELINE = """
import json, sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "hgclr":
            raise ModuleNotFoundError(name, name=name)
if sys.argv[3] == "without":
    sys.meta_path.insert(0, Hide())
else:
    import hgclr.models
from transformers import AutoModelForSequenceClassification, pipeline
name = type(AutoModelForSequenceClassification.from_pretrained(sys.argv[1])).__name__
classify = pipeline("text-classification", model=sys.argv[1], top_k=None, truncation=True, device="cpu")
answers = [{row["label"]: row["score"] for row in answer} for answer in classify(json.loads(sys.argv[2]))]
print(json.dumps({"class": name, "answers": answers, "hgclr": "hgclr" in sys.modules}))
"""


@pytest.fixture(scope="module")
def in_pipeline(transformers_processes: FreshProcesses) -> Callable[..., dict]:
    """Return a function that tells what the library's pipeline makes of a folder."""

    def in_pipeline(folder: Path, *, hgclr: str) -> dict:
        done = transformers_processes.run(PIPELINE, folder, json.dumps(TEXTS), hgclr)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return in_pipeline


@pytest.fixture
def make_model(untrained: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that gives a model to change."""

    def make(kind: str = "bert", pooling: str = "cls") -> Path:
        model = untrained(kind, spread=0.5, pooling=pooling, threshold=0.4, max_length=24)
        return Path(shutil.copytree(model, tmp_path_factory.mktemp("models") / f"{kind}-{pooling}"))

    return make


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [("bert", "Bert"), ("roberta", "Roberta")])
def test_it_predicts_the_same_where_there_is_no_hgclr(
    make_model, in_pipeline, taxonomy, tmp_path: Path, kind: str, name: str
) -> None:
    model = make_model(kind)
    result = export_stock(model, tmp_path / "stock", texts=TEXTS)
    assert (result.class_name, result.own_class) == (f"{name}ForSequenceClassification", None)
    assert result.difference.logit < 1e-6
    assert result.difference.texts > len(TEXTS)
    found = in_pipeline(result.folder, hgclr="without")
    assert found["hgclr"] is False
    assert found["class"] == result.class_name
    expected = HierarchicalClassifier.load(model).predict_proba(TEXTS)
    for row, answer in enumerate(found["answers"]):  # each label by itself: sigmoid, not softmax
        assert set(answer) == set(taxonomy.ids)
        np.testing.assert_allclose([answer[label] for label in taxonomy.ids], expected[row], atol=1e-6)


@pytest.mark.slow
def test_without_an_exact_form_our_own_class_is_written(make_model, in_pipeline, taxonomy, tmp_path: Path) -> None:
    model = make_model("distilbert")
    result = export_stock(model, tmp_path / "own")
    assert result.class_name == "FlatForSequenceClassification"
    assert "distilbert" in str(result.own_class)
    found = in_pipeline(result.folder, hgclr="with")
    assert found["class"] == "FlatForSequenceClassification"
    expected = HierarchicalClassifier.load(model).predict_proba(TEXTS)
    for row, answer in enumerate(found["answers"]):
        np.testing.assert_allclose([answer[label] for label in taxonomy.ids], expected[row], atol=1e-6)


@pytest.mark.parametrize(("kind", "pooling"), [("bert", "mean"), ("distilbert", "mean"), ("bert", "max")])
def test_other_poolings_are_told_where_to_go(make_model, tmp_path: Path, kind: str, pooling: str) -> None:
    with pytest.raises(InputError) as caught:
        export_stock(make_model(kind, pooling), tmp_path / "out")
    (line,) = str(caught.value).splitlines()
    assert f"this model's pooling is {pooling}; use --to sentence-transformers, or --to onnx" in line
    assert list(tmp_path.iterdir()) == []


def calibrated(taxonomy) -> Decisions:
    """Thresholds that differ by label, temperatures that differ by level."""
    thresholds = np.linspace(0.1, 0.8, len(taxonomy), dtype=np.float32)
    return Decisions(taxonomy, thresholds=thresholds, calibration=Temperatures(taxonomy, (0.5, 1.0, 2.5)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_with_folded_thresholds_one_half_decides_where_there_is_no_hgclr(
    make_model, in_pipeline, taxonomy, tmp_path: Path, kind: str
) -> None:
    model = make_model(kind)
    calibrated(taxonomy).write(model)
    ours = HierarchicalClassifier.load(model)
    given = ours.decisions.decide(ours.predict_proba(TEXTS)).predicted
    plain = export_stock(model, tmp_path / "plain")
    folded = export_stock(model, tmp_path / "folded", fold_thresholds=True)
    assert (plain.folded, folded.folded) == (False, True)
    found = {}
    for result in (plain, folded):
        answers = in_pipeline(result.folder, hgclr="without")["answers"]
        found[result.folded] = np.array([[answer[label] > 0.5 for label in taxonomy.ids] for answer in answers])
    np.testing.assert_array_equal(found[True], given)
    assert (found[False] != given).any()  # or the thresholds would not matter
    again = HierarchicalClassifier.load(folded.folder)  # which decides by itself, on the model's own logits
    np.testing.assert_allclose(*(next(c.logits(TEXTS)) for c in (again, ours)), atol=1e-5)
    np.testing.assert_array_equal(again.decisions.decide(again.predict_proba(TEXTS)).predicted, given)


def test_thresholds_that_cannot_be_folded_are_refused(make_model, taxonomy, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"in a class of ours, because .*distilbert.*; leave --fold-thresholds out"):
        export_stock(make_model("distilbert"), tmp_path / "out", fold_thresholds=True)
    model = make_model("bert")
    line = ((0.0, 1.0), (0.0, 1.0))
    Decisions(taxonomy, calibration=Isotonic(taxonomy, (line, line, line))).write(model)
    with pytest.raises(InputError, match="isotonic"):
        export_stock(model, tmp_path / "out", fold_thresholds=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_folder_takes_the_models_place(make_model, tmp_path: Path) -> None:
    model = make_model("bert")
    before = HierarchicalClassifier.load(model)
    before.decisions.changed(rule="closure", threshold=0.3).write(model)
    folder = export_stock(model, tmp_path / "stock").folder
    after = HierarchicalClassifier.load(folder)
    np.testing.assert_allclose(after.predict_proba(TEXTS), before.predict_proba(TEXTS), atol=1e-6)
    assert after.taxonomy == before.taxonomy
    assert after.decisions.rule == "closure"
    assert after.decisions.thresholds == pytest.approx(0.3)
    graph = export_onnx(folder, tmp_path / "onnx").folder  # what was exported can be exported again
    again = HierarchicalClassifier.load(graph)
    np.testing.assert_allclose(again.predict_proba(TEXTS), before.predict_proba(TEXTS), atol=1e-5)


@pytest.mark.parametrize("kind", ["bert", "distilbert"])
def test_the_folder_holds_no_pickle_and_nothing_of_this_machine(make_model, tmp_path: Path, kind: str) -> None:
    model = make_model(kind)
    folder = export_stock(model, tmp_path / "stock").folder
    files = {path.name for path in folder.iterdir()}
    expected = {"config.json", "decisions.json", "manifest.json", "model.safetensors"}
    assert files == expected | {"tokenizer.json", "tokenizer_config.json"}
    for path in folder.glob("*.json"):
        assert str(tmp_path.parent) not in path.read_text()
    assert json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"] == 24
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    assert tokenizer["truncation"]["max_length"] == 24
    assert tokenizer["padding"] is None
    config = json.loads((folder / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"


@pytest.mark.parametrize(("error", "refused"), [(3e-5, True), (3e-6, False), (float("nan"), True)])
def test_other_logits_are_refused(make_model, tmp_path: Path, monkeypatch, error: float, refused: bool) -> None:
    real = exporting.to_stock

    def another(model: FlatForSequenceClassification, shift=None):
        other = copy.deepcopy(model)
        with torch.no_grad():
            other.classifier.bias[3] += error
        return real(other, shift)

    monkeypatch.setattr(exporting, "to_stock", another)
    if not refused:
        assert export_stock(make_model(), tmp_path / "out").difference.logit == pytest.approx(error, rel=0.3)
        return
    with pytest.raises(InputError, match=r"as BertForSequenceClassification gives other logits, by .*; nothing was"):
        export_stock(make_model(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_exported_is_refused(make_model, tmp_path: Path) -> None:
    model = make_model()
    with pytest.raises(InputError, match="the output is there already; give a new or empty folder"):
        export_stock(model, model)
    with pytest.raises(InputError, match="no model could be loaded from nowhere"):
        export_stock("nowhere", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
