"""What computes logits: threads, errors, memory; that the numbers are right is shown in tests/export."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from hgclr.errors import InputError, MissingExtraError
from hgclr.inference import backends
from hgclr.inference.backends import OnnxBackend


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A graph in the place of a model: a text's logits are the sum of its real tokens and its length."""
    body = """
        <ir_version: 10, opset_import: ["" : 23]>
        agraph (int64[batch, length] input_ids, int64[batch, length] attention_mask) => (float[batch, 2] logits) {
            axis = Constant <value_ints = [1]> ()
            real = Mul (input_ids, attention_mask)
            total = ReduceSum (real, axis)
            count = ReduceSum (attention_mask, axis)
            both = Concat <axis = 1> (total, count)
            logits = Cast <to = 1> (both)
        }
    """
    onnx.save(onnx.parser.parse_model(body), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_ids_and_mask_go_in_and_logits_come_out(graph: Path) -> None:
    backend = OnnxBackend(graph)
    logits = backend.logits(np.array([[5, 7, 9], [3, 8, 8]]), np.array([[1, 1, 1], [1, 0, 0]]))
    assert logits.dtype == np.float32
    assert logits.tolist() == [[21, 3], [3, 1]]
    assert backend.label_count == 2


def test_threads_are_those_asked_for(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def threads(asked: int | None = None) -> int:
        return OnnxBackend(graph, asked).session.get_session_options().intra_op_num_threads

    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads() == 3
    assert threads(2) == 2
    for value in ("0", "many", ""):
        monkeypatch.setenv("OMP_NUM_THREADS", value)
        assert 1 <= threads() <= (os.cpu_count() or 1)
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    assert threads() == 1


@pytest.mark.parametrize("content", [None, b"", b"no graph"])
def test_a_broken_graph_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "model.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(
        InputError, match=r"model\.onnx: no graph could be loaded: .*; write it again with hgclr export"
    ):
        OnnxBackend(path)


def test_without_onnxruntime_the_extra_is_named(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = backends.require_extra

    def missing(module: str, *, extra: str, capability: str) -> None:
        real("no_such_module" if module == "onnxruntime" else module, extra=extra, capability=capability)

    monkeypatch.setattr(backends, "require_extra", missing)
    with pytest.raises(MissingExtraError, match=r"pip install 'hgclr\[onnx\]'"):
        OnnxBackend(graph)


def test_memory_stays_flat_over_many_shapes(graph: Path) -> None:
    code = (
        "import resource, sys, numpy as np\n"
        "from hgclr.inference.backends import OnnxBackend\n"
        "backend = OnnxBackend(sys.argv[1], threads=1)\n"
        "def run(length):\n"
        "    ids = np.ones((4, length), dtype=np.int64)\n"
        "    backend.logits(ids, ids)\n"
        "run(4000)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for length in range(1, 4000): run(length)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(graph)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 20_000  # kilobytes
