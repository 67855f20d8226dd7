"""Bulk prediction on Ray: every row is labelled once, even if one of several nodes is killed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="needs the extra ray")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from ray.cluster_utils import Cluster

from hgclr.bulk import files, predict_files
from hgclr.bulk import run as running
from hgclr.bulk.run import answer_in_worker, label_files
from hgclr.cluster import tasks
from hgclr.errors import HGCLRError, InputError
from support import bulk_cases
from support.bulk_cases import check_lines, read_lines, slowly, text_of, write_lines, write_model
from support.ray_cluster import ray_cluster

pytestmark = pytest.mark.slow

ROWS = 1000
FILES = 4


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with ray_cluster(nodes=2) as cluster:
        yield cluster


def test_results_and_errors_are_those_of_the_local_engine(
    cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    model = write_model(tmp_path / "model")
    rows = [text_of(number) for number in range(5)] + [None, "a\ud800"]
    lines = [json.dumps({"text": text, "kept": [place]}) for place, text in enumerate(rows)]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, "broken"]), encoding="utf-8")
    (tmp_path / "empty.jsonl").write_text("", encoding="utf-8")
    (tmp_path / "z.csv").write_text('text,"schön, gut"\natom,"1,5"\n', encoding="utf-8")
    names = [tmp_path / "a.jsonl", tmp_path / "empty.jsonl", tmp_path / "z.csv"]
    options = {"skip_bad_rows": True, "ray_address": cluster.address, "workers": 1}
    predict_files(model, names, tmp_path / "ray", engine="ray", **options)
    predict_files(model, names, tmp_path / "local", skip_bad_rows=True)
    for name in ("a.jsonl", "empty.jsonl", "z.csv"):
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()
    assert len(read_lines(tmp_path / "ray" / "a.jsonl")) == 8

    ray.init(cluster.address, log_to_driver=False)  # one connection for the rest: each has its own processes
    request.addfinalizer(ray.shutdown)
    with pytest.raises(InputError) as refused:
        predict_files(model, names, tmp_path / "strict", engine="ray", ray_address=cluster.address)
    assert (refused.value.path, refused.value.line) == (names[0], 6)
    elsewhere = partial(answer_in_worker, str(tmp_path / "no model"), None, {})
    with (
        pytest.raises(HGCLRError, match=r"on a node of the cluster: .*no model"),
        tasks(elsewhere, on_gpu=False, workers=None, address=cluster.address, kept="finished files") as (submit, ahead),
    ):
        list(label_files(names[:1], ["text"], submit, ahead))


def test_a_node_dies_and_every_row_is_there_once(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ROWS", 64)
    monkeypatch.setattr(running, "answer_in_worker", slowly)
    ray.cloudpickle.register_pickle_by_value(bulk_cases)
    model = write_model(tmp_path / "model")
    source = tmp_path / "texts"
    source.mkdir()
    for part in range(FILES):
        write_lines(source / f"part-{part}.jsonl", ROWS * part, ROWS)
    before: list[dict[str, object]] = []  # chunks labelled when a node was killed

    def kill(_: Path, rows: int) -> None:
        if not before and rows >= ROWS // 2:
            before.extend(read_lines(tmp_path / "blocks.jsonl"))
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)

    options = {"engine": "ray", "ray_address": cluster.address, "progress": kill}
    result = predict_files(model, [source], tmp_path / "out", **options)

    assert (result.rows, result.bad_rows, len(result.written)) == (ROWS * FILES, 0, FILES)
    for part in range(FILES):
        check_lines(tmp_path / "out" / f"part-{part}.jsonl", ROWS * part, ROWS)
    # The places where chunks were labelled show that both nodes worked in the middle of the run.
    assert len({block["node"] for block in before}) == 2
    assert sum(block["texts"] for block in before) < ROWS * FILES * 0.9
    after = read_lines(tmp_path / "blocks.jsonl")[len(before) :]
    assert len({block["node"] for block in after[-10:]}) == 1


def test_no_cluster_is_one_line(tmp_path: Path) -> None:
    model, path = write_model(tmp_path / "model"), write_lines(tmp_path / "texts.jsonl", 0, 1)
    with pytest.raises(HGCLRError, match=r"no Ray cluster at nowhere"):
        predict_files(model, [path], tmp_path / "out", engine="ray", ray_address="nowhere")
