"""Bulk prediction from a store and into it: the same results as from files, atomic, and resumable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgclr.bulk import BulkResult, files, predict_files
from hgclr.bulk.run import RECORD
from hgclr.cli.app import app
from hgclr.errors import InputError
from hgclr.files import cache_dir
from support.bulk_cases import check_lines, expected, read_lines, write_lines, write_model
from support.object_store import BUCKET, Store

pytestmark = pytest.mark.slow

ROWS = 30


@pytest.fixture(scope="module")
def model(store: Store, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = write_model(tmp_path_factory.mktemp("model") / "model")
    (folder / "training.log").write_text("not part of a model", encoding="utf-8")
    return store.upload(folder, "run/model")


@pytest.fixture
def texts(store: Store, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Three files of texts, in a folder of the store that no other test has."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for part in range(3):
        write_lines(folder / f"part-{part}.jsonl", ROWS * part, ROWS)
    return store.upload(folder, f"{request.node.name}/texts")


def run(*arguments: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    if code == 2:
        assert len(result.stderr.splitlines()) == 1
    return result.stdout + result.stderr


def test_a_model_by_its_url(model: str, store: Store, tmp_path: Path) -> None:
    (row,) = map(json.loads, run("predict", model, "the atom").splitlines())
    assert row["prediction"]["labels"] == expected("the atom")
    assert not list(cache_dir().rglob("training.log"))
    source = store.put("lines/texts.txt", b"atom\njudge\n")
    run("predict", model, "--input", source, "--output", f"{store.url}/lines/out.csv")
    assert store.read("lines/out.csv").decode().splitlines()[1].startswith("atom,science;physics,")
    assert "no such bucket, folder or file" in run("predict", f"{store.url}/none", "atom", code=2)


def test_a_pattern_of_urls_into_a_folder(model: str, texts: str, store: Store, tmp_path: Path) -> None:
    output = texts.replace("/texts", "/out/")
    run("predict", model, "--input", f"{texts}/part-*.jsonl", "--output", output)
    prefix = output.removeprefix(f"{store.url}/")
    assert store.names(prefix) == [RECORD, "part-0.jsonl", "part-1.jsonl", "part-2.jsonl"]
    here = store.download(prefix, tmp_path / "out")
    for part in range(3):
        check_lines(here / f"part-{part}.jsonl", ROWS * part, ROWS)
    assert len(predict_files(model, [texts], output).kept) == 3
    assert "secret" not in (here / RECORD).read_text(encoding="utf-8")
    assert not Path("s3:").exists()


class Stop(Exception):  # noqa: N818
    pass


def test_a_run_that_was_stopped_goes_on(
    model: str, texts: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ROWS", 8)
    output = texts.replace("/texts", "/out")
    prefix = output.removeprefix(f"{store.url}/") + "/"

    def stop(_: Path, rows: int) -> None:
        if rows > 1.5 * ROWS:
            raise Stop

    with pytest.raises(Stop):
        predict_files(model, [texts], output, progress=stop)
    assert store.names(prefix) == [RECORD, "part-0.jsonl"]
    first = store.client.head_object(Bucket=BUCKET, Key=f"{prefix}part-0.jsonl")["LastModified"]
    written, kept = [f"{output}/part-1.jsonl", f"{output}/part-2.jsonl"], [f"{output}/part-0.jsonl"]
    assert predict_files(model, [texts], output) == BulkResult(written, kept, 2 * ROWS)
    assert store.client.head_object(Bucket=BUCKET, Key=f"{prefix}part-0.jsonl")["LastModified"] == first
    for part in range(3):
        check_lines(store.download(prefix, tmp_path / str(part)) / f"part-{part}.jsonl", ROWS * part, ROWS)
    with pytest.raises(InputError) as refused:
        predict_files(model, [texts], output, threshold=0.9)
    assert str(refused.value).startswith(f"{output}: ")

    changed = write_lines(tmp_path / "changed.jsonl", 500, ROWS)
    store.put(texts.removeprefix(f"{store.url}/") + "/part-2.jsonl", changed.read_bytes())
    assert predict_files(model, [texts], output).written == [f"{output}/part-2.jsonl"]
    check_lines(store.download(prefix, tmp_path / "changed") / "part-2.jsonl", 500, ROWS)


def test_files_of_others_bad_rows_and_folders_that_mix(model: str, texts: str, store: Store) -> None:
    prefix = texts.removeprefix(f"{store.url}/").removesuffix("texts")
    store.put(f"{prefix}out/part-1.jsonl", b"mine")
    bad = store.put(f"{prefix}bad.jsonl", b'{"text": "atom"}\n{"text": 3}\n')
    for given, output, place in (
        (texts, f"{store.url}/{prefix}out", f"{store.url}/{prefix}out/part-1.jsonl: "),
        (texts, f"{texts}/out", f"{texts}/out: "),
        (f"{texts}/part-*", texts, f"{texts}: "),
        (bad, f"{store.url}/{prefix}bad", f"{bad}:2: "),
        (f"{texts}/*.csv", f"{store.url}/{prefix}none", f"{texts}/*.csv: "),
    ):
        with pytest.raises(InputError) as refused:
            predict_files(model, [given], output)
        assert str(refused.value).startswith(place)
    assert store.read(f"{prefix}out/part-1.jsonl") == b"mine"


def test_a_connection_that_breaks_in_the_middle(
    model: str, texts: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    import s3fs
    from botocore.exceptions import EndpointConnectionError

    def fail(*_):
        raise EndpointConnectionError(endpoint_url="http://an-id:a-secret@nowhere")

    monkeypatch.setattr(s3fs.core.S3File, "_fetch_range", fail)
    said = run("predict", model, "--input", texts, "--output", f"{texts}-out", code=2)
    assert f"error: {texts}/part-0.jsonl: the store reports EndpointConnectionError" in said
    assert "secret" not in said


def test_on_ray_a_node_needs_nothing_but_urls(
    model: str, texts: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node that labels has another cache folder, to which it downloads the model."""
    pytest.importorskip("ray", reason="needs the extra ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    from support.ray_cluster import ray_cluster

    output = texts.replace("/texts", "/out")
    cache = str(tmp_path / "cache of the node")
    with ray_cluster(nodes=1, HGCLR_CACHE=cache) as cluster:
        result = predict_files(model, [texts], output, engine="ray", ray_address=cluster.address)
    assert result == BulkResult([f"{output}/part-{part}.jsonl" for part in range(3)], [], 3 * ROWS)
    here = store.download(output.removeprefix(f"{store.url}/") + "/", tmp_path / "out")
    for part in range(3):
        assert read_lines(here / f"part-{part}.jsonl")
        check_lines(here / f"part-{part}.jsonl", ROWS * part, ROWS)
    assert list(Path(cache).rglob("model/model.onnx"))
