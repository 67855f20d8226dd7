"""HiMatch: HiAGM-TP with texts and labels matched in a joint space (Chen et al., ACL 2021).

Below the model: the projection into the joint space, the labels drawn for each document, the two losses, and the words
that represent a label.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from transformers import initialization as init

from hgclr.errors import require_extra
from hgclr.models.base import HierarchicalOutput, LabelRows
from hgclr.models.flat import name_tokens
from hgclr.nn.fast import name_blocks
from hgclr.paper.models.hiagm import BaselineConfig, HiAGMTPForSequenceClassification, edge_prior, structure_encoder
from hgclr.taxonomy import Taxonomy

if TYPE_CHECKING:
    import datasets


LABEL_TEXT = 32
"""Tokens of a label's text, special tokens included."""
COMMON = 0.8
"""Words in more than this share of all documents are not used (max_df)."""
RARE = 0.1
"""Words in less than this share of a label's documents are not used (min_df)."""


class HiMatchForSequenceClassification(HiAGMTPForSequenceClassification):
    """HiAGM-TP, trained with two more losses.

    ``L = L_C + (L_joint + L_match) / joint_width``: L_C is HiAGM's loss, the others are computed from squared distances
    between a text and the labels drawn for it in each step. Both are weighted relative to a mean cross-entropy, and
    scaled like it. The released program divides the distances instead, so that the margins are never reached.

    The text of a label consists of its strongest words in the training documents, or of its name if it has none. The
    text encoder reads it without gradient and dropout, every ``label_refresh`` batches; a second structure encoder and
    a projection map it into the joint space. Label texts, their vectors and the count of batches are saved, so that a
    resumed run equals an uninterrupted one.
    """

    config: BaselineConfig
    deployed_class = HiAGMTPForSequenceClassification
    training_parts = ("label_structure", "label_joint", "text_joint", "label_tokens", "label_vectors", "batches")
    label_tokens: Tensor
    label_vectors: Tensor
    batches: Tensor

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__(config)
        labels, hidden, joint = config.label_count, config.text_encoder.hidden_size, config.joint_width
        self.label_structure = structure_encoder(config, hidden)
        dropout, normalised = config.feature_share, config.joint_normalisation
        self.label_joint = JointProjection(hidden, joint, dropout=dropout, normalised=normalised)
        self.text_joint = JointProjection(labels * config.node_width, joint, dropout=dropout, normalised=normalised)
        self.register_buffer("label_tokens", torch.full((labels, LABEL_TEXT), -1))
        self.register_buffer("label_vectors", torch.zeros(labels, hidden))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))
        self.post_init()

    @classmethod
    def from_encoder_config(
        cls, encoder_config: PreTrainedConfig, taxonomy: Taxonomy, tokenizer: PreTrainedTokenizerBase, **settings: Any
    ) -> Self:
        """Return a model with random weights; until :meth:`prepare`, the texts of labels are their names."""
        model = super().from_encoder_config(encoder_config, taxonomy, tokenizer, **settings)
        names = name_tokens(taxonomy.names, tokenizer)[:, : model.label_text_length]
        model.label_tokens[:, : names.shape[1]] = names
        return model

    @property
    def label_text_length(self) -> int:
        return min(LABEL_TEXT, self.config.max_length)

    @torch.no_grad()
    def _init_weights(self, module: Any) -> None:
        """Start without label texts; all other weights are as in HiAGM."""
        if module is self:
            init.constant_(self.label_tokens, -1)
            init.zeros_(self.label_vectors)
            init.zeros_(self.batches)
        else:
            super()._init_weights(module)

    def prepare(self, documents: "datasets.Dataset") -> None:
        """Set the edges of both structure encoders to the prior, and find the labels' texts; needs scikit-learn."""
        super().prepare(documents)
        self.label_structure.set_prior(edge_prior(documents, self.config.taxonomy))
        special = self.config.special_token_ids or []
        before: list[int] = []  # special tokens around the words of a text
        after: list[int] = []
        for row in documents.select_columns("input_ids"):
            words = [place for place, token in enumerate(row["input_ids"]) if token not in special]
            if words:
                before, after = row["input_ids"][: words[0]], row["input_ids"][words[-1] + 1 :]
                break
        found = label_words(
            documents,
            labels=self.config.label_count,
            vocabulary=self.encoder.get_input_embeddings().num_embeddings,
            special=special,
            most=max(0, self.label_text_length - len(before) - len(after)),
        )
        for label, strongest in enumerate(found):
            if len(strongest):
                text = torch.tensor([*before, *strongest.tolist(), *after])
                self.label_tokens[label] = nn.functional.pad(text, (0, LABEL_TEXT - len(text)), value=-1)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> HierarchicalOutput:
        features = self.propagate(self.encode(attention_mask, input_ids=input_ids))  # (B, K, d)
        if labels is None or not self.training:
            return self.output(features, labels)
        if self.batches % self.config.label_refresh == 0:
            self.read_labels()
        self.batches += 1
        logits = self.classifier(features.flatten(1))  # (B, K)
        classification, terms = self.classification(logits, labels)
        weight = self.beside_mean(logits) / self.config.joint_width
        joint, matching = (weight * loss for loss in self.matching_losses(features.flatten(1), labels))
        return HierarchicalOutput(
            loss=classification + joint + matching,
            logits=logits,
            terms=terms | {"loss_joint": joint.detach(), "loss_matching": matching.detach()},
        )

    def matching_losses(self, texts: Tensor, gold: Tensor) -> tuple[Tensor, Tensor]:
        """Return L_joint and L_match of texts, (B, K d), with gold labels as 0/1, (B, K)."""
        drawn = draw_labels(gold, torch.tensor(self.config.label_parents, device=gold.device))
        distance = distances(self.text_joint(texts), self.label_points(), drawn)
        return (
            joint_loss(distance, drawn, parent_margin=self.config.parent_margin),
            matching_loss(
                distance, drawn, sibling_margin=self.config.sibling_margin, random_margin=self.config.random_margin
            ),
        )

    def label_points(self) -> Tensor:
        """Return the labels in the joint space, (K, joint width), from their latest vectors."""
        points: Tensor = self.label_joint(self.label_structure(self.label_vectors.unsqueeze(0)).squeeze(0))
        return points

    @torch.no_grad()
    def read_labels(self) -> None:
        """Encode the labels' texts in blocks, without dropout."""
        training = self.encoder.training
        self.encoder.eval()
        pad = getattr(self.config.text_encoder, "pad_token_id", None) or 0
        for labels, tokens in name_blocks(self.label_tokens[:, : self.label_text_length]):
            mask = (tokens >= 0).long()
            hidden = self.hidden(mask, input_ids=tokens.masked_fill(tokens < 0, pad))
            self.label_vectors[labels] = self.pool(hidden, mask).to(self.label_vectors.dtype)
        self.encoder.train(training)

    def label_entries(self, rows: LabelRows, names: Tensor) -> dict[str, Tensor]:
        """Return the label entries for another label tree; the labels' texts are encoded in the first step."""
        return super().label_entries(rows, names) | {
            "text_joint.0.weight": rows.column_blocks(self.text_joint.get_parameter("0.weight")),
            "label_tokens": rows.tokens(self.label_tokens, names[:, : self.label_text_length]),
            "label_vectors": rows.rows(self.label_vectors),
            "batches": torch.zeros_like(self.batches),
        }


