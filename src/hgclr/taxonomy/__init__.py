"""The label tree: reading, checking, writing, closure, distances; numpy only.

Everything here raises :class:`~hgclr.errors.InputError`, with file and line where there are any, for what is no tree.
"""

from hgclr.taxonomy.tree import Taxonomy

__all__ = ["Taxonomy"]
