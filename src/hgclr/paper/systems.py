"""The systems that the tables compare: their names and settings."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hgclr.errors import InputError

PRESETS_BY_CORPUS: dict[tuple[str, str], dict[str, float]] = {
    ("paper", "nyt"): {"contrastive_weight": 0.3, "keep_threshold": 0.005},
    ("paper", "rcv1"): {"contrastive_weight": 0.1, "keep_threshold": 0.005},
    ("published", "nyt"): {"contrastive_weight": 0.3, "keep_threshold": 0.002},
    ("published", "rcv1"): {"contrastive_weight": 0.3, "keep_threshold": 0.001},
}
"""λ and γ of a preset for corpora other than WOS."""
HIMATCH_RECIPE = {
    "batch_size": 8,
    "epochs": 150,
    "patience": 50,
    "learning_rate": 2e-5,
    "warmup": 0.1,
    "schedule": "linear",
    "weight_decay": 0.01,
    "max_gradient_norm": 1.0,
}
"""Recipe of the released HiMatch with BERT; its optimiser is AdamW, as in all our recipes."""
TEXTRCNN_RECIPE = {"batch_size": 64, "epochs": 200, "patience": 50, "learning_rate": 1e-4}
"""Recipe of the released systems over TextRCNN, with Adam; some differ in epochs and patience."""
TREE_LSTM = {"wos": {"structure_encoder": "tree-lstm"}}
"""The corpus for which the released HTCInfoMax has a Tree-LSTM instead of a GCN."""


@dataclass(frozen=True)
class System:
    """A system that is trained and scored.

    Args:
        key: name of its runs' folders.
        model, data, training: its settings in these sections of a run; they override the user's.
        published: its model settings under the preset ``published``, if they differ.
        released: model settings with which its authors released it. They hold under the paper's presets, unless the
            user sets others; ``released_on`` adds settings for a corpus.
        recipe: training settings of its paper. They hold with the recipe ``paper``, unless the user sets others.
        preset: its preset; by default that of the table.
        length: multiple of the other systems' epochs and patience.
        after: key of the system whose run with the same seed decides some of its settings.
        classical: a system of :mod:`hgclr.paper.classical`, which has no encoder.
    """

    key: str
    model: Mapping[str, Any] = field(default_factory=dict)
    published: Mapping[str, Any] | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    released: Mapping[str, Any] = field(default_factory=dict)
    released_on: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    preset: str | None = None
    length: int = 1
    after: str | None = None
    classical: Literal["tfidf", "hiclass"] | None = None


def _hgclr(key: str, *, published: Mapping[str, Any] | None = None, **settings: Any) -> System:
    other = None if published is None else {"architecture": "hgclr", **published}
    return System(key, {"architecture": "hgclr", **settings}, published=other)


def _over_textrcnn(
    key: str,
    architecture: str,
    recipe: Mapping[str, Any] | None = None,
    released_on: Mapping[str, Mapping[str, Any]] | None = None,
    **released: Any,
) -> System:
    """Return a system over TextRCNN, which has no pretrained weights and needs more epochs."""
    return System(
        key,
        {"architecture": architecture, "encoder": "textrcnn"},
        released={"pooling": "max", **released},
        released_on=released_on or {},
        recipe={**TEXTRCNN_RECIPE, **(recipe or {})},
        length=5,
    )


def _without_tree(key: str, **settings: Any) -> tuple[System, System]:
    """Return a flat model without label documents and head refit, and the same with twice the epochs."""
    model, data, training = {"architecture": "flat", **settings}, {"label_documents": False}, {"refit_head": False}
    once = System(key, model, data=data, training=training)
    return once, System(f"{key}-long", model, data=data, training=training, length=2, after=key)


_ALL = (
    System("bert", {"architecture": "flat"}),
    System("hiagm", {"architecture": "hiagm-tp"}),
    System(
        "htcinfomax", {"architecture": "htcinfomax"}, released={"label_embedding_dropout": 0.5}, released_on=TREE_LSTM
    ),
    System(
        "himatch",
        {"architecture": "himatch"},
        released={"recursive_regularisation": 0.0, "max_length": 300},
        recipe=HIMATCH_RECIPE,
    ),
    _over_textrcnn("textrcnn", "flat", classifier_dropout=0.5, flat_regularisation=1e-6),
    _over_textrcnn("textrcnn-hiagm", "hiagm-tp", {"epochs": 250}, classifier_dropout=0.0, feature_dropout=0.5),
    _over_textrcnn(
        "textrcnn-htcinfomax",
        "htcinfomax",
        {"epochs": 250, "patience": 200},
        TREE_LSTM,
        classifier_dropout=0.0,
        label_embedding_dropout=0.5,
        textrcnn_features="states",
    ),
    _over_textrcnn(
        "textrcnn-himatch",
        "himatch",
        {"epochs": 150},
        classifier_dropout=0.0,
        feature_dropout=0.5,
        recursive_regularisation=0.0,
        joint_normalisation=False,
    ),
    System("hiagm-la", {"architecture": "hiagm-la"}, released={"label_embedding_dropout": 0.5}),
    System("hiagm-tree-lstm", {"architecture": "hiagm-tp", "structure_encoder": "tree-lstm"}),
    _hgclr("hgclr"),
    _hgclr("hgclr-drawn", edge_padding="drawn"),
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
    _hgclr("two-passes", positives="dropout", contrastive_weight=0.0),
    System("random", {"architecture": "hgclr", "positives": "random", "keep_at_least": 0}, after="hgclr"),
    _hgclr("adversarial", positives="adversarial"),
    System("tfidf", classical="tfidf"),
    System("hiclass", classical="hiclass"),
    System("names", training={"effort": "names"}),
    System("head", training={"effort": "head"}),
    *_without_tree("flat-cls", pooling="cls"),
    *_without_tree("flat-random-head", classifier_start="random"),
    *_without_tree("flat"),
    System("no-refit", training={"refit_head": False}),
    System("default"),
    # The paper's presets, with tuned decisions like the other systems of the table.
    System("hgclr-paper", {"architecture": "hgclr"}, training={"calibrate": True}, preset="paper"),
    System("hgclr-published", {"architecture": "hgclr"}, training={"calibrate": True}, preset="published"),
    _hgclr("hgclr-random-head", classifier_start="random"),
)
SYSTEMS = {system.key: system for system in _ALL}
CORPORA = {"wos": "WOS", "nyt": "NYT", "rcv1": "RCV1-V2"}
"""The paper's corpora, by the name on the command line."""
LITERATURE = {
    "wos": {"labels": "literature"},
    "nyt": {"text": "literature"},
    "rcv1": {"text": "literature", "label_names": "codes"},
}
"""Options of ``hgclr data prepare`` that published scores are based on, by corpus."""
Figures = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class SystemRow:
    """A line of a table.

    Args:
        system: key of the system; if the row is ``printed``, of the row.
        title: its name in the table.
        paper: the paper's Micro- and Macro-F1 by corpus.
        extra: it is not in the paper's table, and is run on request only.
        printed: it has the paper's scores only, and cannot be run.
    """

    system: str
    title: str
    paper: Figures = field(default_factory=dict)
    extra: bool = False
    printed: bool = False


