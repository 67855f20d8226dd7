"""Model settings of the systems that the paper compares: HiAGM, HTCInfoMax, HiMatch, and TextRCNN."""

# No "from __future__ import annotations": the types of settings are checked, and must not be strings.

from dataclasses import dataclass
from typing import Literal

from hgclr.config import SharedSettings, check


@dataclass(kw_only=True, repr=False, eq=False)
class BaselineSettings(SharedSettings):
    """Configure the systems that the paper compares.

    Args:
        textrcnn_features: what a new TextRCNN has for each word: the features of its ``convolutions``, or the
            ``states`` of its GRU, 150 in each direction (HTCInfoMax as released).
        word_vectors: GloVe text file to start TextRCNN's word embeddings from.
        structure_encoder: HiAGM and what is built on it pass messages along the tree by a ``gcn`` or a ``tree-lstm``.
        node_width: size of a label node there.
        structure_dropout: dropout there.
        feature_dropout: dropout of the features that HiAGM-TP's linear layer gives a text, and in HiMatch's joint
            projections; ``None`` is ``classifier_dropout``.
        label_embedding_dropout: dropout of HiAGM-LA's label embeddings.
        recursive_regularisation: weight of the distance between the classifier's rows of parent and child.
        joint_width: size of HiMatch's joint space of texts and labels.
        joint_normalisation: put both onto the unit sphere there, as released for BERT and not for TextRCNN.
        parent_margin, sibling_margin, random_margin: margins of HiMatch's losses.
        label_refresh: steps after which HiMatch encodes the labels' texts again.
    """

    textrcnn_features: Literal["convolutions", "states"] = "convolutions"
    word_vectors: str | None = None
    structure_encoder: Literal["gcn", "tree-lstm"] = "gcn"
    node_width: int = 300
    structure_dropout: float = 0.05
    feature_dropout: float | None = None
    label_embedding_dropout: float = 0.0
    recursive_regularisation: float = 1e-6
    joint_width: int = 200
    joint_normalisation: bool = True
    parent_margin: float = 0.01
    sibling_margin: float = 0.1
    random_margin: float = 0.2
    label_refresh: int = 50

    def validate_baselines(self) -> None:
        check(self, "share", "structure_dropout", "label_embedding_dropout")
        check(self, "share or null", "feature_dropout")
        check(self, "count", "node_width", "joint_width", "label_refresh")
        check(self, "not negative", "recursive_regularisation")

    @property
    def feature_share(self) -> float:
        return self.classifier_dropout if self.feature_dropout is None else self.feature_dropout
