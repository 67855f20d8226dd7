"""Loading: an ONNX folder gives the classifier that torch gives, without torch; a broken one is refused by name."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hgclr.errors import InputError
from hgclr.export.onnx import export_onnx
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.backends import OnnxBackend, TorchBackend
from hgclr.inference.loading import is_onnx, load_model

pytestmark = pytest.mark.slow

TEXTS = ["atom", "", "the lens of a prism in a lake is a mirror", "judge " * 100, "a boat", "goal"]
REMEDY = "write the folder again with hgclr export"


@pytest.fixture(scope="module")
def model(untrained: Callable[..., Path]) -> Path:
    """MPNet, so that nothing may take the padding token for 0."""
    return untrained("mpnet", threshold=0.4, max_length=40)


@pytest.fixture(scope="module")
def exported(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_onnx(model, tmp_path_factory.mktemp("loading") / "onnx").folder


@pytest.fixture
def copied(exported: Path, tmp_path: Path) -> Path:
    """A folder to break, without the manifest that would tell."""
    return shutil.copytree(exported, tmp_path / "copy", ignore=shutil.ignore_patterns("manifest.json"))


def test_both_ways_give_the_same_parts(model: Path, exported: Path, taxonomy) -> None:
    with_torch, without = load_model(model), load_model(exported)
    assert isinstance(with_torch.backend, TorchBackend)
    assert isinstance(without.backend, OnnxBackend)
    for loaded in (with_torch, without):
        assert loaded.taxonomy == taxonomy
        assert (loaded.pad_token, loaded.max_length, loaded.decisions.thresholds) == (1, 40, 0.4)
    assert (is_onnx(model), is_onnx(exported)) == (False, True)


def test_both_ways_give_the_same_probabilities(model: Path, exported: Path) -> None:
    expected, found = (HierarchicalClassifier.load(path).predict_proba(TEXTS) for path in (model, exported))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(HierarchicalClassifier.load(str(exported)).predict_proba(TEXTS), found)


def test_onnx_needs_neither_torch_nor_transformers(exported: Path) -> None:
    code = (
        "import json, sys\n"
        "HIDDEN = ('torch', 'transformers', 'datasets', 'accelerate', 'onnx', 'onnxscript')\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in HIDDEN: raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Hide())\n"
        "import hgclr\n"
        "classifier = hgclr.HierarchicalClassifier.load(sys.argv[1])\n"
        "print(json.dumps(classifier.predict_proba(json.loads(sys.argv[2])).tolist()))\n"
    )
    command = [sys.executable, "-c", code, str(exported), json.dumps(TEXTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = np.array(json.loads(done.stdout))
    np.testing.assert_allclose(found, HierarchicalClassifier.load(exported).predict_proba(TEXTS), atol=1e-6)


def test_another_device_than_the_processor_is_refused(exported: Path) -> None:
    load_model(exported, "cpu")
    with pytest.raises(InputError, match="an ONNX model runs on the CPU, not on 'cuda'; leave the device out"):
        HierarchicalClassifier.load(exported, device="cuda")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("pad_token_id", None, "'pad_token_id' is None"),
        ("pad_token_id", -1, "'pad_token_id' is -1"),
        ("pad_token_id", True, "'pad_token_id' is True"),
        ("max_length", 0, "'max_length' is 0"),
        ("max_length", "40", "'max_length' is '40'"),
        ("threshold", 1.0, "'threshold' is 1.0"),
        ("threshold", "0.5", "'threshold' is '0.5'"),
        ("id2label", ["a"], "'id2label' is ['a']"),
        ("id2label", {"0": 7}, "'id2label' is {'0': 7}"),
        ("id2label", {"0": "a", "2": "b"}, "'id2label' does not count from 0 without gaps"),
        ("id2label", {}, "the label tree is empty"),
        ("label_parents", None, "'label_parents' is None"),
        ("label_parents", ["a"], "'label_parents' is ['a']"),
        ("label_parents", [-1], "parents"),
        ("label_parents", list(range(9)), "labels form a cycle: 'chemistry' < 'chemistry'"),
        ("label_names", [1], "'label_names' is [1]"),
    ],
)
def test_a_broken_configuration_is_named(copied: Path, field: str, value: object, message: str) -> None:
    path = copied / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    with pytest.raises(InputError) as caught:
        load_model(copied)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert str(caught.value).endswith(f"; {REMEDY}")


@pytest.mark.parametrize(
    "field", ["pad_token_id", "max_length", "threshold", "id2label", "label_parents", "label_names"]
)
def test_a_missing_field_is_named(copied: Path, field: str) -> None:
    path = copied / "config.json"
    fields = json.loads(path.read_text())
    del fields[field]
    path.write_text(json.dumps(fields))
    with pytest.raises(InputError, match=f"config.json: no field '{field}'; {REMEDY}"):
        load_model(copied)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", None, "cannot be read: No such file or directory"),
        ("config.json", "{", "not JSON: "),
        ("config.json", "[]", "expected an object, got []"),
        ("tokenizer.json", None, "no tokenizer could be loaded: "),
        ("tokenizer.json", "{}", "no tokenizer could be loaded: "),
        ("model.onnx", "", "no graph could be loaded: "),
    ],
)
def test_a_broken_file_is_named(copied: Path, name: str, content: str | None, message: str) -> None:
    if content is None:
        (copied / name).unlink()
    else:
        (copied / name).write_text(content)
    with pytest.raises(InputError) as caught:
        load_model(copied)
    assert str(caught.value).startswith(f"{copied / name}: {message}")
    assert "write" in str(caught.value.remedy)


def test_files_of_two_models_are_refused(copied: Path) -> None:
    path = copied / "config.json"
    fields = json.loads(path.read_text())
    for name in ("label_parents", "label_names"):
        fields[name] = [*fields[name], -1 if name == "label_parents" else "new"]
    fields["id2label"]["9"] = "new"
    path.write_text(json.dumps(fields))
    with pytest.raises(InputError, match=r"copy: 9 labels in model\.onnx, 10 in config\.json; write the folder again"):
        load_model(copied)
