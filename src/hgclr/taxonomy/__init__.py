"""The label tree: reading, checking, writing, closure, distances; numpy only."""

from hgclr.taxonomy.tree import Taxonomy

__all__ = ["Taxonomy"]
