"""``hgclr taxonomy check``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hgclr.cli.taxonomy.options import File, Format, Separator

if TYPE_CHECKING:
    from hgclr.taxonomy import Taxonomy

__all__ = ["check"]

LEVELS = 16
"""How many levels are counted one by one."""


def check(file: File, format: Format = "auto", separator: Separator = " > ") -> None:  # noqa: A002
    """Say whether FILE is a valid label tree, and what is in it.

    What makes no tree is refused with its line and a remedy (exit code 2):
    a cycle, two parents, an unknown parent, an empty or a repeated label.

    Example: hgclr taxonomy check labels.tsv
    """
    from rich.console import Console
    from rich.text import Text

    from hgclr.taxonomy import Taxonomy

    taxonomy = Taxonomy.read(file, format=format, separator=separator)
    console = Console()
    console.print(Text(f"{file}: a valid label tree", style="bold"), soft_wrap=True)
    for subject, finding in _summary(taxonomy):
        console.print(Text(f"  {subject:<16}", style="dim").append(finding, style="default"), soft_wrap=True)


def _summary(taxonomy: Taxonomy) -> Iterator[tuple[str, str]]:
    """Yield what is worth knowing about a tree."""
    yield "labels", f"{len(taxonomy):,}"
    yield "depth", f"{taxonomy.depth:,}"
    counts = [f"{len(level):,}" for level in taxonomy.levels]
    more = f" and {len(counts) - LEVELS:,} more levels" if len(counts) > LEVELS else ""
    yield "per level", " · ".join(counts[:LEVELS]) + more
    yield "leaves", f"{len(taxonomy.leaves):,}"
    repeated = [(name, count) for name, count in Counter(taxonomy.names).most_common() if count > 1]
    if repeated:
        labels = sum(count for _, count in repeated)
        (name, count), *_ = repeated
        yield "repeated names", f"{len(repeated):,} on {labels:,} labels, such as {name!r} on {count:,}"
    else:
        yield "repeated names", "none"
    having = sum(map(bool, taxonomy.descriptions))
    yield "descriptions", f"{having:,} of {len(taxonomy):,} labels" if having else "none"
    ((widest, count),) = Counter(taxonomy.parents.tolist()).most_common(1)
    place = "the virtual root" if widest < 0 else repr(taxonomy.ids[widest])
    yield "widest node", f"{place} with {count:,} {'child' if count == 1 else 'children'}"
