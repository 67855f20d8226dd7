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


@dataclass(frozen=True)
class System:
    """What is trained and scored.

    Args:
        key: name of its runs' folders.
        model: its settings in the section ``model`` of a run, on top of all that the user chose.
        published: those settings where the preset is ``published`` and its program means something else.
        preset: the preset it always has; by default HGCLR has the one that the user chose, other systems ``default``.
        length: how many times as many epochs as others it gets, and as much patience.
        after: key of the system whose run with the same seed decides some of its settings.
        classical: it is no encoder but one of :mod:`hgclr.reproduction.tables.classical`.
    """

    key: str
    model: Mapping[str, Any] = field(default_factory=dict)
    published: Mapping[str, Any] | None = None
    preset: str | None = None
    length: int = 1
    after: str | None = None
    classical: Literal["tfidf", "hiclass"] | None = None

    def preset_for(self, chosen: str) -> str:
        """Return the preset of this system where the user chose ``chosen`` for HGCLR."""
        if self.preset is not None:
            return self.preset
        return chosen if self.model.get("architecture") == "hgclr" else "default"

    def settings(self, preset: str) -> dict[str, Any]:
        """Return the settings of the section ``model`` under its preset."""
        return dict(self.published if preset == "published" and self.published is not None else self.model)

    def folder(self, chosen: str) -> str:
        """Return the name of its runs' folders, without the seed; a preset that the user chose stands in it."""
        preset = self.preset_for(chosen)
        return self.key if preset in ("default", self.preset) else f"{self.key}-{preset}"


def _hgclr(key: str, *, published: Mapping[str, Any] | None = None, **settings: Any) -> System:
    """Return HGCLR with some settings of its own."""
    other = None if published is None else {"architecture": "hgclr", **published}
    return System(key, {"architecture": "hgclr", **settings}, published=other)


def _pair(key: str, architecture: str) -> tuple[System, System]:
    """Return a system over the pretrained encoder and over TextRCNN, which learns from scratch and takes longer."""
    scratch = {"architecture": architecture, "encoder": TEXTRCNN}
    over = TEXTRCNN if architecture == "flat" else f"{TEXTRCNN}-{key}"
    return System(key, {"architecture": architecture}), System(over, scratch, length=5)


_ALL = (
    *_pair("flat", "flat"),
    *_pair("hiagm", "hiagm-tp"),
    *_pair("htcinfomax", "htcinfomax"),
    *_pair("himatch", "himatch"),
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
    System("flat-long", {"architecture": "flat"}, length=2, after="flat"),
    System("flat-random-head", {"architecture": "flat", "classifier_start": "random"}),
    _hgclr("hgclr-random-head", classifier_start="random"),
    _hgclr("hgclr-distance", negatives="distance"),
    System("hgclr-paper", {"architecture": "hgclr"}, preset="paper"),
    System("hgclr-published", {"architecture": "hgclr"}, preset="published"),
    _hgclr("hgclr-compact", compact_positives=True),
)
SYSTEMS = {system.key: system for system in _ALL}
