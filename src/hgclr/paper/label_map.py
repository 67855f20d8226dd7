"""Figure 5: do the label vectors that a model has learned show the label tree?

The paper draws a t-SNE of the head's rows and lets the eye judge. Here each map comes with numbers from the vectors
themselves, and with what the same numbers are when parents are dealt out at random.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from math import gcd
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hgclr.errors import InputError, first_line
from hgclr.files import json_bytes, write_files
from hgclr.presentation import COLOURS, INK, MUTED, PLOT_STYLE, render
from hgclr.taxonomy import Taxonomy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


logger = logging.getLogger(__name__)
Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
BLOCK = 2**22
"""Similarities computed at a time: 32 megabytes."""
PERMUTATIONS = 200
"""How often the parents are shuffled for the baselines."""
PERPLEXITY = 30.0
"""Of t-SNE, where there are labels enough: scikit-learn's own default."""
PANEL, HEAD, FOOT = 4.7, 0.75, 0.45
"""Inches: the side of a map, the space for its title and numbers, the space for the caption."""
MARKERS = "os^DvPXp<>"
"""Children of a parent share a shape as well as a colour: for eyes and printers that do not tell colours apart."""
NAMED = 30
"""Top labels up to which their names stand on the map."""
LISTED = 40
"""Parents below the top up to which a legend is of use."""
Look = tuple[str, str]  # colour and shape
SIDES = [(x, y) for x, y in product((1, 0, -1), (0, 1, -1)) if (x, y) != (0, 0)]
DISTANCES = (8.0, 13.0, 20.0, 28.0)
"""From a point to its name, in points of type."""
# Okabe and Ito's colours for all kinds of colour vision, black and the too pale yellow replaced, and two more.
FEW = (*COLOURS, "#7a3e9d", "#8c6d31", "#666666", "#b2182b")
LIGHTNESS = (0.62, 0.46, 0.76)


@dataclass(frozen=True)
class Measure:
    """A number, and what it is when every label below the top is given one of the parents at random.

    Args:
        value: for the tree as it is.
        shuffled_mean: mean over the shuffled trees.
        shuffled_sd: their standard deviation.
        as_good: share of the trees, the true one among them, whose value is as good as this: a p-value.
    """

    value: float
    shuffled_mean: float
    shuffled_sd: float
    as_good: float

    @classmethod
    def against(cls, value: float, shuffled: Sequence[float] | Floats, *, high_is_good: bool) -> Measure:
        others = np.asarray(shuffled, dtype=np.float64)
        as_good = int((others >= value).sum() if high_is_good else (others <= value).sum())
        return cls(value, float(others.mean()), float(others.std(ddof=1)), (as_good + 1) / (len(others) + 1))

    def shuffled(self, digits: int) -> str:
        return f"{self.shuffled_mean:.{digits}f} ± {self.shuffled_sd:.{digits}f}"


@dataclass(frozen=True)
class LabelMap:
    """The labels of one model in the plane, and how well their vectors show the tree.

    Args:
        positions: by t-SNE, (K, 2).
        silhouette: by parent, from -1 to 1 (families tight and apart); None where no two parents have two children
            each.
        father_rank: mean place of a label's father among the K - 1 other labels by cosine similarity, 1 the best.
        permutations: shuffled trees behind both baselines.
        seed: of t-SNE and of the shuffled trees.
    """

    taxonomy: Taxonomy
    positions: Floats
    silhouette: Measure | None
    father_rank: Measure
    permutations: int
    seed: int

    @property
    def father_rank_by_chance(self) -> float:
        """The mean place of any one label among the K - 1 others."""
        return len(self.taxonomy) / 2

    def to_json(self) -> dict[str, Any]:
        families = np.bincount(self.taxonomy.parents[self.taxonomy.parents >= 0])
        return {
            "labels": len(self.taxonomy),
            "labels_below_top": int(families.sum()),
            "parents": int((families > 0).sum()),
            "parents_with_one_child": int((families == 1).sum()),
            "silhouette_by_parent": None if self.silhouette is None else asdict(self.silhouette),
            "mean_rank_of_father": {**asdict(self.father_rank), "by_chance": self.father_rank_by_chance},
            "permutations": self.permutations,
            "seed": self.seed,
            "positions": {
                label: [round(float(value), 3) for value in place]
                for label, place in zip(self.taxonomy.ids, self.positions, strict=True)
            },
        }


