"""Figure 3 as files: a page for the screen, a picture for print, and the numbers behind both."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from hgclr.files import json_bytes, write_files
from hgclr.paper.kept_tokens import KeptTokens, Piece
from hgclr.presentation import INK, MUTED, PLOT_STYLE, render
from hgclr.taxonomy import Taxonomy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_kept_tokens", "kept_tokens_html", "write_kept_tokens"]

LEVELS = 5
"""Steps in which the share of draws that keep a token is shown."""
LISTED = 8
"""Words named as kept most and least often."""
KEPT, DROPPED = (163, 22, 42), (120, 120, 120)
COLUMNS, GUTTER, NUMBER = 92, 15, 4
"""Characters in a line of a document, to the left of it, and to the left of its labels."""
SIZE, LINE, MARGIN = 8.0, 13.0, 14.0
"""Points: height of type, from line to line, around everything."""
CHARACTER = 0.602 * SIZE
"""Width of each character of the typewriter face, in points."""
TALLEST = 60 * 72.0
"""Points after which no further document is begun; the HTML has them all."""
FONT = "DejaVu Sans Mono"
LEGEND = "Kept tokens are red, bold and underlined. Over many draws: the redder and thicker, the more of them keep it."
Look = TypeVar("Look")


def write_kept_tokens(
    documents: Sequence[KeptTokens],
    taxonomy: Taxonomy,
    folder: Path,
    *,
    model: str,
    rule: str,
    seed: int,
    report: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Write ``figure3.html``, ``figure3.png`` and ``figure3.json`` into a folder, and return their paths.

    Args:
        documents: at least one, all with as many draws.
        taxonomy: the label tree.
        folder: made if it is not there; other files in it stay.
        model: how to call the model.
        rule: which tokens it keeps, in words.
        seed: that decided the draws.
        report: what the JSON shall say beside all this, such as the machine.
    """
    numbers = {
        **(report or {}),
        "model": model,
        "rule": rule,
        "seed": seed,
        "draws_shown": documents[0].shown,
        "draws": len(documents[0].kept),
        "documents": [document.to_json(taxonomy) for document in documents],
    }
    return write_files(
        folder,
        {
            "figure3.html": kept_tokens_html(documents, model=model, rule=rule, seed=seed).encode(),
            "figure3.png": render(draw_kept_tokens(documents, rule), "png"),
            "figure3.json": json_bytes(numbers),
        },
    )


def kept_tokens_html(documents: Sequence[KeptTokens], *, model: str, rule: str, seed: int) -> str:
    """Return the page: for every document its labels, its draws, and how often each token is kept.

    Kept tokens are coloured, bold and underlined; shares are told by shade and by the thickness of a line, and in
    numbers where the pointer rests. The page follows the reader's choice of light or dark.
    """
    from jinja2 import Environment, PackageLoader

    environment = Environment(
        loader=PackageLoader("hgclr.paper"), autoescape=True, trim_blocks=True, keep_trailing_newline=True
    )
    return environment.get_template("kept_tokens.html.jinja").render(
        documents=documents,
        model=model,
        rule=rule,
        seed=seed,
        levels=LEVELS,
        draws=lambda document, draw: _stretches(document, lambda piece: piece.kept[draw]),
        shares=lambda document: _stretches(document, _share),
        extremes=_extremes,
    )


def _stretches(document: KeptTokens, look: Callable[[Piece], Look]) -> Iterator[tuple[str, Look | None]]:
    """Yield the text part by part with what ``look`` says of it: pieces of a word that look alike are one part."""
    position = 0
    for (_, value), group in groupby(document.pieces(), key=lambda piece: (piece.word, look(piece))):
        pieces = list(group)
        yield document.text[position : pieces[0].start], None
        position = pieces[-1].stop
        yield document.text[pieces[0].start : position], value
    yield (" …" if document.cut else document.text[position:]), None


def _share(piece: Piece) -> tuple[int, str]:
    return min(LEVELS - 1, int(piece.share * LEVELS)), f"{piece.share:.0%}"


def _extremes(document: KeptTokens) -> tuple[list[str], list[str]]:
    """Return the words kept more and less often than the rest, the most telling first."""
    words = document.word_shares()
    often = [item for item in words if item[1] > document.fraction]
    seldom = [item for item in reversed(words) if item[1] < document.fraction]
    most, least = ([f"{word} {share:.0%}" for word, share in some[:LISTED]] for some in (often, seldom))
    return most, least


