"""Choices that contradict each other are refused with what to change; the rest is tested where it is used."""

from __future__ import annotations

from typing import Any

import pytest

from hgclr.config import method_settings
from hgclr.errors import InputError
from hgclr.models import HGCLRConfig


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"positives": "random", "keep_threshold": 0.02},
            "positives are random and keep_fraction is None; set keep_fraction",
        ),
        (
            {"label_encoder": "none", "label_embedding": False, "name_embedding": "none"},
            "label_embedding is false and name_embedding is none, which leaves no label features",
        ),
        (
            {"label_encoder": "gcn", "label_layers": 2},
            "label_layers is 2 and label_encoder is gcn; set label_layers to 1, or label_encoder to graphormer",
        ),
        ({"adversarial_size": -1.0}, "adversarial_size is -1.0; give 0 or more"),
        ({"positives": "guessed"}, "positives"),
        ({"label_encoder": "gin"}, "label_encoder"),
    ],
)
def test_contradictions_are_refused(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        method_settings("default", overrides)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


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