def map_models(folders: Mapping[str, Path], *, seed: int = 0, permutations: int = PERMUTATIONS) -> dict[str, LabelMap]:
    """Map the label vectors of models, folders that ``hgclr train`` wrote, by the name to show; all have one tree."""
    loaded = {name: label_vectors(folder) for name, folder in folders.items()}
    (first, (_, taxonomy)), *others = loaded.items()
    for name, (_, other) in others:
        if other != taxonomy:
            pairs = ((other.path_name(index), taxonomy.path_name(index)) for index in range(len(taxonomy)))
            difference = f"{len(other)} labels, there {len(taxonomy)}"
            if len(other) == len(taxonomy):
                places = [(index, *pair) for index, pair in enumerate(pairs) if pair[0] != pair[1]]
                difference = "label {} is {!r}, there {!r}".format(*places[0]) if places else "ids differ"
            raise InputError(
                f"its label tree is not that of {folders[first]}: {difference}",
                path=folders[name],
                remedy="give models that were trained on the same label tree",
            )
    return {
        name: map_labels(vectors, taxonomy, seed=seed, permutations=permutations)
        for name, (vectors, _) in loaded.items()
    }


def label_vectors(folder: Path) -> tuple[Floats, Taxonomy]:
    """Return the rows of a model's last linear layer, W_c, (K, H), and its label tree."""
    from hgclr.models import load_deployed

    remedy = "give the folder 'model' that hgclr train wrote"
    if not (folder / "config.json").is_file():
        raise InputError("no model here", path=folder, remedy=remedy)
    try:
        model = load_deployed(folder)
    except (OSError, ValueError) as error:
        raise InputError(f"no model could be loaded: {first_line(error)}", path=folder, remedy=remedy) from error
    if model.config.classifier_start == "names":
        logger.warning(
            "%s: its head started from the labels' names, which show the tree before training; to see what training"
            " makes of it, take models of the preset paper or published",
            folder,
        )
    return model.classifier.weight.detach().double().numpy(), model.config.taxonomy


def map_labels(vectors: Floats, taxonomy: Taxonomy, *, seed: int = 0, permutations: int = PERMUTATIONS) -> LabelMap:
    """Map label vectors, (K, H), into the plane, and measure in their own space how well they show the tree."""
    from sklearn.manifold import TSNE

    if taxonomy.depth < 2:
        raise InputError(
            f"the label tree has one level, so that none of its {len(taxonomy)} labels has a father to be near to",
            remedy="give models of a tree of two levels or more",
        )
    shuffled = shuffled_parents(taxonomy.parents, permutations, seed)
    silhouette = parent_silhouette(vectors, taxonomy.parents)
    # A shuffled tree has families of the same sizes, hence a silhouette if the true one has.
    silhouettes = [] if silhouette is None else [parent_silhouette(vectors, parents) or 0.0 for parents in shuffled]
    ranks = np.nanmean(father_ranks(vectors, np.concatenate([taxonomy.parents[np.newaxis], shuffled])), axis=1)
    perplexity = min(PERPLEXITY, (len(taxonomy) - 1) / 3)
    tsne = TSNE(metric="cosine", init="pca", perplexity=perplexity, random_state=seed, n_jobs=1)
    return LabelMap(
        taxonomy=taxonomy,
        positions=np.asarray(tsne.fit_transform(vectors), dtype=np.float64),
        silhouette=None if silhouette is None else Measure.against(silhouette, silhouettes, high_is_good=True),
        father_rank=Measure.against(float(ranks[0]), ranks[1:], high_is_good=False),
        permutations=permutations,
        seed=seed,
    )


def shuffled_parents(parents: Indices, count: int, seed: int) -> Indices:
    """Return ``count`` times the parents, (count, K), dealt out anew among the labels below the top.

    Top labels stay at the top, and every parent keeps its number of children.
    """
    random = np.random.default_rng(seed)
    shuffled = np.tile(parents, (count, 1))
    below = np.flatnonzero(parents >= 0)
    shuffled[:, below] = random.permuted(shuffled[:, below], axis=1)
    return shuffled