def draw_kept_tokens(documents: Sequence[KeptTokens], rule: str) -> Figure:
    """Draw the documents one below the other: labels, the draws, and how often each token is kept."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(PLOT_STYLE):
        figure = Figure()
        axes = figure.add_axes((0, 0, 1, 1))
        axes.axis("off")
        bottom = _Writer(axes).write(documents, rule)
        width = 2 * MARGIN + (COLUMNS + GUTTER) * CHARACTER
        axes.set(xlim=(0, width), ylim=(bottom, 0))
        figure.set_size_inches(width / 72, bottom / 72)
    return figure


class _Look(NamedTuple):
    colour: str
    bold: bool
    line: float  # its thickness below the type, 0 for none


PLAIN = _Look(MUTED, False, 0.0)


class _Writer:
    """Set type line by line, from the top of the axes down; the unit is the point."""

    def __init__(self, axes: Axes) -> None:
        self.axes, self.height = axes, MARGIN

    def write(self, documents: Sequence[KeptTokens], rule: str) -> float:
        self.plain("Tokens kept in positive samples", size=11, bold=True)
        self.plain(f"The model keeps {rule}.", colour=MUTED)
        self.plain(LEGEND, colour=MUTED)
        for number, document in enumerate(documents, 1):
            self.height += LINE
            if self.height > TALLEST:
                left = len(documents) - number + 1
                self.plain(f"{left} more document{'s'[: left > 1]}: see figure3.html", colour=MUTED)
                break
            self.document(number, document)
        return self.height + MARGIN

    def document(self, number: int, document: KeptTokens) -> None:
        for place, path in enumerate(document.paths):
            if not place:
                self.axes.text(MARGIN, self.height + 1.1 * LINE, f"{number}.", fontsize=SIZE, fontweight="bold")
            self.plain(path, indent=NUMBER, bold=True)
        for draw in range(document.shown):
            name = f"draw {draw + 1}: {document.counts[draw]}/{document.length}"
            self.marked(name, document, [_kept_look(piece.kept[draw]) for piece in document.pieces()])
        self.marked(f"{len(document.kept)} draws", document, [_share_look(piece.share) for piece in document.pieces()])
        self.plain(document.summary(), indent=GUTTER, colour=MUTED)

    def plain(self, text: str, *, indent: int = 0, size: float = SIZE, bold: bool = False, colour: str = INK) -> None:
        room = round((COLUMNS + GUTTER - indent) * (1.0 if bold else 1.1))  # plain type runs narrower than typewriter's
        for line in wrap(text, room):
            self.height += 1.1 * LINE
            weight = "bold" if bold else "normal"
            left = MARGIN + indent * CHARACTER
            self.axes.text(left, self.height, line, fontsize=size, fontweight=weight, color=colour)

    def marked(self, name: str, document: KeptTokens, looks: Sequence[_Look]) -> None:
        """Write the text behind its name, each of its pieces in its own look."""
        text = document.text[: document.read] + (" …" if document.cut else document.text[document.read :])
        by_character = [PLAIN] * len(text)
        for piece, look in zip(document.pieces(), looks, strict=True):
            by_character[piece.start : piece.stop] = [look] * (piece.stop - piece.start)
        self.height += 0.4 * LINE
        self.axes.text(MARGIN, self.height + LINE, name, fontsize=SIZE, color=MUTED)
        for words in _lines(text):
            self.height += LINE
            for column, start, stop in words:
                for look, group in groupby(range(start, stop), key=by_character.__getitem__):
                    places = list(group)
                    self.run(text[places[0] : places[-1] + 1], column + places[0] - start, look)

    def run(self, text: str, column: int, look: _Look) -> None:
        """Write characters of one look at a column of the line, and the line below them."""
        # One by one, because type is set in whole pixels, and words after each other would drift off their columns.
        left = MARGIN + (GUTTER + column) * CHARACTER
        weight = "bold" if look.bold else "normal"
        self.axes.text(left, self.height, text, fontsize=SIZE, fontfamily=FONT, fontweight=weight, color=look.colour)
        if look.line:
            ends = [left + 0.4, left + len(text) * CHARACTER - 0.4]
            self.axes.plot(ends, [self.height + 2.6] * 2, color=look.colour, linewidth=look.line, solid_capstyle="butt")


def _lines(text: str) -> Iterator[list[tuple[int, int, int]]]:
    """Break a text at white space into lines, and yield column, start and stop of what stands in each.

    What is longer than a line is broken where the line ends.
    """
    line: list[tuple[int, int, int]] = []
    column = 0
    for match in re.finditer(r"\S+", text):
        for start in range(match.start(), match.end(), COLUMNS):
            stop = min(start + COLUMNS, match.end())
            if line and column + stop - start > COLUMNS:
                yield line
                line, column = [], 0
            line.append((column, start, stop))
            column += stop - start + 1
    yield line


def _kept_look(kept: bool) -> _Look:
    return _share_look(1.0)._replace(line=0.9) if kept else PLAIN


def _share_look(share: float) -> _Look:
    """Return a look that tells the share, to a tenth, by colour and by the thickness of the line."""
    share = round(share, 1)
    parts = (round(low + share * (high - low)) for low, high in zip(DROPPED, KEPT, strict=True))
    return _Look("#" + "".join(f"{part:02x}" for part in parts), share >= 0.8, 2.0 * share)