@dataclass(frozen=True)
class Table:
    """A table: its rows, its split, the row that gains are measured from; notes, also on the paper's figures."""

    key: str
    title: str
    split: Literal["dev", "test"]
    base: str
    rows: Sequence[SystemRow]
    notes: Sequence[str] = ()
    figure_notes: Sequence[str] = ()

    def choose(self, keys: Sequence[str] | None) -> list[SystemRow]:
        """Return the rows to run: those with these keys in the table's order; without keys all but the extra ones."""
        if keys is not None and not keys:
            raise InputError("no row is named", remedy=f"{self.key} has {', '.join(row.system for row in self.rows)}")
        rows = [row for row in self.rows if not row.printed]
        known = [row.system for row in rows]
        for key in keys or ():
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"its rows are {', '.join(known)}"
                raise InputError(f"{self.key} has no row {key!r}", remedy=hint)
        return [row for row in rows if (not row.extra if keys is None else row.system in keys)]


def _figures(*scores: float | None) -> Figures:
    """Return Micro- and Macro-F1 by corpus from a line of the paper's table 2; None where it has a dash."""
    pairs = zip(CORPORA, scores[::2], scores[1::2], strict=False)
    return {corpus: (micro, macro) for corpus, micro, macro in pairs if micro is not None and macro is not None}


