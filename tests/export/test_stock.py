"""Exports for transformers and sentence-transformers: they load where there is no hgclr, and predict the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from hgclr.decisions.settings import Decisions, Isotonic, Temperatures
from hgclr.errors import InputError
from hgclr.export import stock as exporting
from hgclr.export.onnx import export_onnx
from hgclr.export.stock import export_sentence_transformers, export_stock
from hgclr.inference import HierarchicalClassifier
from hgclr.models import FlatForSequenceClassification
from support.fresh_process import FreshProcesses, fresh_processes

TEXTS = ["atom", "the lens of a prism in a lake is a mirror", "judge " * 100, "a boat"]
# An installation without hgclr.
HIDE = """
import json, sys, warnings
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "hgclr":
            raise ModuleNotFoundError(name, name=name)
"""
PIPELINE = f"""{HIDE}
if sys.argv[3] == "without":
    sys.meta_path.insert(0, Hide())
else:
    import hgclr.models
from transformers import AutoModelForSequenceClassification, pipeline
name = type(AutoModelForSequenceClassification.from_pretrained(sys.argv[1])).__name__
classify = pipeline("text-classification", model=sys.argv[1], top_k=None, truncation=True, device="cpu")
answers = [{{row["label"]: row["score"] for row in answer}} for answer in classify(json.loads(sys.argv[2]))]
print(json.dumps({{"class": name, "answers": answers, "hgclr": "hgclr" in sys.modules}}))
"""
ENCODE = f"""{HIDE}
sys.meta_path.insert(0, Hide())
from sentence_transformers import SentenceTransformer
warnings.simplefilter("error")
model = SentenceTransformer(sys.argv[1], device="cpu")
if len(sys.argv) > 3:
    model.save(sys.argv[3], create_model_card=False)
