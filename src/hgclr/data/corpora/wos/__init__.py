"""Web of Science (WOS-46985): abstracts of papers, each with a domain and an area of research."""

from hgclr.data.corpora.wos.building import build_wos

__all__ = ["build_wos"]
