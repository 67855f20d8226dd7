"""Data folders and models in a store: the commands that take a folder take its URL."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from typer.testing import CliRunner

from hgclr.cli.app import app
from hgclr.data import DataFolder
from hgclr.errors import InputError
from hgclr.training import RunConfig, train
from support.object_store import Store
from support.short_runs import make_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(store: Store, toy_data: Path) -> str:
    return store.upload(toy_data, "toy")


def run(*arguments: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    return result.stdout + result.stderr


def test_a_bad_row_is_named_by_its_url(store: Store, toy_data: Path) -> None:
    store.put("bad/taxonomy.tsv", (toy_data / "taxonomy.tsv").read_bytes())
    url = store.put(
        "bad/train.jsonl", b'{"text": "a lens", "labels": ["science"]}\n{"text": "b", "labels": ["none"]}\n'
    )
    with pytest.raises(InputError, match=rf"^{url}:2: "):
        list(DataFolder(f"{store.url}/bad").documents("train"))


def test_a_tree_of_its_own_and_settings_in_the_store(store: Store, data: str, toy_data: Path, tmp_path: Path) -> None:
    tree = store.put("trees/tree.tsv", (toy_data / "taxonomy.tsv").read_bytes())
    assert DataFolder(data, taxonomy=tree).taxonomy == DataFolder(toy_data).taxonomy
    file = store.put("settings/run.yaml", f"data:\n  path: {data}\n  taxonomy: {tree}\n".encode())
    settings = RunConfig.read(file)
    assert settings.output == Path("runs/run")
    assert RunConfig.read(data).output == Path("runs/toy")
    settings.write(tmp_path / "config.yaml")
    written = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert written["data"] == {"path": data, "taxonomy": tree, "skip_bad_rows": False}
    assert RunConfig.read(tmp_path / "config.yaml") == settings


def test_training_from_a_store_is_training_from_files(
    store: Store, data: str, toy_data: Path, make_encoder, tmp_path: Path
) -> None:
    encoder = make_encoder("bert")
    run_here = make_run(encoder, toy_data, tmp_path / "here")
    here = train(run_here)
    url = store.upload(Path(run_here.model.encoder), "encoder")
    there = train(make_run(encoder, data, tmp_path / "there", model__encoder=url))
    weights = load_file(here.model / "model.safetensors")
    for name, weight in load_file(there.model / "model.safetensors").items():
        torch.testing.assert_close(weight, weights[name], rtol=0, atol=0, msg=name)
    assert there.metrics["run"]["data"]["path"] == data
    for file in (tmp_path / "there").glob("*.*"):
        assert "secret" not in file.read_text(encoding="utf-8")
        assert "s3:/t" not in file.read_text(encoding="utf-8")

    model = store.upload(there.model, "trained/model")
    said = run("evaluate", model, data, "--json", tmp_path / "scores.json", "--limit", "8")
    assert f"{model} on {data}, 8 documents" in said.replace("\n", " ").replace("  ", " ")
    assert json.loads((tmp_path / "scores.json").read_text())["data"] == data
    said = run("calibrate", model, data, code=2)
    assert model in said
    on = make_run(encoder, toy_data, tmp_path / "on").model_dump(exclude_unset=True)
    on["model"] = {"start": store.upload(there.training_model, "trained/training-model")}
    assert train(RunConfig.model_validate(on)).metrics["run"]["model"]["start"] == on["model"]["start"]


@pytest.mark.parametrize(
    ("change", "url", "message"),
    [
        ({}, "s3://no-bucket/toy", "no such bucket"),
        (
            {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
            "s3://a-bucket/toy",
            "the store reports NoCred",
        ),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "s3://a-bucket/toy", "the store reports Endpoint"),
    ],
)
def test_errors_of_the_store_are_one_line(
    store: Store, monkeypatch: pytest.MonkeyPatch, change: dict[str, str], url: str, message: str
) -> None:
    import s3fs

    for name, value in change.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)
    s3fs.S3FileSystem.clear_instance_cache()
    said = run("data", "check", url, code=2)
    s3fs.S3FileSystem.clear_instance_cache()
    assert said.startswith(f"error: {url}: {message}")
    assert len(said.splitlines()) == 1


def test_a_table_in_the_store_is_imported(store: Store, tmp_path: Path) -> None:
    rows = [f"{word} {number},{path}" for number in range(20) for word, path in (("atom", "a > b"), ("judge", "c > d"))]
    url = store.put("tables/tickets.csv", "\n".join(["text,labels", *rows]).encode())
    said = run("data", "import", url, "--output", tmp_path / "data")
    assert "read 40 rows" in said
    assert sorted(DataFolder(tmp_path / "data").splits) == ["dev", "test", "train"]
