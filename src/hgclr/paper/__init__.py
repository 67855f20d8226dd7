"""Reproduce the paper: its corpora, the systems it compares, its tables and figures, and its authors' checkpoint."""

from hgclr.registry import Extension

EXTENSION = Extension(
    architectures={
        "hiagm-tp": "hgclr.paper.models.hiagm:HiAGMTPForSequenceClassification",
        "hiagm-la": "hgclr.paper.models.hiagm:HiAGMLAForSequenceClassification",
        "htcinfomax": "hgclr.paper.models.htcinfomax:HTCInfoMaxForSequenceClassification",
        "himatch": "hgclr.paper.models.himatch:HiMatchForSequenceClassification",
    },
    encoders={"textrcnn": "hgclr.paper.models.textrcnn:build"},
    settings="hgclr.paper.models:BaselineSettings",
    commands={
        "reproduce": "hgclr.paper.cli:app",
        "data prepare": "hgclr.paper.prepare:app",
        "import-published": "hgclr.paper.prepare:import_published",
    },
)
