"""How a label is written on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

    from hgclr.taxonomy import Taxonomy

__all__ = ["label_text", "path_text", "printable"]


def label_text(taxonomy: Taxonomy, index: int, separator: str) -> Text:
    """Return a label's name, and its id where that says more than the name and the place in the tree."""
    from rich.text import Text

    name, identifier = taxonomy.names[index], taxonomy.ids[index]
    text = Text(printable(name))
    if identifier not in (name, taxonomy.path_name(index, separator)):
        text.append(f"  {printable(identifier)}", style="cyan")
    return text


def path_text(taxonomy: Taxonomy, index: int, separator: str) -> Text:
    """Return a label's path of names, and its id where that says more."""
    from rich.text import Text

    path, identifier = taxonomy.path_name(index, separator), taxonomy.ids[index]
    text = Text(printable(path))
    if identifier not in (taxonomy.names[index], path):
        text.append(f"  {printable(identifier)}", style="cyan")
    return text


def printable(text: str) -> str:
    """Return text without line ends and without the control characters that would steer the terminal."""
    return "".join(character if character.isprintable() else " " for character in text)
