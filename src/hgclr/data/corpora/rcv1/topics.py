"""Read the topic tree of RCV1-v2 as its publisher hands it out (``rcv1.topics.hier.orig``)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.drafting import Entry, link
from hgclr.taxonomy.source import Source

__all__ = ["LabelNames", "read_topics"]

LabelNames = Literal["codes", "descriptions"]

LINE = re.compile(r"\s*parent:\s*(\S+)\s+child:\s*(\S+)\s+child-description:\s*(\S.*)")
ROOT = "Root"
"""What stands above the top topics; it is no topic."""


def read_topics(path: str | Path, label_names: LabelNames = "codes") -> Taxonomy:
    """Read lines ``parent: CCAT  child: C11  child-description: STRATEGY/PLANS`` in any order.

    The topics come in the order of the literature's label file, so that an index means the same topic in the
    published models: the children of the root, then, going down the tree depth first, the children of each topic.

    Args:
        path: the file.
        label_names: what a topic is called: its code or its description. Its id is the code in both cases.

    Raises:
        InputError: with the line, if a line is of another form, a parent is never defined, or the topics are no tree.
    """
    source = Source.load(path)
    entries = []
    for number, line in source.lines():
        found = LINE.fullmatch(line)
        if found is None:
            raise source.error(
                f"not a line of a topic file: {line.strip()[:60]!r}",
                number,
                "write 'parent: CODE  child: CODE  child-description: TEXT'",
            )
        parent, code, description = found.groups()
        if code != ROOT:
            name = code if label_names == "codes" else " ".join(description.split())
            entries.append(Entry(code, name, None if parent == ROOT else parent, number))
    return _in_literature_order(Taxonomy(*link(entries, source)))


def _in_literature_order(tree: Taxonomy) -> Taxonomy:
    order = [child for node in (-1, *tree.walk.tolist()) for child in tree.children(node).tolist()]
    place = {old: new for new, old in enumerate(order)} | {-1: -1}
    parents = [place[int(tree.parents[old])] for old in order]
    return Taxonomy([tree.ids[old] for old in order], parents, [tree.names[old] for old in order])
