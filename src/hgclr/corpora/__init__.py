"""Corpora that others publish, turned into data folders.

Everything here raises :class:`~hgclr.errors.InputError`, with file and place, for input that cannot be used.
"""
