"""Whole runs on toy data: learning, determinism, resuming, saving, what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerCallback

from hgclr.errors import HGCLRError, InputError
from hgclr.inference import HierarchicalClassifier
from hgclr.training import RunConfig, train
from hgclr.training.run import TrainingResult
from support.short_runs import StopWhenLearned, tiny_set, without_dropout


def make_run(encoder: str, data: Path, output: Path, model: dict | None = None, **training) -> RunConfig:
    return RunConfig.model_validate(
        {
            "data": {"path": data},
            "model": {"encoder": encoder, "architecture": "hgclr", "label_heads": 4} | (model or {}),
            "training": {"epochs": 2, "learning_rate": 3e-3, "precision": "fp32", "seed": 3} | training,
            "output": output,
        }
    )


def weights(output: Path) -> dict[str, torch.Tensor]:
    return load_file(output / "training-model" / "model.safetensors")


@pytest.fixture
def encoder(make_encoder) -> str:
    return make_encoder("bert")


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "pooling"), [("flat", "cls"), ("hgclr", "mean")])
def test_a_tiny_set_is_learned_whole(
    encoder: str, toy_data: Path, tmp_path: Path, architecture: str, pooling: str
) -> None:
    """Train and dev are the same documents, so that perfect scores mean that they were learned."""
    data = tiny_set(toy_data, tmp_path / "data")
    still = without_dropout(encoder, tmp_path / "still")
    model = {"architecture": architecture, "pooling": pooling, "keep_at_least": 2, "classifier_dropout": 0.0}
    training = {"epochs": 25, "patience": 25, "batch_size": 8, "learning_rate": 6e-3}
    run = make_run(still, data, tmp_path / "run", model, **training)
    metrics = train(run, callbacks=[StopWhenLearned()]).metrics
    assert metrics["dev"]["micro"]["f1"] == 1.0
    assert metrics["dev"]["macro"]["f1"] == 1.0
    assert "test" not in metrics


@pytest.fixture(scope="module")
def trained(make_encoder, toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    """A run that has learned the toys, which is soon done from the mean of a random encoder's tokens."""
    output = tmp_path_factory.mktemp("trained") / "run"
    return train(make_run(make_encoder("bert"), toy_data, output, {"pooling": "mean"}, epochs=6))


def test_train_takes_a_data_folder_or_a_yaml_file(encoder: str, toy_data: Path, tmp_path: Path) -> None:
    settings = [f"model.encoder={encoder}", "training.effort=names"]
    first = train(toy_data, output=tmp_path / "first", settings=settings)
    again = train(
        str(tmp_path / "first" / "config.yaml"), output=str(tmp_path / "again"), settings=["data.test_limit=3"]
    )
    assert first.metrics["run"]["training"]["effort"] == again.metrics["run"]["training"]["effort"] == "names"
    assert (first.metrics["documents"]["test"], again.metrics["documents"]["test"]) == (24, 3)
    with pytest.raises(TypeError):
        train(RunConfig.read(tmp_path / "first" / "config.yaml"), output=tmp_path / "other")


@pytest.mark.slow
def test_train_save_load_predict(encoder: str, toy_data: Path, trained: TrainingResult) -> None:
    result, output = trained, trained.model.parent
    classifier = HierarchicalClassifier.load(result.model)
    (prediction,) = classifier.predict(["the lens of a prism mirror"], rule="closure")
    assert [label.id for label in prediction.labels] == ["science", "physics", "optics"]
    assert prediction.labels[-1].path == ("science", "physics", "optics")
    assert {path.suffix for path in result.model.iterdir()} == {".json", ".safetensors"}
    saved = json.loads((output / "metrics.json").read_text())
    assert saved == json.loads(json.dumps(result.metrics))
    assert saved["documents"] == {"train": 96, "dev": 24, "test": 24}
    assert saved["precision"] == "fp32"
    assert {"commit", "packages", "processor"} <= set(saved["machine"])
    assert RunConfig.read(output / "config.yaml") == make_run(encoder, toy_data, output, {"pooling": "mean"}, epochs=6)


