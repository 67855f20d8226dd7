from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hgclr.cli.app import app
from support.published_program import PublishedProgram


@pytest.fixture
def run(make_encoder: Callable[[str], str], tokenizer, tmp_path: Path) -> Callable[..., Result]:
    """Write a checkpoint with the given arguments of the published program and import it."""

    def invoke(**arguments: object) -> Result:
        program = PublishedProgram(tokenizer)
        program.arguments |= arguments
        checkpoint, data = program.write(tmp_path)
        options = ["--data-path", data, "--encoder", make_encoder("bert"), "--output", tmp_path / "out"]
        return CliRunner().invoke(app, ["import-published", *map(str, (checkpoint, *options))])

    return invoke


def test_a_summary_says_what_was_taken_and_where_it_is(run: Callable[..., Result], tmp_path: Path) -> None:
    result = run(lamb=0.05, tau=2)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "7 labels, depth 3",
        "contrastive_weight: 0.05",
        "keep_threshold: 0.2",
        "gumbel_temperature: 2.0",
        "edge_padding: zero",
        f"model: {tmp_path / 'out' / 'model'}",
        f"training model: {tmp_path / 'out' / 'training-model'}",
    ]
    assert result.stderr == ""
    for folder in ("model", "training-model"):
        assert (tmp_path / "out" / folder / "model.safetensors").is_file()
        assert (tmp_path / "out" / folder / "tokenizer.json").is_file()


def test_an_error_is_one_line_and_leaves_nothing_behind(run: Callable[..., Result], tmp_path: Path) -> None:
    result = run(multi=False)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {tmp_path / 'checkpoint_best_macro.pt'}: the checkpoint was trained for one label")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint_best_macro.pt", "data"]
