"""Build a data set from arXiv's metadata: title and abstract in, groups, archives and categories out."""

from hgclr.data.corpora.arxiv.building import build_arxiv

__all__ = ["build_arxiv"]
