"""What the published program was started with, in our terms."""

from __future__ import annotations

import logging
import math
from typing import Any

from hgclr.config import method_settings
from hgclr.errors import InputError
from hgclr.export.published.files import Checkpoint

__all__ = ["TAKEN", "read_settings"]

logger = logging.getLogger(__name__)

TAKEN = {"lamb": "contrastive_weight", "thre": "keep_threshold", "tau": "gumbel_temperature"}  # λ, γ, Gumbel-softmax
"""Arguments of the published program, and our settings that they become."""


def read_settings(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the ``published`` preset with the checkpoint's own numbers in it.

    ``contrast`` 0 left the contrastive loss out but the second pass in, which is λ = 0. What the checkpoint does not
    say is taken from the preset, with a warning.

    Raises:
        InputError: if the checkpoint was trained in a form that we have no counterpart for, or a number is none.
    """
    arguments = vars(checkpoint.arguments)
    absent = [name for name in (*TAKEN, "contrast", "graph", "layer") if name not in arguments]
    if absent:
        logger.warning("%s does not say %s: taken from the published preset", checkpoint.path, ", ".join(absent))
    _refuse_other_forms(checkpoint, arguments)
    overrides = {}
    for name, setting in TAKEN.items():
        if name in arguments:
            value = arguments[name]
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise InputError(f"the argument {name} is {value!r}, not a number", path=checkpoint.path)
            overrides[setting] = float(value)
    if not arguments.get("contrast", True):
        overrides["contrastive_weight"] = 0.0
    try:
        return method_settings("published", overrides)
    except InputError as error:
        raise InputError(error.what, path=checkpoint.path, remedy=error.remedy) from None


def _refuse_other_forms(checkpoint: Checkpoint, arguments: dict[str, Any]) -> None:
    attention = "graph_encoder.hir_layers.0.hir_attn."
    others = (
        (not arguments.get("graph", True), "without the label tree (graph 0)"),
        (arguments.get("layer", 1) != 1, f"with {arguments.get('layer')} layers in the label encoder"),
        (not arguments.get("multi", True), "for one label per text (multi off)"),
        (
            any(name.startswith(attention) for name in checkpoint.weights)
            and not any(name.startswith(f"{attention}self.") for name in checkpoint.weights),
            "with a GCN or GAT as label encoder",
        ),
    )
    for found, form in others:
        if found:
            raise InputError(
                f"the checkpoint was trained {form}, which cannot be imported",
                path=checkpoint.path,
                remedy="give one with the published defaults: one Graphormer layer on the label tree, multi-label",
            )
