"""The systems that the tables compare: what each is called and which settings make it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hgclr.encoders import TEXTRCNN

__all__ = ["PRESETS_BY_CORPUS", "SYSTEMS", "System"]

PRESETS_BY_CORPUS: dict[tuple[str, str], dict[str, float]] = {
    ("paper", "nyt"): {"contrastive_weight": 0.3, "keep_threshold": 0.005},
    ("paper", "rcv1"): {"contrastive_weight": 0.1, "keep_threshold": 0.005},
    ("published", "nyt"): {"contrastive_weight": 0.3, "keep_threshold": 0.002},
    ("published", "rcv1"): {"contrastive_weight": 0.3, "keep_threshold": 0.001},
}
"""λ and γ where a preset, which has those of WOS, has others for another corpus."""


HIMATCH_RECIPE = {
    "batch_size": 8,
    "learning_rate": 2e-5,
    "warmup": 0.1,
    "schedule": "linear",
    "weight_decay": 0.01,
    "max_gradient_norm": 1.0,
}
"""What the released HiMatch trains a BERT with; it takes AdamW, as all our recipes do."""


@dataclass(frozen=True)
class System:
    """What is trained and scored.

    Args:
        key: name of its runs' folders.
        model: its settings in the section ``model`` of a run, on top of all that the user chose.
        published: those settings where the preset is ``published`` and its program means something else.
        data, training: its settings in those sections.
        recipe: its settings in the section ``training`` where the recipe is ``paper`` and its own paper has another.
        preset: the preset it always has; by default the one that the user chose for the table.
        length: how many times as many epochs as others it gets, and as much patience.
        after: key of the system whose run with the same seed decides some of its settings.
        classical: it is no encoder but one of :mod:`hgclr.reproduction.tables.classical`.
    """

    key: str
    model: Mapping[str, Any] = field(default_factory=dict)
    published: Mapping[str, Any] | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    preset: str | None = None
    length: int = 1
    after: str | None = None
    classical: Literal["tfidf", "hiclass"] | None = None

    def model_settings(self, preset: str) -> dict[str, Any]:
        """Return the settings of the section ``model`` under a preset."""
        return dict(self.published if preset == "published" and self.published is not None else self.model)

    def training_settings(self, recipe: str) -> dict[str, Any]:
        """Return the settings of the section ``training`` under a recipe."""
        return {**(self.recipe if recipe == "paper" else {}), **self.training}


def _hgclr(key: str, *, published: Mapping[str, Any] | None = None, **settings: Any) -> System:
    """Return HGCLR with some settings of its own."""
    other = None if published is None else {"architecture": "hgclr", **published}
    return System(key, {"architecture": "hgclr", **settings}, published=other)


def _pair(key: str, architecture: str, recipe: Mapping[str, Any] | None = None) -> tuple[System, System]:
    """Return a system over the pretrained encoder and over TextRCNN, which learns from scratch and takes longer."""
    scratch = {"architecture": architecture, "encoder": TEXTRCNN}
    over = TEXTRCNN if architecture == "flat" else f"{TEXTRCNN}-{key}"
    return System(key, {"architecture": architecture}, recipe=recipe or {}), System(over, scratch, length=5)


def _without_tree(key: str, **settings: Any) -> tuple[System, System]:
    """Return a flat model that does not train on the label tree's documents, and the same trained twice as long."""
    model, data = {"architecture": "flat", **settings}, {"label_documents": False}
    return System(key, model, data=data), System(f"{key}-long", model, data=data, length=2, after=key)


def _preset(preset: str) -> System:
    """Return HGCLR under one of the paper's presets, with decisions tuned as those of the systems beside it are."""
    return System(f"hgclr-{preset}", {"architecture": "hgclr"}, training={"calibrate": True}, preset=preset)


_ALL = (
    *_pair("bert", "flat"),
    *_pair("hiagm", "hiagm-tp"),
    *_pair("htcinfomax", "htcinfomax"),
    *_pair("himatch", "himatch", HIMATCH_RECIPE),
    System("hiagm-la", {"architecture": "hiagm-la"}),
    System("hiagm-tree-lstm", {"architecture": "hiagm-tp", "structure_encoder": "tree-lstm"}),
    _hgclr("hgclr"),
    _hgclr("gcn", label_encoder="gcn", label_embedding=False),
    _hgclr("gat", label_encoder="gat", label_embedding=False),
    _hgclr(
        "no-graph-encoder",
        label_encoder="none",
        published={"label_embedding": False, "spatial_encoding": False, "edge_encoding": False},
    ),
    _hgclr("no-contrastive", contrastive_weight=0.0),
    _hgclr("no-name", name_embedding="none"),
    _hgclr("no-spatial", spatial_encoding=False),
    _hgclr("no-edge", edge_encoding=False),
    _hgclr("layers-2", label_layers=2),
    _hgclr("dropout", positives="dropout"),
    System("random", {"architecture": "hgclr", "positives": "random", "keep_at_least": 0}, after="hgclr"),
    _hgclr("adversarial", positives="adversarial"),
    System("tfidf", classical="tfidf"),
    System("hiclass", classical="hiclass"),
    System("names", training={"effort": "names"}),
    System("head", training={"effort": "head"}),
    *_without_tree("flat-cls", pooling="cls"),
    *_without_tree("flat-random-head", classifier_start="random"),
    *_without_tree("flat"),
    System("default"),
    _preset("paper"),
    _preset("published"),
    _hgclr("hgclr-random-head", classifier_start="random"),
    _hgclr("hgclr-distance", negatives="distance"),
    _hgclr("hgclr-compact", compact_positives=True),
)
SYSTEMS = {system.key: system for system in _ALL}