def _unit(vectors: Floats) -> Floats:
    """Return the vectors at length 1; a zero vector stays as it is, at cosine 0 to everything."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths == 0, 1.0, lengths)


def parent_silhouette(vectors: Floats, parents: Indices) -> float | None:
    """Return the mean silhouette of labels below the top, clustered by parent, from vectors, (K, H), and parents, (K,).

    ``s_i = (b_i - a_i) / max(a_i, b_i)``: a_i the mean cosine distance to the siblings, b_i that to the nearest other
    family. It needs no K x K table: with unit vectors, ``Σ_j (1 - x_i·x_j) = n - x_i·Σ_j x_j``. None where no two
    parents have two children each.
    """
    below = np.flatnonzero(parents >= 0)
    _, family, sizes = np.unique(parents[below], return_inverse=True, return_counts=True)
    below = below[sizes[family] > 1]  # an only child has no siblings to be near to
    _, family, sizes = np.unique(parents[below], return_inverse=True, return_counts=True)
    if len(sizes) < 2:
        return None
    units = _unit(vectors[below])
    sums = np.zeros((len(sizes), units.shape[1]))
    np.add.at(sums, family, units)
    total = 0.0
    rows = max(1, BLOCK // len(sizes))
    for start in range(0, len(below), rows):
        some, own = units[start : start + rows], family[start : start + rows]
        similarity = some @ sums.T  # (n, families)
        at = np.arange(len(some)), own
        to_itself = 1 - np.einsum("ij,ij->i", some, some)  # which belongs to no mean
        near = (sizes[own] - similarity[at] - to_itself) / (sizes[own] - 1)
        distance = 1 - similarity / sizes
        distance[at] = np.inf
        apart = distance.min(1)
        larger = np.maximum(near, apart)
        total += float(np.divide(apart - near, larger, out=np.zeros_like(near), where=larger > 0).sum())
    return total / len(below)


def father_ranks(vectors: Floats, parents: Indices) -> Floats:
    """Return the place of each label's father among all other labels by cosine similarity, 1 for the nearest.

    Labels equally near share the mean of their places. It is nan for a top label and, as can happen in a shuffled tree,
    for a label that is its own father.

    Args:
        vectors: (K, H).
        parents: each label's parent, -1 for a top label, (K,), or several such rows, (P, K): the result's shape.
    """
    from scipy.stats import rankdata

    units = _unit(vectors)
    ranks = np.full(parents.shape, np.nan)
    rows = max(1, BLOCK // len(units))
    for start in range(0, len(units), rows):
        here = np.arange(start, min(start + rows, len(units)))
        distance = -(units[here] @ units.T)  # (n, K)
        distance[here - start, here] = np.inf  # itself comes last
        places = rankdata(distance, axis=1)
        fathers = parents[..., here]
        found = places[here - start, fathers]  # a top label's -1 reads some other place, which is thrown away
        ranks[..., here] = np.where((fathers < 0) | (fathers == here), np.nan, found)
    return ranks


def write_label_maps(maps: Mapping[str, LabelMap], folder: Path, report: Mapping[str, Any] | None = None) -> list[Path]:
    """Write ``figure5.png``, ``figure5.svg`` and ``figure5.json`` into a folder, and return their paths.

    The maps are those of one label tree, by the name to show; ``report`` is what else the JSON is to say.
    """
    figure = draw_label_maps(maps)
    numbers = {**(report or {}), "maps": {name: one.to_json() for name, one in maps.items()}}
    pictures = {f"figure5.{kind}": render(figure, kind) for kind in ("png", "svg")}
    return write_files(folder, {**pictures, "figure5.json": json_bytes(numbers)})


def draw_label_maps(maps: Mapping[str, LabelMap]) -> Figure:
    """Draw the maps side by side, each under its name and its numbers."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    taxonomy = next(iter(maps.values())).taxonomy
    looks = _looks(taxonomy)
    # In the legend stand those parents whose names do not stand on the map, unless they are too many.
    named = len(taxonomy.levels[0]) <= NAMED
    listed = [node for node in looks if taxonomy.parents[node] >= 0 or not named]
    listed = listed if len(listed) <= LISTED else []
    width = PANEL * len(maps)
    longest = max((len(_shortened(taxonomy.names[node])) for node in listed), default=0)
    columns = max(1, int(width / (0.35 + 0.06 * longest)))  # inches: mark and space, a character
    legend = 0.15 * -(-len(listed) // columns) + 0.12 if listed else 0.0
    height = PANEL + HEAD + FOOT + legend
    with mpl.rc_context(PLOT_STYLE):
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)  # measures the names
        for column, (name, one) in enumerate(maps.items()):
            left, bottom = (column + 0.02) / len(maps), (FOOT + legend) / height
            axes = figure.add_axes((left, bottom, 0.96 / len(maps), PANEL / height))
            axes.set(xticks=[], yticks=[])
            axes.margins(0.09)
            _draw(axes, one, looks)
            axes.text(0, 1.1, name, transform=axes.transAxes, fontsize=12, fontweight="bold")
            axes.text(0, 1.015, _numbers(one), transform=axes.transAxes, fontsize=8, linespacing=1.4)
        if listed:
            figure.legend(
                handles=[
                    Line2D([], [], color=colour, marker=marker, linestyle="none", markersize=4.5, label=name)
                    for name, (colour, marker) in ((_shortened(taxonomy.names[node]), looks[node]) for node in listed)
                ],
                loc="upper left",
                bbox_to_anchor=(0.01, (FOOT + legend) / height),
                ncols=columns,
                fontsize=7,
                frameon=False,
                handletextpad=0.2,
            )
        figure.text(0.01, 0.1 / height, _caption(taxonomy, looks), fontsize=7, color=MUTED, linespacing=1.4)
    return figure


