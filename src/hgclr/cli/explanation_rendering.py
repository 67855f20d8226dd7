"""Show explanations to a person in a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hgclr.explaining import ExplainedLabel, Explanation
from hgclr.explaining.explanation import METHODS, counted

__all__ = ["show_explanations"]

LISTED = 4
"""Words that are listed with their numbers."""
# Of one lightness, the stronger the more colour: black on them can be read on light and on dark terminals, and none
# stands out by being lighter or darker. The strongest words are listed with their numbers, too.
FOR = ("#a3adb8", "#86a5c9", "#639ddd", "#3f8ef0")
AGAINST = ("#b5aba1", "#c9a27d", "#dd9555", "#ee8a2d")
# Characters that a terminal would obey; one for one, because marks go by the places of characters.
HARMLESS = {code: " " for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def show_explanations(explanations: Iterable[Explanation], console: Console) -> None:
    """Show explanations to a person."""
    coloured = console.color_system is not None and not console.no_color
    for explanation in explanations:
        if not coloured:  # else the text is shown below with its marks
            console.print(Text(explanation.text.translate(HARMLESS), "bold"))
        console.print(Text(METHODS[explanation.method], "dim"))
        if explanation.unread:
            console.print(
                Text(f"not read: the last {counted(explanation.unread, 'word')}; the model reads no further", "yellow")
            )
        for label in explanation.labels:
            console.print()
            console.print(_heading(label))
            if coloured:
                console.print(Padding(_marked(label, explanation), (0, 0, 0, 2)))
            console.print(Padding(_numbers(label, explanation), (0, 0, 0, 2)))
        if explanation.unexplained:
            console.print()
            console.print(
                Text(
                    f"left out: {counted(explanation.unexplained, 'label')}, less probable; name them by --label",
                    "yellow",
                )
            )
        console.print()
        console.print(_stability(explanation))
        console.print()


def _heading(label: ExplainedLabel) -> Text:
    """Return probability, path and status of a label."""
    *above, name = label.label.path
    status = "" if label.status == "given" else f" ({label.status})"
    return Text.assemble(
        (f"{label.label.probability:4.0%} ", "bold"),
        ("".join(f"{step} > " for step in above), "dim"),
        (name, "bold"),
        (status, "yellow"),
    )


def _marked(label: ExplainedLabel, explanation: Explanation) -> Text:
    """Return the text that was read, each word on a ground that says how much it speaks for the label or against it."""
    read = explanation.text[: explanation.words[-1].stop].translate(HARMLESS)
    marked = Text(read + (" …" if explanation.unread else ""))
    for word, shade in zip(explanation.words, explanation.shades(label, len(FOR)), strict=True):
        if shade:
            ground = (FOR if shade > 0 else AGAINST)[abs(shade) - 1]
            marked.stylize(f"{'bold ' if abs(shade) == len(FOR) else ''}black on {ground}", word.start, word.stop)
    return marked


def _numbers(label: ExplainedLabel, explanation: Explanation) -> Table:
    """Return the strongest words with their numbers, and what the model says of them alone."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, words in zip(("for", "against"), explanation.strongest(label, LISTED), strict=True):
        if words:
            listed = (f"{explanation.word(word)} {explanation.number(label.relevance[word])}" for word in words)
            table.add_row(name, Text("   ".join(listed).translate(HARMLESS)))
    if chance := explanation.chance(label, len(FOR)):
        table.add_row("chance", chance)
    table.add_row(
        "tested",
        f"{counted(len(label.kept), 'word')} only {label.only_kept:.0%}   as many random words {label.only_random:.0%}"
        f"   without them {label.without_kept:.0%}",
    )
    return table


def _stability(explanation: Explanation) -> Text:
    """Return in a line or some what the words that matter most are given."""
    stability = explanation.stability
    start = f"with {len(stability.kept)} of {counted(len(explanation.words), 'word')} "
    words = f": {' '.join(explanation.word(word) for word in stability.kept)}".translate(HARMLESS)
    if stability.same:
        return Text.assemble(start, ("the labels stay the same", "green"), words)
    changes = Text.assemble(start, ("the labels change", "yellow"), words)
    for what, labels in (("lost", stability.lost), ("gained", stability.gained)):
        for label in labels:
            changes.append(f"\n  {what}: {' > '.join(label.path)} ({label.probability:.0%})")
    return changes
