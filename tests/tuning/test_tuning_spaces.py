"""What may be searched: the grid's values, the default space, and files that are refused with the key."""

from __future__ import annotations

from pathlib import Path

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from hgclr.errors import InputError
from hgclr.training import RunConfig
from hgclr.training.core import count_parameters
from hgclr.training.run import new_model
from hgclr.training.settings import default_rate
from hgclr.tuning.space import default_space, describe, grid, read_space

CONFIGS = Path(__file__).parents[2] / "configs"


def make_run(model: dict | None = None, training: dict | None = None, data: Path = Path("data")) -> RunConfig:
    return RunConfig.model_validate(
        {
            "data": {"path": data},
            "model": {"architecture": "hgclr"} | (model or {}),
            "training": training or {},
            "output": "out",
        }
    )


@pytest.mark.parametrize("path", sorted([*CONFIGS.glob("paper/*"), *CONFIGS.glob("published/*")]), ids=str)
def test_the_grid_contains_what_paper_and_program_settled_on(path: Path) -> None:
    run = RunConfig.read(path)
    points = grid(run).points
    assert points is not None
    assert run.model.overrides["contrastive_weight"] in points["model.contrastive_weight"]
    assert run.model.overrides["keep_threshold"] in points["model.keep_threshold"]


def test_a_grid_keeps_tokens_by_the_rule_of_the_config_unless_told() -> None:
    assert list(grid(make_run()).points or {})[1] == "model.keep_fraction"
    assert list(grid(make_run({"preset": "paper"})).points or {})[1] == "model.keep_threshold"
    by_gamma = grid(make_run(), gammas=[0.1, 0.2])
    assert (by_gamma.points, by_gamma.size) == (
        {"model.contrastive_weight": [0.05, 0.1, 0.3], "model.keep_threshold": [0.1, 0.2]},
        6,
    )
    assert grid(make_run({"keep_threshold": 0.1}), lambdas=[0], fractions=[1]).size == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gammas": [0.1], "fractions": [0.5]}, "gammas and fractions are both given"),
        (
            {"lambdas": [0.1, 0.2, 0.1]},
            r"model\.contrastive_weight is to be tried twice with 0\.1; give each value once",
        ),
        ({"lambdas": [-1.0]}, r"model\.contrastive_weight: contrastive_weight is -1\.0; give 0 or more"),
        ({"fractions": [1.5]}, r"model\.keep_fraction: keep_fraction is 1\.5"),
        ({"gammas": []}, r"model\.keep_threshold has no value to try"),
    ],
)
def test_a_bad_grid_is_refused(options: dict[str, list[float]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        grid(make_run(), **options)


def test_other_architectures_have_no_lambda_and_no_default_space() -> None:
    flat = make_run({"architecture": "flat"})
    with pytest.raises(InputError, match="'flat' has neither lambda nor gamma"):
        grid(flat)
    with pytest.raises(InputError, match="'flat' has no default space; describe what to search in a file"):
        default_space(flat)


def test_the_default_space_is_around_the_recipe(make_encoder, toy_data: Path) -> None:
    run = make_run({"encoder": make_encoder("bert")}, data=toy_data)
    model, _, _ = new_model(run)
    rate = default_rate(count_parameters(model.encoder))
    space = default_space(run).space
    assert space["training.learning_rate"] == FloatDistribution(rate / 4, rate * 4, log=True)
    assert space["model.keep_at_least"] == IntDistribution(0, 24, step=4)
    given = default_space(make_run({"preset": "paper"}, {"learning_rate": 2e-5})).space
    assert given["training.learning_rate"] == FloatDistribution(5e-6, 8e-5, log=True)
    assert not {"model.keep_fraction", "model.keep_at_least"} & set(given)
    assert "model.keep_threshold" in given


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "space.yaml"
    path.write_text(text)
    return path


def test_a_file_gives_ranges_and_choices(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "model.contrastive_weight: {low: 0.003, high: 1, log: true}\n"
        "model.keep_at_least: {low: 0, high: 24, step: 4}\n"
        "model.keep_fraction: {low: 0.25, high: 1, step: 0.25}\n"
        "model.positives: {choices: [hierarchy, dropout]}\n"
        "training.learning_rate: {low: 3e-5, high: 3e-4, log: true}\n"
        "training.batch_size: {choices: [8, 16]}\n"
        "model.contrastive_temperature: {choices: [1, 0.5]}\n",
    )
    search = read_space(path, make_run({"preset": "paper", "keep_threshold": 0.02}))
    assert search.points is None
    assert search.space == {
        "model.contrastive_weight": FloatDistribution(0.003, 1.0, log=True),
        "model.keep_at_least": IntDistribution(0, 24, step=4),
        "model.keep_fraction": FloatDistribution(0.25, 1.0, step=0.25),
        "model.positives": CategoricalDistribution(["hierarchy", "dropout"]),
        "training.learning_rate": FloatDistribution(3e-5, 3e-4, log=True),
        "training.batch_size": CategoricalDistribution([8, 16]),
        "model.contrastive_temperature": CategoricalDistribution([1.0, 0.5]),
    }
    temperatures = search.space["model.contrastive_temperature"]
    assert isinstance(temperatures, CategoricalDistribution)
    assert [type(choice) for choice in temperatures.choices] == [float, float]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "model.contrastive_wait: {low: 0, high: 1}",
            r"model\.contrastive_wait: unknown model setting .*'contrastive_w",
        ),
        ("training.learning_rat: {low: 0.1, high: 1}", r"training\.learning_rat: unknown setting"),
        ("model.label_parents: {choices: [1]}", r"model\.label_parents: unknown model setting"),
        ("data.limit: {low: 1, high: 9}", r"data\.limit: is not to be searched; .* other data cannot be compared"),
        ("output: {choices: [a]}", "output: is not to be searched"),
        ("training.seed: {low: 1, high: 9}", r"training\.seed: a seed is no setting to choose; .*--seeds"),
        (
            "model.keep_fraction: {low: 0.5, high: 2}",
            r"model\.keep_fraction: keep_fraction is 2\.0; give a share up to 1",
        ),
        ("model.keep_fraction: {low: 0.5, high: 0.5}", r"model\.keep_fraction: low is 0\.5, not below high"),
        ("model.keep_fraction: {low: 0.5}", r"model\.keep_fraction: expected low and high"),
        ("model.keep_fraction: {low: 0.5, high: 1, stop: 2}", r"model\.keep_fraction: expected low and high"),
        ("model.keep_fraction: 0.5", r"model\.keep_fraction: expected low and high, .* got 0\.5"),
        ("model.keep_fraction: {low: half, high: 1}", r"model\.keep_fraction: 'half' is no number"),
        ("model.keep_fraction: {low: 0.1, high: 1, log: 1}", r"model\.keep_fraction: log is 1; give true or false"),
        ("model.keep_at_least: {low: 0.5, high: 4}", r"model\.keep_at_least: 0\.5 is no whole number"),
        (
            "model.contrastive_weight: {low: 0, high: 1, log: true}",
            r"model\.contrastive_weight: log needs a low above 0",
        ),
        ("model.keep_at_least: {low: 1, high: 9, step: 2, log: true}", r"model\.keep_at_least: log needs .* no step"),
        ("model.keep_at_least: {low: 1, high: 9, step: 0}", r"model\.keep_at_least: step is 0; give a positive number"),
        ("model.positives: {low: 0, high: 1}", r"model\.positives: is no number and has no range; give choices"),
        ("model.positives: {choices: []}", r"model\.positives: choices is no list of values"),
        ("model.positives: {choices: [dropout, some]}", r"model\.positives: .*some"),
        ("training.schedule: {choices: [linear, cosine]}", r"training\.schedule: .*'linear' or 'constant'"),
        ("training.epochs: {low: 0, high: 4}", r"training\.epochs: .*greater than or equal to 1"),
        (
            "model.keep_fraction: {low: 0.1, high: 1}\nmodel.keep_threshold: {low: 0.1, high: 1}",
            "the settings do not fit together: keep_threshold is 0.1 and keep_fraction is 0.1",
        ),
        ("[1, 2]", "expected settings with their ranges; write model.keep_fraction"),
        ("a: {", r"space\.yaml:1: no valid YAML"),
    ],
)
def test_a_bad_file_is_refused_with_the_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_space(write(tmp_path, text), make_run())
    assert str(caught.value).startswith(str(tmp_path / "space.yaml"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.yaml: no such file or folder"):
        read_space(tmp_path / "none.yaml", make_run())


def test_parameters_are_told_by_the_papers_symbols() -> None:
    parameters = {"model.contrastive_weight": 0.1, "model.keep_threshold": 0.02, "model.positives": "dropout"}
    assert describe(parameters) == "lambda 0.1, gamma 0.02, positives dropout"