def _looks(taxonomy: Taxonomy) -> dict[int, Look]:
    """Return the colour and shape of every parent's children; a top label without children has its own."""
    parents = np.unique(taxonomy.parents[taxonomy.parents >= 0])
    nodes = [*taxonomy.levels[0].tolist(), *(node for node in parents.tolist() if taxonomy.parents[node] >= 0)]
    colours = distinct_colours(len(nodes))
    return {node: (colours[place], MARKERS[place % len(MARKERS)]) for place, node in enumerate(nodes)}


def _draw(axes: Axes, one: LabelMap, looks: Mapping[int, Look]) -> None:
    """Draw one map: a line from each label to its father, small shapes below the top, large ones at the top."""
    from matplotlib.collections import LineCollection

    taxonomy, at = one.taxonomy, one.positions
    below = np.flatnonzero(taxonomy.parents >= 0)
    lines = np.stack([at[below], at[taxonomy.parents[below]]], axis=1)  # (n, 2, 2)
    colours = [looks[int(parent)][0] for parent in taxonomy.parents[below]]
    axes.add_collection(LineCollection(lines, colors=colours, linewidths=0.4, alpha=0.35, zorder=1))  # type: ignore[arg-type]
    for parent, (colour, marker) in looks.items():
        x, y = at[taxonomy.children(parent)].T
        axes.scatter(x, y, s=20, c=colour, marker=marker, linewidths=0.3, edgecolors="white", zorder=2)
    top = taxonomy.levels[0].tolist()
    for node in top:
        colour, marker = looks[node]
        axes.scatter(at[node, 0], at[node, 1], s=110, c=colour, marker=marker, linewidths=1.1, edgecolors=INK, zorder=3)
    if len(top) <= NAMED:
        _place_names(axes, at[top], [_shortened(taxonomy.names[node]) for node in top], avoid=at)


def _numbers(one: LabelMap) -> str:
    silhouette = "not defined: no two parents have two children"
    if one.silhouette is not None:
        silhouette = f"{one.silhouette.value:.3f}  (shuffled: {one.silhouette.shuffled(3)})"
    others, chance = len(one.taxonomy) - 1, one.father_rank_by_chance
    shuffled = one.father_rank.shuffled(1)
    rank = f"{one.father_rank.value:.1f} of {others:,}  (shuffled: {shuffled}; any label: {chance:,.1f})"
    return f"silhouette by parent  {silhouette}\nmean rank of the father  {rank}".replace("-", "−")


