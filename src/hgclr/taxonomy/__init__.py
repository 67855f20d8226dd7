"""The label tree: reading, checking, writing, closure, distances; numpy only.

Input that is not a tree raises :class:`~hgclr.errors.InputError`, with file and line if it was read from a file.
"""

from hgclr.taxonomy.tree import Taxonomy

__all__ = ["Taxonomy"]
