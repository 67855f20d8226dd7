"""``decisions.json``: read back as written, refused where it does not fit; doubt; changes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgclr.decisions.calibration import Isotonic, Temperatures
from hgclr.decisions.decoding import RULES
from hgclr.decisions.settings import FILE, Decisions
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy
from support.decision_cases import REPEATABLE, Case, cases, path

TREE = Taxonomy(["a", "a1", "b"], [-1, 0, -1])
REMEDY = "; run hgclr calibrate again, or delete the file"


@pytest.mark.slow
@REPEATABLE
@given(case=cases(), rule=st.sampled_from(RULES), paths=st.integers(1, 9), abstain_below=st.none() | st.floats(0, 1))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, case: Case, rule: str, paths: int, abstain_below: float | None
) -> None:
    curve = ((0.0, 0.3, 0.9), (0.01, 0.5, 0.99))
    kinds = [None, Temperatures(case.taxonomy, (1.7,) * case.taxonomy.depth)]
    kinds.append(Isotonic(case.taxonomy, (curve,) * case.taxonomy.depth))
    for calibration in kinds:
        written = Decisions(
            case.taxonomy,
            rule,
            case.thresholds,
            calibration,
            paths=paths,
            allow_inner_nodes=paths % 2 == 0,
            abstain_below=abstain_below,
            provenance={"metric": "macro-F1", "documents": 3},
        )
        folder = tmp_path_factory.mktemp("model")
        written.write(folder)
        read = Decisions.read(folder / FILE, case.taxonomy)
        for name in ("rule", "calibration", "paths", "allow_inner_nodes", "abstain_below", "provenance"):
            assert getattr(read, name) == getattr(written, name)
        np.testing.assert_array_equal(read.decoder.thresholds, written.decoder.thresholds)
        assert np.ndim(read.thresholds) == np.ndim(written.thresholds)
        before, after = (decisions.decide(case.probabilities) for decisions in (written, read))
        np.testing.assert_array_equal(before.predicted, after.predicted)
        np.testing.assert_array_equal(before.abstained, after.abstained)


def test_the_file_can_be_read_by_people(tmp_path: Path) -> None:
    tree = Taxonomy(["é", "b"], [-1, -1])
    Decisions(tree, "closure", np.array([0.3, 0.7], dtype=np.float32), provenance={"documents": 7}).write(tmp_path)
    text = (tmp_path / FILE).read_text(encoding="utf-8")
    assert '"é": 0.3,' in text
    assert json.loads(text) == {
        "rule": "closure",
        "paths": 1,
        "allow_inner_nodes": True,
        "abstain_below": None,
        "calibration": None,
        "thresholds": {"é": 0.3, "b": 0.7},
        "provenance": {"documents": 7},
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rule": "magic"}, "unknown decoding rule 'magic'"),
        ({"rule": 3}, "unknown decoding rule 3"),
        ({"thresholds": {"a": 0.5}}, "no threshold for 2 labels of the model, such as 'a1'"),
        (
            {"thresholds": {"a": 0.5, "a1": 0.5, "b": 0.5, "z": 0.5, "y": 0.5}},
            "thresholds for 2 labels that the model does not have, such as 'y'",
        ),
        ({"thresholds": {"a": 0.5, "a1": "0.5", "b": 0.5}}, "broken: expected float, got '0.5'"),
        ({"thresholds": {"a": 0.5, "a1": 7, "b": 0.5}}, "a threshold is not between 0 and 1"),
        ({"thresholds": [0.5]}, "broken: expected float, got [0.5]"),
        ({"thresholds": None}, "broken: expected float, got None"),
        ({"thresholds": True}, "broken: expected float, got True"),
        ({"calibration": "warm"}, "the calibration cannot be read"),
        ({"calibration": {"method": "temperature", "levels": [1.0]}}, "a calibration of 1 levels for a tree of 2"),
        ({"paths": 0}, "0 paths cannot be given"),
        ({"paths": 2.5}, "broken: expected int, got 2.5"),
        ({"allow_inner_nodes": "no"}, "broken: expected bool, got 'no'"),
        ({"abstain_below": 1.5}, "abstain_below is 1.5"),
        ({"abstain_below": "very"}, "broken: expected float, got 'very'"),
        ({"found": None}, "broken: expected dict, got None"),
    ],
)
def test_a_broken_field_is_named_with_file_and_remedy(tmp_path: Path, change: dict, message: str) -> None:
    file = tmp_path / FILE
    file.write_text(json.dumps(Decisions(TREE).to_json() | change), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        Decisions.read(file, TREE)
    assert str(caught.value).startswith(f"{file}: {message}")
    assert str(caught.value).endswith(REMEDY)


@pytest.mark.parametrize("field", list(Decisions(TREE).to_json()))
def test_a_missing_field_is_named(tmp_path: Path, field: str) -> None:
    file = tmp_path / FILE
    fields = Decisions(TREE).to_json()
    del fields[field]
    file.write_text(json.dumps(fields), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        Decisions.read(file, TREE)
    assert str(caught.value) == f"{file}: no field '{field}'{REMEDY}"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"\xff"])
def test_what_is_no_such_file_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / FILE
    file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        Decisions.read(file, TREE)
    assert str(caught.value).startswith((f"{file}: broken: ", f"{file}: not JSON: "))
    assert str(caught.value).endswith(REMEDY)
    with pytest.raises(InputError, match=f"nowhere/{FILE}: cannot be read: No such file or directory"):
        Decisions.read(tmp_path / "nowhere" / FILE, TREE)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=f"file/{FILE}: cannot be written: "):
        Decisions(TREE).write(tmp_path / "file")


@REPEATABLE
@given(cases(), st.sampled_from(RULES), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_doubt_stops_at_the_parent(case: Case, rule: str, sure: float) -> None:
    plain = Decisions(case.taxonomy, rule, case.thresholds)
    decided, all_of_it = (
        plain.changed(abstain_below=sure).decide(case.probabilities),
        plain.decide(case.probabilities),
    )
    np.testing.assert_array_equal(decided.predicted | decided.abstained, all_of_it.predicted)
    assert not all_of_it.abstained.any()
    for row, given_labels, both in zip(decided.probabilities, decided.predicted, all_of_it.predicted, strict=True):
        for label in np.flatnonzero(both):
            assert given_labels[label] == all(row[above] >= sure for above in path(case.taxonomy, label))


def test_only_what_is_given_is_changed() -> None:
    decisions = Decisions(TREE, "closure", np.array([0.3, 0.4, 0.5], dtype=np.float32), abstain_below=0.7, paths=2)
    assert decisions.changed() is decisions
    changed = decisions.changed(rule="top-k-paths", threshold=0.0, paths=3, abstain_below=0.0)
    assert (changed.rule, changed.thresholds, changed.paths, changed.abstain_below) == ("top-k-paths", 0.0, 3, 0.0)
    assert decisions.changed(rule="best-path").decoder.thresholds.tolist() == decisions.decoder.thresholds.tolist()
    with pytest.raises(InputError, match="abstain_below is 2; give a probability between 0 and 1"):
        decisions.changed(abstain_below=2)
    with pytest.raises(InputError, match="unknown decoding rule"):
        decisions.changed(rule="magic")


def test_the_summary_says_how_labels_are_decided() -> None:
    assert Decisions(TREE).summary() == "decoding: threshold, threshold 0.5, probabilities as trained"
    calibrated = Decisions(
        TREE, "top-k-paths", [0.25, 0.5, 0.75], Temperatures(TREE, (1.0, 2.0)), paths=3, abstain_below=0.8
    )
    assert calibrated.summary() == (
        "decoding: top-k-paths with k = 3, thresholds 0.25 to 0.75, probabilities calibrated, only where 80.0% sure"
    )


@pytest.mark.parametrize("temperatures", [None, (0.3, 4.0)])
def test_a_shifted_logit_is_above_zero_where_the_label_passes_its_threshold(temperatures) -> None:
    """On all logits from -30 to 30 but those that rounding may put on either side."""
    calibration = None if temperatures is None else Temperatures(TREE, temperatures)
    scale = np.ones(3) if temperatures is None else np.array([0.3, 4.0, 0.3])
    logits = np.repeat(np.linspace(-30, 30, 6001), 3).reshape(-1, 3)
    for thresholds in ([0.5, 0.5, 0.5], [0.01, 0.3, 0.999], [0.7, 0.04, 0.2]):
        decisions = Decisions(TREE, "threshold", np.array(thresholds, dtype=np.float32), calibration)
        shift = decisions.logit_shift()
        assert shift.shape == (3,)
        exact = 1 / (1 + np.exp(-logits / scale))
        clear = np.abs(exact - thresholds) > 1e-6
        assert clear.mean() > 0.5
        np.testing.assert_array_equal((logits + shift > 0)[clear], (exact > thresholds)[clear])
    assert (Decisions(TREE, calibration=calibration).logit_shift() == 0).all()


def test_a_shift_for_thresholds_of_nought_and_one_is_finite_and_decides_as_they_do() -> None:
    decisions = Decisions(TREE, "threshold", np.array([0.0, 1.0, 0.5], dtype=np.float32))
    logits = np.array([[-50.0] * 3, [50.0] * 3], dtype=np.float32)
    shift = decisions.logit_shift()
    assert np.isfinite(shift).all()
    assert (logits + shift > 0).tolist() == [[True, False, False], [True, False, True]]
    probabilities = (1 / (1 + np.exp(-logits.astype(np.float64)))).astype(np.float32)
    assert (logits + shift > 0).tolist() == decisions.decide(probabilities).predicted.tolist()


def test_a_curve_is_no_threshold_on_logits() -> None:
    decisions = Decisions(TREE, calibration=Isotonic(TREE, (((0.0, 1.0), (0.0, 1.0)),) * 2))
    with pytest.raises(InputError, match="thresholds on isotonic probabilities are no thresholds on logits; run hgclr"):
        decisions.logit_shift()
