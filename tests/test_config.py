"""Settings that contradict each other are refused; others work with every preset."""

from __future__ import annotations

from typing import Any

import pytest

from hgclr.config import method_settings
from hgclr.errors import InputError
from hgclr.models import HGCLRConfig


@pytest.mark.parametrize(
    "overrides",
    [
        {"positives": "random", "keep_threshold": 0.02},
        {"label_encoder": "none", "label_embedding": False, "name_embedding": "none"},
        {"label_encoder": "gcn", "label_layers": 2},
        {"adversarial_size": -1.0},
        {"positives": "guessed"},
        {"label_encoder": "gin"},
    ],
)
def test_contradictions_are_refused(overrides: dict[str, Any]) -> None:
    with pytest.raises(InputError) as refused:
        method_settings("default", overrides)
    assert any(name in refused.value.what for name in overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        {"positives": "random", "keep_fraction": 0.3},
        {"positives": "dropout", "keep_threshold": 0.02},
        {"label_layers": 3},
        {"label_encoder": "gat", "name_embedding": "none"},
        {"label_encoder": "none", "label_embedding": False},
    ],
)
@pytest.mark.parametrize("preset", ["default", "paper", "published"])
def test_what_fits_together_is_taken_with_every_preset(overrides: dict[str, Any], preset: str) -> None:
    config = HGCLRConfig(**method_settings(preset, overrides))
    assert {name: getattr(config, name) for name in overrides} == overrides