_TABLE2 = Table(
    "table2",
    "Table 2: the systems compared",
    "test",
    "bert",
    (
        SystemRow("textrcnn", "TextRCNN", _figures(83.55, 76.99, 70.83, 56.18, 81.57, 59.25)),
        SystemRow("textrcnn-hiagm", "HiAGM", _figures(85.82, 80.28, 74.97, 60.83, 83.96, 63.35)),
        SystemRow("textrcnn-htcinfomax", "HTCInfoMax", _figures(85.58, 80.05, None, None, 83.51, 62.71)),
        SystemRow("textrcnn-himatch", "HiMatch", _figures(86.20, 80.53, None, None, 84.73, 64.11)),
        SystemRow("bert", "BERT", _figures(85.63, 79.07, 78.24, 65.62, 85.65, 67.02)),
        SystemRow(
            "bert-chen", "BERT (Chen et al., 2021)", _figures(86.26, 80.58, None, None, 86.26, 67.35), printed=True
        ),
        SystemRow("hiagm", "BERT+HiAGM", _figures(86.04, 80.19, 78.64, 66.76, 85.58, 67.93)),
        SystemRow("htcinfomax", "BERT+HTCInfoMax", _figures(86.30, 79.97, 78.75, 67.31, 85.53, 67.09)),
        SystemRow("himatch", "BERT+HiMatch", _figures(86.70, 81.06, None, None, 86.33, 68.66)),
        SystemRow("hgclr", "HGCLR", _figures(87.11, 81.20, 78.86, 67.96, 86.49, 68.31)),
        SystemRow("hgclr-drawn", "HGCLR, edge padding drawn", extra=True),
        SystemRow("hiagm-la", "BERT+HiAGM-LA", extra=True),
        SystemRow("hiagm-tree-lstm", "BERT+HiAGM, Bi-TreeLSTM", extra=True),
    ),
    (
        "BERT is the encoder given, with a linear head.",
        "HiAGM is its text propagation over a GCN (hiagm-tp); extra rows: hiagm-la, hiagm-tree-lstm.",
    ),
    (
        "The paper's figures for BERT are its authors' own.",
        "The paper takes the figures of the rows over TextRCNN, and of BERT+HiMatch, from the papers of those systems.",
        "Chen et al. (2021) are the authors of HiMatch; the paper prints their figures for BERT beside its own.",
    ),
)
_HGCLR_DEV: Figures = {"wos": (87.46, 81.52)}
_TABLE3 = Table(
    "table3",
    "Table 3: components of HGCLR replaced or removed",
    "dev",
    "bert",
    (
        SystemRow("bert", "BERT", {"wos": (85.75, 79.36)}),
        SystemRow("hgclr", "HGCLR", _HGCLR_DEV),
        SystemRow("gcn", "GCN as graph encoder", {"wos": (87.06, 80.63)}),
        SystemRow("gat", "GAT as graph encoder", {"wos": (87.18, 81.45)}),
        SystemRow("no-graph-encoder", "without graph encoder", {"wos": (86.67, 80.11)}),
        SystemRow("no-contrastive", "without contrastive loss", {"wos": (86.72, 80.97)}),
        SystemRow("hgclr-drawn", "HGCLR, edge padding drawn", extra=True),
    ),
    (
        "GCN and GAT are one layer over the label names, without label embedding, as in the published program.",
        "Without graph encoder, label features are the embeddings; with the preset published, attention over names.",
    ),
)
_TABLE4 = Table(
    "table4",
    "Table 4: variants of Graphormer",
    "dev",
    "hgclr",
    (
        SystemRow("hgclr", "HGCLR", _HGCLR_DEV),
        SystemRow("no-name", "without name embedding", {"wos": (86.40, 80.40)}),
        SystemRow("no-spatial", "without spatial encoding", {"wos": (86.88, 80.42)}),
        SystemRow("no-edge", "without edge encoding", {"wos": (87.25, 80.54)}),
        SystemRow("layers-2", "two layers", extra=True),
    ),
)
_TABLE5 = Table(
    "table5",
    "Table 5: ways to make positive samples",
    "dev",
    "hgclr",
    (
        SystemRow("hgclr", "hierarchy-guided", _HGCLR_DEV),
        SystemRow("dropout", "dropout", {"wos": (86.94, 79.91)}),
        SystemRow("random", "random masking", {"wos": (87.19, 81.16)}),
        SystemRow("adversarial", "adversarial attack", {"wos": (86.67, 80.24)}),
    ),
    ("Random masking keeps the share of tokens that the hierarchy-guided run with the same seed kept.",),
)
_SYSTEMS = Table(
    "systems",
    "Systems: what a user would otherwise pick, beside our default and HGCLR",
    "test",
    "flat-cls",
    (
        SystemRow("tfidf", "TF-IDF + logistic regression"),
        SystemRow("hiclass", "TF-IDF + hiclass, per parent node"),
        SystemRow("names", "names: the label tree alone"),
        SystemRow("head", "head: frozen encoder"),
        SystemRow("flat-cls", "flat, first token"),
        SystemRow("flat-cls-long", "flat, first token, twice the epochs"),
        SystemRow("flat-random-head", "flat, head from random weights"),
        SystemRow("flat-random-head-long", "flat, head from random weights, twice the epochs"),
        SystemRow("flat", "flat"),
        SystemRow("flat-long", "flat, twice the epochs"),
        SystemRow("default", "default"),
        SystemRow("hgclr", "HGCLR"),
        SystemRow("hgclr-paper", "HGCLR, preset paper"),
        SystemRow("hgclr-published", "HGCLR, preset published"),
        SystemRow("bert", "flat, with label documents", extra=True),
        SystemRow("no-refit", "default without head refit", extra=True),
        SystemRow("hgclr-random-head", "HGCLR, head from random weights", extra=True),
    ),
    (
        (
            "At 0.5, labels more probable than 0.5 are predicted. Tuned: the rule and thresholds that are best on "
            "dev, by the same search for all rows. hiclass has no probabilities to tune. names has no labelled "
            "documents to tune on; its tuned score is that of the path to each text's most probable leaf."
        ),
        (
            "default is hgclr train without any settings: the encoder's pooling, a head that starts from label names, "
            "label documents, head refit, tuned decisions."
        ),
        (
            "The flat systems have no label documents and no head refit. Pooling is the encoder's, or the first token "
            "where the row says so; heads start from label names, or from random weights where the row says so. The "
            "paper's presets have the first token and a random head."
        ),
        "A step of HGCLR reads every text twice; flat with twice the epochs reads as many texts.",
        (
            "Regularisation and class weights of TF-IDF, and regularisation of hiclass, are the best on dev. Both read "
            "as much of each text as the other rows."
        ),
    ),
)
_REGIME = Table(
    "regime",
    "HGCLR against the flat model, until dev stops rising",
    "test",
    "bert",
    (
        SystemRow("bert", "flat"),
        SystemRow("hgclr", "HGCLR"),
        SystemRow("two-passes", "flat, two dropout passes"),
        SystemRow("random", "random masking"),
        SystemRow("no-contrastive", "HGCLR, λ = 0"),
        SystemRow("hgclr-published", "HGCLR, preset published"),
    ),
    (
        "Flat with two dropout passes reads each text as often as HGCLR: the positive sample is the text, and λ is 0.",
        "Random masking keeps the share of tokens that HGCLR with the same seed kept.",
        "The epoch is chosen, and training is stopped, by dev Macro-F1 at 0.5.",
    ),
)
TABLES = {table.key: table for table in (_TABLE2, _TABLE3, _TABLE4, _TABLE5, _SYSTEMS, _REGIME)}
