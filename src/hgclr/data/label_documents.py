"""The label tree as training data: each label's name, path and description are short documents about that label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hgclr.data.folder import Document
from hgclr.taxonomy import Taxonomy

__all__ = ["label_documents", "label_texts"]


def label_texts(taxonomy: Taxonomy) -> list[str]:
    """Return each label's name as a text, (K,): without underscores, and with its path if other labels share the name.

    Example:
        >>> label_texts(Taxonomy(["arts", "arts/other", "law", "law/other"], [-1, 0, -1, 2], ["arts", "other", "law", "other"]))
        ['arts', 'arts > other', 'law', 'law > other']
    """
    carriers = Counter(taxonomy.names)
    names = (name if carriers[name] == 1 else taxonomy.path_name(label) for label, name in enumerate(taxonomy.names))
    return [_readable(name) for name in names]


def label_documents(taxonomy: Taxonomy) -> Iterator[Document]:
    """Yield documents about each label: its name, the path to it, and its description where the tree has one.

    Their labels are the label and its ancestors.

    Example:
        >>> tree = Taxonomy(["science", "physics"], [-1, 0])
        >>> [(document.text, document.labels) for document in label_documents(tree)]
        [('science', (0,)), ('physics', (0, 1)), ('science > physics', (0, 1))]
    """
    for label, text in enumerate(label_texts(taxonomy)):
        labels = tuple(sorted(taxonomy.path(label).tolist()))
        path, description = _readable(taxonomy.path_name(label)), taxonomy.descriptions[label]
        for words in dict.fromkeys([text, path, *([description] if description else [])]):
            yield Document(words, labels)


def _readable(name: str) -> str:
    """Write a name such as ``card_declined`` in words, unless nothing would be left of it."""
    return " ".join(name.replace("_", " ").split()) or name
