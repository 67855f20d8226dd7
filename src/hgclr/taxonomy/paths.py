"""Paths of names, one per line: ``A > B > C``."""

from __future__ import annotations

from hgclr.taxonomy.drafting import Draft, Labels
from hgclr.taxonomy.source import Source

__all__ = ["read_paths"]


def read_paths(source: Source, separator: str) -> Labels:
    """Read one path per line; the labels on the way to it are made where they are missing.

    A label's id is its path; its index follows the order in which the labels first occur. Spaces around a
    name are dropped.

    Raises:
        InputError: with the line, for an empty name, a path listed twice, or an empty file.
    """
    draft = Draft(source, separator)
    listed: dict[int, int] = {}
    for number, line in source.lines():
        names = [name.strip() for name in line.split(separator)]
        _check_spacing(source, names, separator, number)
        # Most paths are new below a known one; climbing from the top each time would cost the depth squared.
        if (label := draft.find(separator.join(names))) is None:
            label = draft.find(separator.join(names[:-1]))
            missing = names if label is None else names[-1:]
            label = -1 if label is None else label
            for name in missing:
                child = draft.child(label, name)
                label = draft.add(name, label, number) if child is None else child
        if (first := listed.setdefault(label, number)) != number:
            raise source.error(
                f"the path {line.strip()!r} is listed twice, first (line {first})",
                number,
                "delete or rename one of the two",
            )
    return draft.labels()


def _check_spacing(source: Source, names: list[str], separator: str, line: int) -> None:
    """Refuse ``A >B`` and ``A >`` where the separator is ``" > "``: the sign would become part of a name."""
    sign = separator.strip()
    if sign == separator or not sign:
        return
    for name in names:
        if name.startswith(sign) or name.endswith(sign):
            raise source.error(
                f"a name begins or ends with {sign!r}: {name!r}",
                line,
                f"write the separator as {separator!r}, with nothing missing on either side",
            )
