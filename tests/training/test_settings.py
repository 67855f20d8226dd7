"""Settings of a run, the files in configs/, and the recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hgclr.config import PRESETS, method_settings
from hgclr.errors import InputError
from hgclr.models import HGCLRConfig
from hgclr.training import RunConfig
from hgclr.training.recipe import make_recipe
from hgclr.training.settings import TrainingSettings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text("data:\n  path: documents\nmodel:\n  keep_fraction: 0.4\ntraining:\n  seed: 2\n")
    return path


def test_a_file_and_overrides(file: Path) -> None:
    run = RunConfig.read(
        file, ["training.seed=7", "training.learning_rate=3e-5", "model.encoder=bert", "data.limit=null"]
    )
    assert (run.training.seed, run.training.learning_rate, run.model.encoder) == (7, 3e-5, "bert")
    assert run.model.overrides == {"keep_fraction": 0.4}
    assert run.output == Path("runs/mine")
    assert RunConfig.read(file, output="elsewhere").output == Path("elsewhere")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.sead=1", "training.sead: unknown setting; did you mean 'seed'?"),
        ("data.texts=1", "data.texts: unknown setting; known are path, taxonomy, text_column"),
        ("trainin.seed=1", "trainin: unknown setting; did you mean 'training'?"),
        ("training.epochs=0", "training.epochs: input should be greater than or equal to 1 (got 0)"),
        ("training.recipe=fast", "training.recipe: input should be 'default' or 'paper' (got 'fast')"),
        ("training.seed", "--set 'training.seed' is no key=value; write for example --set training.seed=3"),
        ("data.path.x=1", "'path' is no section"),
    ],
)
def test_a_wrong_setting_is_named(file: Path, override: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        RunConfig.read(file, [override])
    assert message in str(caught.value)


def test_all_mistakes_of_a_file_are_named(file: Path) -> None:
    file.write_text("data:\n  path: documents\n  limt: 3\ntraining:\n  epochs: 0\n")
    with pytest.raises(InputError, match=r"mine\.yaml: data\.limt: .*; training\.epochs: ") as caught:
        RunConfig.read(file)
    assert "\n" not in str(caught.value)
    file.write_text(
        "data:\n  path: documents\n  limt: 3\n"
        "model:\n  keep_fractoin: 0.3\n  label_dropout: 1.5\n  keep_fraction: null\n  keep_threshold: 0.1\n"
    )
    with pytest.raises(InputError) as caught:
        RunConfig.read(file)
    assert caught.value.path == file
    for name, found in {"limt": 1, "keep_fractoin": 1, "label_dropout": 1, "keep_threshold": 0}.items():
        assert str(caught.value).count(name) == found


def test_broken_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    with pytest.raises(InputError, match=r"broken\.yaml: no such file or folder"):
        RunConfig.read(path)
    path.write_text("data:\n  path: [1\nmodel: 2\n")
    with pytest.raises(InputError, match=r"broken\.yaml:3: no valid YAML"):
        RunConfig.read(path)
    path.write_text("just words")
    with pytest.raises(InputError, match="expected the sections data, model, training"):
        RunConfig.read(path)
    path.write_text("model: {}")
    with pytest.raises(InputError, match="data: field required"):
        RunConfig.read(path)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"keep_fractoin": 0.3}, "unknown model setting 'keep_fractoin'; did you mean 'keep_fraction'?"),
        ({"label_dropout": 1.5}, "label_dropout is 1.5; give a share from 0 to below 1"),
        ({"keep_fraction": 0.0}, "keep_fraction is 0.0; give a share up to 1"),
        ({"keep_fraction": None}, "keep_threshold is None and keep_fraction is None; set one of them"),
        ({"keep_fraction": 0.5, "keep_threshold": 0.1}, "keep_threshold is 0.1 and keep_fraction is 0.5"),
        ({"contrastive_temperature": 0.0}, "contrastive_temperature is 0.0; give a positive number"),
        ({"label_heads": 0}, "label_heads is 0"),
        ({"threshold": 1.0}, "threshold is 1.0; give a probability between 0 and 1"),
        ({"contrastive_weight": -1.0}, "contrastive_weight is -1.0; give 0 or more"),
        ({"guidance": "magic"}, "guidance"),
        ({"keep_at_least": "many"}, "keep_at_least"),
        ({"label_parents": [1]}, "unknown model setting 'label_parents'"),
    ],
)
def test_a_wrong_model_setting_is_named(overrides: dict, message: str) -> None:
    with pytest.raises(InputError) as caught:
        method_settings("default", overrides)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_rule_of_keeping_replaces_the_other() -> None:
    assert method_settings("paper", {"keep_fraction": 0.3})["keep_threshold"] is None
    assert method_settings("default", {"keep_threshold": 0.3})["keep_fraction"] is None


def test_a_whole_number_does_for_a_float_but_not_the_other_way_round() -> None:
    settings = method_settings("default", {"contrastive_weight": 0, "keep_fraction": 1, "label_layers": 2})
    assert [type(settings[name]) for name in ("contrastive_weight", "keep_fraction", "label_layers")] == [
        float,
        float,
        int,
    ]
    with pytest.raises(InputError, match="label_layers"):
        method_settings("default", {"label_layers": 2.0})


def test_the_papers_recipe_is_the_papers() -> None:
    recipe = make_recipe(TrainingSettings(recipe="paper"), documents=30_070, encoder_parameters=86_000_000)
    assert (recipe.batch_size, recipe.learning_rate, recipe.head_learning_rate) == (12, 3e-5, 3e-5)
    assert (recipe.warmup, recipe.schedule, recipe.max_gradient_norm) == (2000, "constant", 0.0)
    assert (recipe.weight_decay, recipe.base_rate_bias) == (0.0, False)
    assert TrainingSettings().patience == 6


@pytest.mark.parametrize(
    ("documents", "parameters", "rate", "epochs"),
    [(300, 10.6e6, 3e-4, 30), (1500, 10.6e6, 3e-4, 8), (30_000, 85e6, 3.88e-5, 5), (30_000, 300e6, 1.1e-5, 5)],
)
def test_the_default_recipe_follows_the_sizes(documents: int, parameters: float, rate: float, epochs: int) -> None:
    recipe = make_recipe(TrainingSettings(), documents=documents, encoder_parameters=int(parameters))
    assert recipe.learning_rate == pytest.approx(rate, rel=0.01)
    assert recipe.head_learning_rate == pytest.approx(3e-3), "a head starts anew on an encoder of any size"
    assert recipe.epochs == epochs
    named = make_recipe(TrainingSettings(), documents=documents, encoder_parameters=int(parameters), from_names=True)
    assert named.epochs == max(5, round(300 / recipe.steps_per_epoch)), "a head that knows the names needs fewer steps"
    own = make_recipe(TrainingSettings(), documents=documents, encoder_parameters=int(parameters), head_rate=1.0)
    assert own.head_learning_rate == own.learning_rate == recipe.learning_rate
    chosen = TrainingSettings(learning_rate=1e-5)
    recipe = make_recipe(chosen, documents=documents, encoder_parameters=int(parameters))
    assert recipe.head_learning_rate == pytest.approx(1e-4)
    assert recipe.steps_per_epoch == -(-documents // 16)


@pytest.mark.parametrize(
    ("documents", "length", "batch_size", "rate"),
    [
        (47_000, 11, 64, 6e-4),
        (10_000, 16, 64, 6e-4),
        (10_000, 17, 32, 4.24e-4),
        (9_999, 11, 16, 3e-4),
        (10**6, 33, 16, 3e-4),
    ],
)
def test_batches_of_many_short_documents_are_larger(
    documents: int, length: float, batch_size: int, rate: float
) -> None:
    sizes: dict[str, Any] = {"documents": documents, "encoder_parameters": 11_000_000, "mean_length": length}
    recipe = make_recipe(TrainingSettings(), **sizes)
    assert recipe.batch_size == batch_size
    assert recipe.steps_per_epoch == -(-documents // batch_size)
    assert recipe.learning_rate == pytest.approx(rate, rel=0.01)
    assert recipe.head_learning_rate == pytest.approx(10 * rate, rel=0.01)
    own = make_recipe(TrainingSettings(batch_size=16, learning_rate=1e-5), **sizes)
    assert (own.batch_size, own.learning_rate, own.head_learning_rate) == (16, 1e-5, 1e-4), "what is set stands"
    for settings in (TrainingSettings(batch_size=16), TrainingSettings(gradient_accumulation=4)):
        assert make_recipe(settings, **sizes).learning_rate == 3e-4
    assert make_recipe(TrainingSettings(recipe="paper"), **sizes).batch_size == 12
    assert make_recipe(TrainingSettings(), **sizes, pretrained=False).batch_size == 16


def test_what_a_run_writes_can_be_read_also_when_it_starts_from_a_model(tmp_path: Path) -> None:
    for model in ({"architecture": "flat"}, {"start": "runs/first/training-model"}):
        run = RunConfig.build({"data": {"path": "d"}, "model": dict(model), "output": "o"}, ["training.seed=3"])
        run.write(tmp_path / "config.yaml")
        again = RunConfig.read(tmp_path / "config.yaml")
        assert (again.model.start, again.model.architecture, again.training.seed) == (
            run.model.start,
            run.model.architecture,
            3,
        )


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_but_the_default_trains_hgclr(preset: str) -> None:
    run = RunConfig.build({"data": {"path": "d"}, "model": {"preset": preset}, "output": "o"})
    assert run.model.architecture == ("flat" if preset == "default" else "hgclr")


def test_the_preset_hgclr_is_the_default_with_another_architecture() -> None:
    default, hgclr = (
        RunConfig.build({"data": {"path": "d"}, "model": {"preset": preset}, "output": "o"})
        for preset in ("default", "hgclr")
    )
    assert method_settings("hgclr", {}) == method_settings("default", {})
    assert hgclr.uses_label_documents is default.uses_label_documents is True
    assert hgclr.resolved_training == default.resolved_training
    with pytest.raises(InputError):
        RunConfig.build({"data": {"path": "d"}, "model": {"preset": "hgclr", "architecture": "flat"}, "output": "o"})


CONFIGS = Path(__file__).parents[2] / "configs"
FILES = sorted(CONFIGS.rglob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_a_config_is_valid(path: Path) -> None:
    run = RunConfig.read(path)
    HGCLRConfig(**method_settings(run.model.preset, run.model.overrides))


@pytest.mark.parametrize(
    ("name", "weight", "threshold"),
    [
        ("paper/wos", 0.1, 0.02),
        ("paper/nyt", 0.3, 0.005),
        ("paper/rcv1", 0.1, 0.005),
        ("published/wos", 0.05, 0.02),
        ("published/nyt", 0.3, 0.002),
        ("published/rcv1", 0.3, 0.001),
    ],
)
def test_lambda_and_gamma(name: str, weight: float, threshold: float) -> None:
    run = RunConfig.read(CONFIGS / f"{name}.yaml")
    config = HGCLRConfig(**method_settings(run.model.preset, run.model.overrides))
    assert (config.contrastive_weight, config.keep_threshold, config.keep_fraction) == (weight, threshold, None)
    assert run.model.encoder == "bert-base-uncased"
    assert run.training.recipe == "paper"