@pytest.mark.slow
def test_history_and_tensorboard_have_scores_loss_terms_and_the_kept_share(
    encoder: str, toy_data: Path, tmp_path: Path
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    model = {"keep_fraction": 0.5, "keep_at_least": 0, "keep_special_tokens": False}
    history = train(make_run(encoder, toy_data, tmp_path / "run", model, tensorboard=True)).metrics["history"]
    assert [row["epoch"] for row in history] == [1.0, 2.0]
    for row in history:
        total = row["loss_original"] + row["loss_positive"] + 0.1 * row["loss_contrastive"]
        assert row["loss"] == pytest.approx(total, rel=1e-3)
        assert 0.5 <= row["kept"] < 0.6  # half of each text, rounded up
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    tags = set(events.Tags()["scalars"])
    assert {f"train/{n}" for n in ("loss", "loss_original", "loss_positive", "loss_contrastive", "kept")} <= tags
    assert len(events.Scalars("eval/macro_f1")) == 2


@pytest.mark.slow
def test_one_seed_gives_the_same_weights_and_another_does_not(encoder: str, toy_data: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        run = make_run(encoder, toy_data, tmp_path / name, seed=seed, epochs=1)
        run.data.limit, run.data.dev_limit, run.data.test_limit = 48, 8, 2
        train(run)
    first, second, other = (weights(tmp_path / name) for name in "abc")
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


class Kill(TrainerCallback):
    """Stop the process, as far as a test can, in the middle of an epoch."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args, state, control, **kwargs) -> None:
        if state.global_step == self.step:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def whole_and_cut(make_encoder, toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of three epochs, and with one that was stopped in its third."""
    folder, encoder = tmp_path_factory.mktemp("runs"), make_encoder("bert")
    train(three_epochs(encoder, toy_data, folder / "whole"))
    with pytest.raises(KeyboardInterrupt):
        train(three_epochs(encoder, toy_data, folder / "cut"), callbacks=[Kill(10)])
    return folder


def three_epochs(encoder: str, data: Path, output: Path) -> RunConfig:
    """A run of four steps an epoch."""
    run = make_run(encoder, data, output, epochs=3)
    run.data.limit, run.data.dev_limit, run.data.test_limit = 48, 8, 2
    return run


@pytest.mark.slow
@pytest.mark.parametrize("damage", [False, True])
def test_a_killed_run_goes_on_to_the_same_weights(
    encoder: str, toy_data: Path, tmp_path: Path, whole_and_cut: Path, damage: bool
) -> None:
    cut = shutil.copytree(whole_and_cut / "cut", tmp_path / "cut")
    newest = cut / "checkpoints" / "checkpoint-8"
    assert newest.is_dir()
    if damage:  # killed while it wrote its newest checkpoint: the one before must do
        (newest / "COMPLETE").unlink()
        (newest / "model.safetensors").write_bytes(b"half")
    train(three_epochs(encoder, toy_data, cut), resume=True)
    whole, resumed = weights(whole_and_cut / "whole"), weights(cut)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    histories = [json.loads((run / "metrics.json").read_text())["history"] for run in (whole_and_cut / "whole", cut)]
    assert histories[0] == histories[1]


@pytest.mark.slow
def test_gradient_accumulation_equals_the_larger_batch(encoder: str, toy_data: Path, tmp_path: Path) -> None:
    """Without dropout and without in-batch negatives, two halves of a batch must give the whole batch's step."""
    still = without_dropout(encoder, tmp_path / "still")
    model = {"architecture": "flat", "classifier_dropout": 0.0, "encoder": still}
    rate = {"epochs": 1, "learning_rate": 1e-3}
    train(make_run(encoder, toy_data, tmp_path / "one", model, batch_size=16, **rate))
    train(make_run(encoder, toy_data, tmp_path / "two", model, batch_size=8, gradient_accumulation=2, **rate))
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name in one:
        torch.testing.assert_close(two[name], one[name], atol=2e-5, rtol=1e-3)


@pytest.mark.slow
def test_a_missing_dev_split_can_be_held_out_of_train(encoder: str, toy_data: Path, tmp_path: Path) -> None:
    data = shutil.copytree(toy_data, tmp_path / "data")
    (data / "dev.jsonl.gz").unlink()
    run = make_run(encoder, data, tmp_path / "run", epochs=1)
    with pytest.raises(InputError, match=r"no dev split .* data\.dev_share=0\.1"):
        train(run)
    assert not (tmp_path / "run" / "checkpoints").exists()
    run.data.dev_share = 0.25
    assert train(run).metrics["documents"] == {"train": 72, "dev": 24, "test": 24}


@pytest.mark.slow
def test_bad_rows_stop_a_run_or_are_kept_aside(encoder: str, toy_data: Path, tmp_path: Path) -> None:
    data = shutil.copytree(toy_data, tmp_path / "data")
    (data / "dev.jsonl.gz").unlink()
    rows = ['{"text": "atom", "labels": ["science"]}', '{"text": "atom", "labels": ["no such"]}']
    (data / "dev.jsonl").write_text("\n".join(rows))
    run = make_run(encoder, data, tmp_path / "run", epochs=1)
    with pytest.raises(InputError, match=r"dev\.jsonl:2: unknown label 'no such'"):
        train(run)
    run.data.skip_bad_rows = True
    assert train(run).metrics["documents"]["dev"] == 1
    (record,) = (tmp_path / "run" / "bad-rows.dev.jsonl").read_text().splitlines()
    assert json.loads(record)["row"] == 2


@pytest.mark.slow
def test_training_on_starts_where_the_first_run_ended(
    encoder: str, toy_data: Path, tmp_path: Path, trained: TrainingResult
) -> None:
    first = trained
    settings = {
        "data": {"path": toy_data},
        "model": {"start": first.training_model, "contrastive_weight": 0.2},
        "training": {"epochs": 1, "learning_rate": 1e-7, "precision": "fp32"},
        "output": tmp_path / "second",
    }
    second = train(RunConfig.model_validate(settings))
    assert second.metrics["dev_at_0.5"]["micro"]["f1"] == pytest.approx(
        first.metrics["dev_at_0.5"]["micro"]["f1"], abs=0.02
    )
    config = json.loads((second.training_model / "config.json").read_text())
    assert config["contrastive_weight"] == 0.2
    with pytest.raises(ValueError, match="the encoder comes with the model"):
        RunConfig.model_validate(settings | {"model": {"start": first.model, "encoder": encoder}})


@pytest.mark.slow
def test_a_loss_that_is_not_finite_stops_the_run(encoder: str, toy_data: Path, tmp_path: Path) -> None:
    run = make_run(encoder, toy_data, tmp_path / "run", epochs=3, learning_rate=1e25, max_gradient_norm=0)
    with pytest.raises(HGCLRError, match=r"the loss is (nan|inf) after step \d"):
        train(run)
    assert not list((tmp_path / "run" / "checkpoints").glob("checkpoint-*"))
