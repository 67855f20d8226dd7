"""Model settings of the systems that the paper compares: HiAGM, HTCInfoMax, HiMatch, and TextRCNN."""

# No "from __future__ import annotations": types that are strings are not checked.

from dataclasses import dataclass
from typing import Literal

from hgclr.config import SharedSettings, check, setting


@dataclass(kw_only=True, repr=False, eq=False)
class BaselineSettings(SharedSettings):
    """Settings of the systems that the paper compares."""

    textrcnn_features: Literal["convolutions", "states"] = setting(
        "convolutions",
        "vector of each word in a new TextRCNN: the features of its `convolutions`, or the `states` of its GRU, 150"
        " in each direction (HTCInfoMax as released)",
    )
    word_vectors: str | None = setting(None, "GloVe text file to start TextRCNN's word embeddings from")
    structure_encoder: Literal["gcn", "tree-lstm"] = setting(
        "gcn",
        "structure encoder of HiAGM and its extensions: `gcn` or `tree-lstm`",
    )
    node_width: int = setting(300, "size of a label node in the structure encoder")
    structure_dropout: float = setting(0.05, "dropout in the structure encoder")
    feature_dropout: float | None = setting(
        None,
        "dropout after HiAGM-TP's linear layer and in HiMatch's joint projections; `null` is `classifier_dropout`",
    )
    label_embedding_dropout: float = setting(0.0, "dropout of HiAGM-LA's label embeddings")
    recursive_regularisation: float = setting(
        1e-6,
        "weight of the distance between the head's rows of parent and child",
    )
    joint_width: int = setting(200, "size of HiMatch's joint space of texts and labels")
    joint_normalisation: bool = setting(
        True,
        "normalise vectors in the joint space to length 1, as released for BERT but not for TextRCNN",
    )
    parent_margin: float = setting(0.01, "HiMatch's margin for the parent of a gold label")
    sibling_margin: float = setting(0.1, "HiMatch's margin for a wrong sibling of a gold label")
    random_margin: float = setting(0.2, "HiMatch's margin for a random wrong label")
    label_refresh: int = setting(50, "steps between two encodings of the labels' texts in HiMatch")

    def validate_baselines(self) -> None:
        check(self, "share", "structure_dropout", "label_embedding_dropout")
        check(self, "share or null", "feature_dropout")
        check(self, "count", "node_width", "joint_width", "label_refresh")
        check(self, "not negative", "recursive_regularisation")

    @property
    def feature_share(self) -> float:
        return self.classifier_dropout if self.feature_dropout is None else self.feature_dropout
