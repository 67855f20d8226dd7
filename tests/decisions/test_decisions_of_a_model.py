"""``decisions.json`` in a model's folder: obeyed by default, overruled by arguments, carried along by an export."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hgclr.data import DataFolder
from hgclr.decisions.calibration import Temperatures
from hgclr.decisions.settings import FILE, Decisions
from hgclr.errors import InputError
from hgclr.export.onnx import export_onnx
from hgclr.inference import HierarchicalClassifier, evaluate
from hgclr.metrics.scores import MultiLabelScores
from hgclr.taxonomy import Taxonomy

TEXTS = ["atom", "the lens of a prism in a lake is a mirror", "judge", "a boat", "goal", "acid salt of the court"]


@pytest.fixture(scope="module")
def plain(untrained: Callable[..., Path]) -> Path:
    return untrained(threshold=0.4)


@pytest.fixture(scope="module")
def decisions(taxonomy: Taxonomy) -> Decisions:
    thresholds = np.linspace(0.35, 0.65, len(taxonomy)).astype(np.float32)
    return Decisions(
        taxonomy,
        "min-parent",
        thresholds,
        Temperatures(taxonomy, (2.0, 3.0, 0.5)),
        abstain_below=0.8,
        provenance={"documents": 24},
    )


@pytest.fixture(scope="module")
def calibrated(plain: Path, decisions: Decisions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = shutil.copytree(plain, tmp_path_factory.mktemp("calibrated") / "model")
    decisions.write(folder)
    return folder


@pytest.fixture(scope="module")
def classifier(calibrated: Path) -> HierarchicalClassifier:
    return HierarchicalClassifier.load(calibrated)


def probabilities_by_hand(plain: Path, taxonomy: Taxonomy) -> np.ndarray:
    """From the logits of the model without decisions."""
    classifier = HierarchicalClassifier.load(plain)
    logits = np.concatenate(list(classifier.logits(TEXTS))).astype(np.float64)
    temperatures = np.array([2.0, 3.0, 0.5])[taxonomy.depths - 1]
    return 1 / (1 + np.exp(-logits / temperatures))


def test_a_model_without_the_file_has_its_own_threshold(plain: Path) -> None:
    decisions = HierarchicalClassifier.load(plain).decisions
    assert (decisions.rule, decisions.thresholds, decisions.calibration, decisions.abstain_below) == (
        "threshold",
        0.4,
        None,
        None,
    )


def test_the_file_is_obeyed(plain: Path, classifier: HierarchicalClassifier, taxonomy: Taxonomy) -> None:
    expected = probabilities_by_hand(plain, taxonomy)
    np.testing.assert_allclose(classifier.predict_proba(TEXTS), expected, atol=1e-5)
    thresholds = np.linspace(0.35, 0.65, len(taxonomy))
    doubted = 0
    for row, prediction in zip(expected, classifier.predict(TEXTS), strict=True):
        lowered = {label: min(row[taxonomy.path(label)]) for label in range(len(taxonomy))}
        both = {
            label
            for label in lowered
            if all(lowered[above] > thresholds[above] for above in taxonomy.path(label).tolist())
        }
        sure = {label for label in both if lowered[label] >= 0.8}
        assert {taxonomy.resolve(label.id) for label in prediction.labels} == sure
        assert {taxonomy.resolve(label.id) for label in prediction.abstained} == both - sure
        for label in (*prediction.labels, *prediction.abstained):
            assert label.probability == pytest.approx(lowered[taxonomy.resolve(label.id)], abs=1e-5)
        assert ("abstained" in prediction.to_json()) == bool(prediction.abstained)
        doubted += len(prediction.abstained)
    assert doubted  # else this test says little


def test_arguments_overrule_the_file(plain: Path, classifier: HierarchicalClassifier, taxonomy: Taxonomy) -> None:
    expected = probabilities_by_hand(plain, taxonomy) > 0.5
    found = classifier.predict(TEXTS, threshold=0.5, rule="threshold", abstain_below=0)
    for row, prediction in zip(expected, found, strict=True):
        assert {label.id for label in prediction.labels} == {taxonomy.ids[label] for label in np.flatnonzero(row)}
        assert prediction.abstained == ()
    paths = classifier.predict(TEXTS, rule="top-k-paths", paths=2, abstain_below=0)
    assert all(len({label.path[0] for label in prediction.labels}) <= 2 for prediction in paths)
    assert any(
        len(one.labels) < len(two.labels)
        for one, two in zip(classifier.predict(TEXTS, rule="best-path", abstain_below=0), paths, strict=True)
    )


@pytest.mark.slow
def test_an_export_decides_as_the_model_does(
    calibrated: Path, classifier: HierarchicalClassifier, tmp_path: Path
) -> None:
    exported = HierarchicalClassifier.load(export_onnx(calibrated, tmp_path / "onnx").folder)
    assert json.loads((tmp_path / "onnx" / FILE).read_text()) == json.loads((calibrated / FILE).read_text())
    for ours, theirs in zip(classifier.predict(TEXTS), exported.predict(TEXTS), strict=True):
        for part in ("labels", "abstained"):
            assert [label.id for label in getattr(ours, part)] == [label.id for label in getattr(theirs, part)]


@pytest.mark.parametrize(
    "changes", [{}, {"rule": "closure", "abstain_below": 0.0}, {"rule": "top-k-paths", "paths": 3}]
)
def test_scores_are_those_of_what_is_given(
    classifier: HierarchicalClassifier, toy_data: Path, taxonomy: Taxonomy, changes: dict
) -> None:
    folder = DataFolder(toy_data, taxonomy=taxonomy)
    documents = list(folder.documents("test"))
    gold = np.zeros((len(documents), len(taxonomy)), dtype=bool)
    predicted = np.zeros_like(gold)
    predictions = classifier.predict([document.text for document in documents], **changes)
    for row, (document, prediction) in enumerate(zip(documents, predictions, strict=True)):
        gold[row, list(document.labels)] = True
        predicted[row, [taxonomy.resolve(label.id) for label in prediction.labels]] = True
    expected = MultiLabelScores(taxonomy)
    expected.update(predicted, gold)
    decisions = classifier.decisions.changed(**changes)
    assert evaluate(classifier, folder, "test", decisions=decisions).to_json() == expected.to_json()


def test_a_file_for_another_tree_is_refused(calibrated: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(calibrated, tmp_path / "model")
    fields = json.loads((folder / FILE).read_text())
    fields["thresholds"]["alchemy"] = fields["thresholds"].pop("chemistry")
    (folder / FILE).write_text(json.dumps(fields))
    with pytest.raises(InputError) as caught:
        HierarchicalClassifier.load(folder)
    assert str(caught.value) == (
        f"{folder / FILE}: no threshold for 1 labels of the model, such as 'chemistry';"
        " run hgclr calibrate again, or delete the file"
    )
