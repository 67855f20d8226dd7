"""Model settings of the systems that the paper compares: HiAGM, HTCInfoMax, HiMatch, and TextRCNN."""

# No "from __future__ import annotations": the types of settings are checked, and must not be strings.

from dataclasses import dataclass
from typing import Literal

from hgclr.config import SharedSettings, check, setting


@dataclass(kw_only=True, repr=False, eq=False)
class BaselineSettings(SharedSettings):
    """Configure the systems that the paper compares."""

    textrcnn_features: Literal["convolutions", "states"] = setting(
        "convolutions",
        "what a new TextRCNN has for each word: the features of its `convolutions`, or the `states` of its GRU, 150"
        " in each direction (HTCInfoMax as released)",
    )
    word_vectors: str | None = setting(None, "GloVe text file to start TextRCNN's word embeddings from")
    structure_encoder: Literal["gcn", "tree-lstm"] = setting(
        "gcn",
        "HiAGM and what is built on it pass messages along the tree by a `gcn` or a `tree-lstm`",
    )
    node_width: int = setting(300, "size of a label node there")
    structure_dropout: float = setting(0.05, "dropout there")
    feature_dropout: float | None = setting(
        None,
        "dropout of the features that HiAGM-TP's linear layer gives a text, and in HiMatch's joint projections;"
        " `null` is `classifier_dropout`",
    )
    label_embedding_dropout: float = setting(0.0, "dropout of HiAGM-LA's label embeddings")
    recursive_regularisation: float = setting(
        1e-6,
        "weight of the distance between the classifier's rows of parent and child",
    )
    joint_width: int = setting(200, "size of HiMatch's joint space of texts and labels")
    joint_normalisation: bool = setting(
        True,
        "put both onto the unit sphere there, as released for BERT and not for TextRCNN",
    )
    parent_margin: float = setting(0.01, "margins of HiMatch's losses")
    sibling_margin: float = setting(0.1, "margins of HiMatch's losses")
    random_margin: float = setting(0.2, "margins of HiMatch's losses")
    label_refresh: int = setting(50, "steps after which HiMatch encodes the labels' texts again")

    def validate_baselines(self) -> None:
        check(self, "share", "structure_dropout", "label_embedding_dropout")
        check(self, "share or null", "feature_dropout")
        check(self, "count", "node_width", "joint_width", "label_refresh")
        check(self, "not negative", "recursive_regularisation")

    @property
    def feature_share(self) -> float:
        return self.classifier_dropout if self.feature_dropout is None else self.feature_dropout
