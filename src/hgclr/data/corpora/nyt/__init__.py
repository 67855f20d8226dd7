"""The New York Times Annotated Corpus (LDC2008T19), as the literature uses it."""

from hgclr.data.corpora.nyt.building import build_nyt

__all__ = ["build_nyt"]
