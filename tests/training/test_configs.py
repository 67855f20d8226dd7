"""The files in configs/ are valid and say what the paper and the published program say."""

from __future__ import annotations

from pathlib import Path

import pytest

from hgclr.config import method_settings
from hgclr.models import HGCLRConfig
from hgclr.training import RunConfig

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