labels = model[0].auto_model.config.id2label
logits = model.encode(json.loads(sys.argv[2]), batch_size=3)
print(json.dumps({{
    "logits": logits.tolist(),
    "labels": [labels[index] for index in range(len(labels))],
    "modules": [type(module).__name__ for module in model],
}}))
"""


@pytest.fixture(scope="module")
def in_pipeline(transformers_processes: FreshProcesses) -> Callable[..., dict]:
    """Return a function that runs the pipeline of transformers on a folder."""

    def in_pipeline(folder: Path, *, hgclr: str) -> dict:
        done = transformers_processes.run(PIPELINE, folder, json.dumps(TEXTS), hgclr)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return in_pipeline


@pytest.fixture(scope="module")
def in_library() -> Iterator[Callable[..., dict]]:
    """Return a function that loads a folder in sentence-transformers, and may let it save the model."""
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

    def make(kind: str = "bert", pooling: str = "cls") -> Path:
        model = untrained(kind, spread=0.5, pooling=pooling, threshold=0.4, max_length=24)
        return Path(shutil.copytree(model, tmp_path_factory.mktemp("models") / f"{kind}-{pooling}"))

    return make


def logits_of(folder: Path) -> np.ndarray:
    return next(HierarchicalClassifier.load(folder).logits(TEXTS))


def calibrated(taxonomy) -> Decisions:
    """Thresholds that differ by label, temperatures that differ by level."""
    thresholds = np.linspace(0.1, 0.8, len(taxonomy), dtype=np.float32)
    return Decisions(taxonomy, thresholds=thresholds, calibration=Temperatures(taxonomy, (0.5, 1.0, 2.5)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name", "own"),
    [
        ("bert", "BertForSequenceClassification", False),
        ("roberta", "RobertaForSequenceClassification", False),
        ("distilbert", "FlatForSequenceClassification", True),  # has no exact form
    ],
)
def test_the_pipeline_of_transformers_predicts_the_same(
    make_model, in_pipeline, taxonomy, tmp_path: Path, kind: str, name: str, own: bool
) -> None:
    model = make_model(kind)
    result = export_stock(model, tmp_path / "stock", texts=TEXTS)
    assert (result.class_name, result.own_class is not None) == (name, own)
    assert result.difference.logit < 1e-6
    assert result.difference.texts > len(TEXTS)
    found = in_pipeline(result.folder, hgclr="with" if own else "without")
    assert (found["class"], found["hgclr"]) == (name, own)
    expected = HierarchicalClassifier.load(model).predict_proba(TEXTS)
    for row, answer in enumerate(found["answers"]):  # each label by itself: sigmoid, not softmax
        assert set(answer) == set(taxonomy.ids)
        np.testing.assert_allclose([answer[label] for label in taxonomy.ids], expected[row], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "pooling"), [("bert", "mean"), ("bert", "cls"), ("bert", "max"), ("mpnet", "mean"), ("distilbert", "mean")]
)
def test_sentence_transformers_gives_our_logits(
    make_model, in_library, taxonomy, tmp_path: Path, kind: str, pooling: str
) -> None:
    model = make_model(kind, pooling)
    result = export_sentence_transformers(model, tmp_path / "st", texts=TEXTS)
    assert result.difference.logit < 1e-5
    found = in_library(result.folder)
    assert found["modules"] == ["Transformer", "Pooling", "Dense"]
    assert found["labels"] == list(taxonomy.ids)
    expected = logits_of(model)
    assert expected.std() > 0.3
    np.testing.assert_allclose(found["logits"], expected, atol=1e-5)


@pytest.mark.slow
def test_folded_thresholds_decide_where_there_is_no_hgclr(
    make_model, in_pipeline, in_library, taxonomy, tmp_path: Path
) -> None:
    model = make_model("roberta")
    calibrated(taxonomy).write(model)
    ours = HierarchicalClassifier.load(model)
    expected = ours.decisions.decide(ours.predict_proba(TEXTS)).predicted
    assert ((logits_of(model) > 0) != expected).any()  # or the thresholds would not matter
    stock = export_stock(model, tmp_path / "stock", fold_thresholds=True)
    modules = export_sentence_transformers(model, tmp_path / "st", fold_thresholds=True)
    assert stock.folded
    assert modules.folded
    answers = in_pipeline(stock.folder, hgclr="without")["answers"]
    found = np.array([[answer[label] > 0.5 for label in taxonomy.ids] for answer in answers])
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.array(in_library(modules.folder)["logits"]) > 0, expected)
    for folder in (stock.folder, modules.folder):  # hgclr decides as before, on the model's own logits
        np.testing.assert_allclose(logits_of(folder), logits_of(model), atol=1e-5)


def test_thresholds_that_cannot_be_folded_are_refused(make_model, taxonomy, tmp_path: Path) -> None:
    isotonic = make_model("bert")
    line = ((0.0, 1.0), (0.0, 1.0))
    Decisions(taxonomy, calibration=Isotonic(taxonomy, (line, line, line))).write(isotonic)
    for model in (make_model("distilbert"), isotonic):
        with pytest.raises(InputError) as caught:
            export_stock(model, tmp_path / "out", fold_thresholds=True)
        assert caught.value.remedy
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("export", [export_stock, export_sentence_transformers])
def test_the_folder_can_replace_the_model(make_model, in_library, tmp_path: Path, export: Callable) -> None:
    model = make_model("bert")
    before = HierarchicalClassifier.load(model)
    before.decisions.changed(rule="closure", threshold=0.3).write(model)
    folder = export(model, tmp_path / "other").folder
    after = HierarchicalClassifier.load(folder)
    np.testing.assert_allclose(after.predict_proba(TEXTS), before.predict_proba(TEXTS), atol=1e-6)
    assert after.taxonomy == before.taxonomy
    assert (after.decisions.rule, float(after.decisions.thresholds)) == ("closure", pytest.approx(0.3))
    if export is export_sentence_transformers:  # also after the library has saved it
        in_library(folder, tmp_path / "saved")
        np.testing.assert_allclose(logits_of(tmp_path / "saved"), logits_of(model), atol=1e-6)
    graph = export_onnx(folder, tmp_path / "onnx").folder  # an export can be exported again
    np.testing.assert_allclose(logits_of(graph), logits_of(model), atol=1e-4)


@pytest.mark.parametrize("export", [export_stock, export_sentence_transformers])
def test_the_folder_holds_no_pickle_and_nothing_of_this_machine(make_model, tmp_path: Path, export: Callable) -> None:
    folder = export(make_model(), tmp_path / "out").folder
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files >= {"config.json", "decisions.json", "manifest.json", "model.safetensors", "tokenizer.json"}
    assert {path.rpartition(".")[2] for path in files} == {"json", "safetensors"}
    for path in folder.rglob("*.json"):
        assert str(tmp_path.parent) not in path.read_text()
    covered = json.loads((folder / "manifest.json").read_text())["files"]
    assert set(covered) == files - {"manifest.json", "decisions.json"}
    assert json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"] == 24
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    assert tokenizer["truncation"]["max_length"] == 24
    assert tokenizer["padding"] is None


@pytest.mark.parametrize(("error", "refused"), [(1e-4, True), (2e-6, False), (float("nan"), True)])
@pytest.mark.parametrize("form", ["to_stock", "write_modules"])
def test_other_logits_are_refused(make_model, tmp_path: Path, monkeypatch, form: str, error: float, refused) -> None:
    real = getattr(exporting, form)

    def another(model: FlatForSequenceClassification, *rest: object):
        moved = np.zeros(model.config.label_count, dtype=np.float32)
        moved[3] = error
        return real(model, *rest[:-1], moved)

    monkeypatch.setattr(exporting, form, another)
    export = export_stock if form == "to_stock" else export_sentence_transformers
    if not refused:
        assert export(make_model(), tmp_path / "out").difference.logit > 1e-6
        return
    with pytest.raises(InputError) as caught:
        export(make_model(), tmp_path / "out")
    assert caught.value.remedy
    assert list(tmp_path.iterdir()) == []


def test_bad_input_is_refused_and_leaves_nothing(make_model, tmp_path: Path, monkeypatch) -> None:
    model = make_model()
    for export, source, output in (
        (export_stock, model, model),
        (export_stock, "nowhere", tmp_path / "out"),
        (export_stock, make_model("bert", "mean"), tmp_path / "out"),
        (export_stock, make_model("bert", "max"), tmp_path / "out"),
    ):
        with pytest.raises(InputError):
            export(source, output)
    monkeypatch.setattr(exporting, "no_modules_form", lambda _: "it has more than a linear layer")
    with pytest.raises(InputError) as caught:
        export_sentence_transformers(model, tmp_path / "out")
    assert caught.value.remedy
    assert list(tmp_path.iterdir()) == []