def _caption(taxonomy: Taxonomy, looks: Mapping[int, Look]) -> str:
    """Return what the reader must know to read the maps."""
    unnamed = "" if len(looks) - len(taxonomy.levels[0]) <= LISTED else ", too many to name them"
    return (
        f"t-SNE of the {len(taxonomy):,} label vectors (rows of the linear head) by cosine distance. Large: top labels."
        " Small: the labels below, with a line to the father.\n"
        f"One colour and shape per father{unnamed}. Numbers: of the vectors, not of the map; shuffled: with fathers"
        " dealt out at random, mean ± standard deviation."
    )


def _place_names(axes: Axes, points: Floats, names: Sequence[str], *, avoid: Floats) -> None:
    """Write each name beside its point, with a thin line to it where it had to go farther away.

    Names are placed one after the other, each where it covers the least of the names before it and of the points
    ``avoid``, (m, 2), and stays within the axes. The axes' figure must have a canvas that can measure text.
    """
    from matplotlib.patheffects import withStroke

    figure: Any = axes.get_figure(root=True)
    renderer, pixels_per_point = figure.canvas.get_renderer(), figure.dpi / 72
    frame = axes.get_window_extent()
    # The points that are named count more than the others, being larger.
    dots = axes.transData.transform(np.concatenate([avoid, *[points] * 3]))
    taken: list[Floats] = []
    for point, name in zip(points, names, strict=True):
        text = axes.annotate(name, point, (0, 0), textcoords="offset points", ha="center", va="center", zorder=5)
        text.set(fontsize=8, fontweight="bold", path_effects=[withStroke(linewidth=2.5, foreground="white")])
        extent = text.get_window_extent(renderer)
        half = np.array([extent.width, extent.height]) / 2 + (4, 1)  # pixels of space around
        origin = axes.transData.transform(point)
        best = None
        for distance, side in product(DISTANCES, SIDES):
            centre = origin + np.array(side) * (distance * pixels_per_point + half * (1, 0.6))
            box = np.array([centre - half, centre + half])
            cost = _cost(box, taken, dots, np.array([frame.min, frame.max])) + distance / 10
            if best is None or cost < best[0]:
                best = cost, box, (centre - origin) / pixels_per_point, distance
        if best is not None:
            taken.append(best[1])
            text.set_position(tuple(best[2]))
            if best[3] > DISTANCES[1]:
                line = {"arrowstyle": "-", "linewidth": 0.5, "color": "#444444"}
                axes.annotate("", point, tuple(best[2]), textcoords="offset points", zorder=4, arrowprops=line)


def _cost(box: Floats, taken: Sequence[Floats], dots: Floats, frame: Floats) -> float:
    """Return how bad a place is: covered points count one each, covered names and space outside the frame much more."""

    def overlap(other: Floats) -> float:
        return float(np.clip(np.minimum(box[1], other[1]) - np.maximum(box[0], other[0]), 0, None).prod())

    covered = ((dots > box[0]) & (dots < box[1])).all(1).sum()
    area = float((box[1] - box[0]).prod())
    return float(covered + 40 * (sum(map(overlap, taken)) + area - overlap(frame)) / area)


def distinct_colours(count: int) -> list[str]:
    """Return ``count`` colours as far apart as may be, dark enough to be seen on white.

    Above ten they lie on three circles of hues, one per degree of lightness; colours that follow each other differ in
    both.
    """
    if count <= len(FEW):
        return list(FEW[:count])
    around = -(-count // len(LIGHTNESS))  # hues on each circle
    step = next(number for number in range(around // 2, 0, -1) if gcd(number, around) == 1)
    colours = []
    for number in range(count):
        place, circle = divmod(number, len(LIGHTNESS))
        hue = place * step % around / around + circle / len(LIGHTNESS)
        colours.append(_hue_colour(hue, LIGHTNESS[circle]))
    return colours


def _hue_colour(hue: float, lightness: float, chroma: float = 0.13) -> str:
    """Return a colour of the OKLCH space, in which equal lightness looks equal, as a hexadecimal sRGB value."""
    a, b = chroma * np.cos(2 * np.pi * hue), chroma * np.sin(2 * np.pi * hue)
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = np.array(
        [
            4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
            -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
            -0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short,
        ]
    ).clip(0, 1)
    encoded = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return "#" + "".join(f"{round(255 * value):02x}" for value in encoded.tolist())


def _shortened(name: str, longest: int = 30) -> str:
    return name if len(name) <= longest else name[: longest - 1].rstrip() + "…"