class JointProjection(nn.Sequential):
    """Project vectors, (N, width), into the joint space by two linear layers, to length 1 if ``normalised``."""

    def __init__(self, width: int, joint_width: int, *, dropout: float, normalised: bool = True) -> None:
        super().__init__(
            nn.Linear(width, joint_width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(joint_width, joint_width)
        )
        self.normalised = normalised

    def forward(self, vectors: Tensor) -> Tensor:
        """Return points, (N, joint width), from vectors, (N, width)."""
        points: Tensor = super().forward(vectors)  # type: ignore[no-untyped-call]
        return F.normalize(points, dim=-1) if self.normalised else points


class Drawn(NamedTuple):
    """Four labels for each document, -1 for none, or the distances to them, (B,) each."""

    gold: Tensor
    parent: Tensor
    sibling: Tensor
    other: Tensor


def draw_labels(gold: Tensor, parents: Tensor) -> Drawn:
    """Draw for each document a gold label, its parent, a sibling that is not gold, and any label that is not gold.

    Top labels are siblings of each other and have no parent. A label that does not exist is -1, and does not count in
    the losses. ``gold`` is 0/1, (B, K); ``parents`` has the index of each label's parent, -1 for a top label, (K,).
    """
    right = gold > 0
    chosen = _one_of(right)  # (B,)
    above = torch.where(chosen >= 0, parents[chosen], -1)  # (B,)
    beside = ~right & (parents == above.unsqueeze(1)) & (chosen >= 0).unsqueeze(1)  # (B, K)
    return Drawn(chosen, above, _one_of(beside), _one_of(~right))


def distances(texts: Tensor, labels: Tensor, drawn: Drawn) -> Drawn:
    """Return ``‖t − l‖²`` of texts, (B, width), to their drawn labels among all, (K, width); undefined for -1."""
    return Drawn(*((texts - labels[chosen]).square().sum(-1) for chosen in drawn))


def joint_loss(distance: Drawn, drawn: Drawn, *, parent_margin: float) -> Tensor:
    """Return the mean over documents of ``d(t, gold) + relu(d(t, parent) − margin)``; a missing label counts 0."""
    terms = torch.where(drawn.gold >= 0, distance.gold, 0.0)
    return (terms + torch.where(drawn.parent >= 0, F.relu(distance.parent - parent_margin), 0.0)).mean()


def matching_loss(distance: Drawn, drawn: Drawn, *, sibling_margin: float, random_margin: float) -> Tensor:
    """Return the mean over documents of ``Σ relu(margin − (d(t, wrong) − d(t, gold)))``; a missing label counts 0.

    The sum is over the sibling and the other label, each with its own margin.
    """
    sibling = F.relu(sibling_margin - (distance.sibling - distance.gold))
    other = F.relu(random_margin - (distance.other - distance.gold))
    known = drawn.gold >= 0
    terms = torch.where(known & (drawn.sibling >= 0), sibling, 0.0) + torch.where(
        known & (drawn.other >= 0), other, 0.0
    )
    return terms.mean()


def _one_of(allowed: Tensor) -> Tensor:
    """Return a random allowed label of each row, (B,), -1 if none is allowed, from booleans, (B, K)."""
    keys = torch.rand(allowed.shape, device=allowed.device).masked_fill(~allowed, -1.0)
    return torch.where(allowed.any(1), keys.argmax(1), -1)


def label_words(
    documents: "datasets.Dataset", *, labels: int, vocabulary: int, special: Collection[int], most: int
) -> list[NDArray[np.int64]]:
    """Return the strongest words of each of K labels by TF-IDF, ``most`` at most, strongest first.

    Words are the tokenizer's ``vocabulary`` tokens without the ``special`` ones. All documents of a label form one text
    for the term frequency; the inverse document frequency is over the texts of all labels. Words that are too common
    (:data:`COMMON`) or too rare (:data:`RARE`) do not count, unless a label has no others: then its most frequent words
    are used. A label without documents has no words.
    """
    require_extra("sklearn", extra="paper", capability="Describing labels by their strongest words")
    from scipy.sparse import csr_array
    from sklearn.feature_extraction.text import TfidfTransformer

    words = np.ones(vocabulary, dtype=bool)
    words[list(special)] = False
    frequency = csr_array((labels, vocabulary), dtype=np.int64)  # of each word in each label's text
    holding = frequency.copy()  # documents of each label with each word
    everywhere = np.zeros(vocabulary, dtype=np.int64)  # documents with each word
    sizes = np.zeros(labels, dtype=np.int64)  # documents of each label
    for batch in documents.select_columns(["input_ids", "labels"]).iter(batch_size=10_000):
        texts = _rows([[token for token in row if words[token]] for row in batch["input_ids"]], vocabulary)
        gold = _rows(batch["labels"], labels)
        holds, carries = texts.sign(), gold.sign()
        frequency = frequency + carries.T @ texts
        holding = holding + carries.T @ holds
        everywhere += holds.sum(0)
        sizes += carries.sum(0)

    typical = holding.multiply(1 / np.maximum(sizes, 1)[:, None]).tocsr()  # share of the label's documents
    strength = TfidfTransformer(norm=None).fit_transform(frequency)
    chosen = []
    for label in range(labels):
        counts, shares, weights = (matrix[[label]].toarray()[0] for matrix in (frequency, typical, strength))
        fit = (counts > 0) & (shares >= RARE) & (everywhere <= COMMON * len(documents))
        rank = np.where(fit, weights, 0) if fit.any() else counts
        strongest = np.argsort(-rank, kind="stable")[:most]
        chosen.append(strongest[rank[strongest] > 0])
    return chosen


def _rows(rows: Sequence[Sequence[int]], columns: int) -> Any:
    """Return a sparse matrix of the counts of column numbers in each list."""
    from scipy.sparse import csr_array

    ends = np.cumsum([0, *map(len, rows)])
    places = np.concatenate([np.asarray(row, dtype=np.int64) for row in rows])
    matrix = csr_array((np.ones(len(places), dtype=np.int64), places, ends), shape=(len(rows), columns))
    matrix.sum_duplicates()
    return matrix
