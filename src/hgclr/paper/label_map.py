"""Figure 5: a t-SNE map of the label vectors, with measures of how well they show the label tree.

The paper only shows the t-SNE of the head's rows. Here each map has two measures, computed from the vectors, and the
same measures for parents assigned at random.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hgclr.errors import InputError, first_line
from hgclr.files import json_bytes, write_files
from hgclr.presentation import COLOURS, INK, Plot, draw
from hgclr.taxonomy import Taxonomy

if TYPE_CHECKING:
    from matplotlib.figure import Figure


logger = logging.getLogger(__name__)
Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
BLOCK = 2**22
"""Similarities computed at a time: 32 MB."""
PERMUTATIONS = 200
"""Number of shuffled trees for the baselines."""
PERPLEXITY = 30.0
"""Perplexity of t-SNE if there are enough labels, scikit-learn's default."""
PANEL = 4.7
"""Side of a map in inches."""
MARKERS = "os^DvPXp<>"
"""Children of a parent share a shape besides a colour, for readers who cannot tell colours apart."""
LISTED = 40
"""The legend names up to this many parents."""


@dataclass(frozen=True)
class Measure:
    """A measure of the label tree, and its distribution over trees with shuffled parents.

    Args:
        value: the measure of the true tree.
        shuffled_mean: mean over the shuffled trees.
        shuffled_sd: standard deviation over the shuffled trees.
        as_good: share of all trees, the true one included, with a value at least as good: a p-value.
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
    """The labels of one model in the plane, with two measures of how well their vectors show the tree.

    ``positions`` are from t-SNE, (K, 2). The silhouette by parent is between -1 and 1 (siblings close together, far
    from others), None unless two parents have two children each. ``parent_rank`` is the mean rank of a label's parent
    among the K - 1 other labels by cosine similarity; 1 is the best. ``permutations`` is the number of shuffled trees.
    """

    taxonomy: Taxonomy
    positions: Floats
    silhouette: Measure | None
    parent_rank: Measure
    permutations: int
    seed: int

    @property
    def parent_rank_by_chance(self) -> float:
        """The mean rank of a random label among the K - 1 others."""
        return len(self.taxonomy) / 2

    def to_json(self) -> dict[str, Any]:
        families = np.bincount(self.taxonomy.parents[self.taxonomy.parents >= 0])
        return {
            "labels": len(self.taxonomy),
            "labels_below_top": int(families.sum()),
            "parents": int((families > 0).sum()),
            "parents_with_one_child": int((families == 1).sum()),
            "silhouette_by_parent": None if self.silhouette is None else asdict(self.silhouette),
            "mean_rank_of_parent": {**asdict(self.parent_rank), "by_chance": self.parent_rank_by_chance},
            "permutations": self.permutations,
            "seed": self.seed,
            "positions": {
                label: [round(float(value), 3) for value in place]
                for label, place in zip(self.taxonomy.ids, self.positions, strict=True)
            },
        }


def map_models(folders: Mapping[str, Path], *, seed: int = 0, permutations: int = PERMUTATIONS) -> dict[str, LabelMap]:
    """Return the label maps of models, given as folders by the name to show; all must have the same label tree."""
    loaded = {name: label_vectors(folder) for name, folder in folders.items()}
    (first, (_, taxonomy)), *others = loaded.items()
    for name, (_, other) in others:
        if other != taxonomy:
            raise InputError(
                f"its label tree ({len(other)} labels) differs from that of {folders[first]} ({len(taxonomy)} labels)",
                path=folders[name],
                remedy="give models with the same label tree",
            )
    return {
        name: map_labels(vectors, taxonomy, seed=seed, permutations=permutations)
        for name, (vectors, _) in loaded.items()
    }


def label_vectors(folder: Path) -> tuple[Floats, Taxonomy]:
    """Return the rows of a model's head, W_c, (K, H), and its label tree."""
    from hgclr.models import load_deployed

    remedy = "give the folder 'model' that hgclr train wrote"
    if not (folder / "config.json").is_file():
        raise InputError("the folder has no model", path=folder, remedy=remedy)
    try:
        model = load_deployed(folder)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot load the model: {first_line(error)}", path=folder, remedy=remedy) from error
    if model.config.classifier_start == "names":
        logger.warning(
            "%s: its head started from the label names, which show the tree before training; to see the effect of"
            " training, use models with the preset paper or published",
            folder,
        )
    return model.classifier.weight.detach().double().numpy(), model.config.taxonomy


def map_labels(vectors: Floats, taxonomy: Taxonomy, *, seed: int = 0, permutations: int = PERMUTATIONS) -> LabelMap:
    """Return the map of label vectors, (K, H), and measures of how well they show the tree."""
    from sklearn.manifold import TSNE

    if taxonomy.depth < 2:
        raise InputError(
            f"the label tree has one level, so none of its {len(taxonomy)} labels has a parent",
            remedy="give models with a label tree of two or more levels",
        )
    shuffled = shuffled_parents(taxonomy.parents, permutations, seed)
    silhouette = parent_silhouette(vectors, taxonomy.parents)
    # Shuffled trees have as many children per parent, so they have a silhouette if the true tree has one.
    silhouettes = [] if silhouette is None else [parent_silhouette(vectors, parents) or 0.0 for parents in shuffled]
    ranks = np.nanmean(parent_ranks(vectors, np.concatenate([taxonomy.parents[np.newaxis], shuffled])), axis=1)
    perplexity = min(PERPLEXITY, (len(taxonomy) - 1) / 3)
    tsne = TSNE(metric="cosine", init="pca", perplexity=perplexity, random_state=seed, n_jobs=1)
    return LabelMap(
        taxonomy=taxonomy,
        positions=np.asarray(tsne.fit_transform(vectors), dtype=np.float64),
        silhouette=None if silhouette is None else Measure.against(silhouette, silhouettes, high_is_good=True),
        parent_rank=Measure.against(float(ranks[0]), ranks[1:], high_is_good=False),
        permutations=permutations,
        seed=seed,
    )


def shuffled_parents(parents: Indices, count: int, seed: int) -> Indices:
    """Return ``count`` random assignments of parents to the labels below the top, (count, K).

    Top labels stay at the top, and every parent keeps its number of children.
    """
    random = np.random.default_rng(seed)
    shuffled = np.tile(parents, (count, 1))
    below = np.flatnonzero(parents >= 0)
    shuffled[:, below] = random.permuted(shuffled[:, below], axis=1)
    return shuffled


def _unit(vectors: Floats) -> Floats:
    """Return the vectors with length 1; a zero vector stays 0."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths == 0, 1.0, lengths)


def parent_silhouette(vectors: Floats, parents: Indices) -> float | None:
    """Return the mean silhouette of labels below the top, clustered by parent, from vectors, (K, H), and parents, (K,).

    ``s_i = (b_i - a_i) / max(a_i, b_i)``: a_i is the mean cosine distance to the siblings, b_i that to the children of
    the nearest other parent. With unit vectors, ``Σ_j (1 - x_i·x_j) = n - x_i·Σ_j x_j`` needs no K x K table. None
    unless two parents have two children each.
    """
    below = np.flatnonzero(parents >= 0)
    _, family, sizes = np.unique(parents[below], return_inverse=True, return_counts=True)
    below = below[sizes[family] > 1]  # an only child has no siblings
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
        to_itself = 1 - np.einsum("ij,ij->i", some, some)  # not part of the mean
        near = (sizes[own] - similarity[at] - to_itself) / (sizes[own] - 1)
        distance = 1 - similarity / sizes
        distance[at] = np.inf
        apart = distance.min(1)
        larger = np.maximum(near, apart)
        total += float(np.divide(apart - near, larger, out=np.zeros_like(near), where=larger > 0).sum())
    return total / len(below)


def parent_ranks(vectors: Floats, parents: Indices) -> Floats:
    """Return the rank of each label's parent among all other labels by cosine similarity, 1 for the nearest.

    Ties share their mean rank. The rank is NaN for a top label, and for a label that is its own parent, which can
    happen in a shuffled tree.

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
        distance[here - start, here] = np.inf  # the label itself ranks last
        places = rankdata(distance, axis=1)
        own = parents[..., here]
        found = places[here - start, own]  # for a top label (-1) any value, replaced below
        ranks[..., here] = np.where((own < 0) | (own == here), np.nan, found)
    return ranks


def write_label_maps(maps: Mapping[str, LabelMap], folder: Path, report: Mapping[str, Any] | None = None) -> list[Path]:
    """Write ``figure5.png``, ``figure5.svg`` and ``figure5.json`` into a folder, and return their paths.

    The maps, by the name to show, have the same label tree; ``report`` has further fields for the JSON.
    """
    numbers = {**(report or {}), "maps": {name: one.to_json() for name, one in maps.items()}}
    return write_files(folder, {**draw_label_maps(maps).files(), "figure5.json": json_bytes(numbers)})


def draw_label_maps(maps: Mapping[str, LabelMap]) -> Plot:
    """Draw the maps side by side, with name and measures as titles, and a colour and shape for each parent."""
    taxonomy = next(iter(maps.values())).taxonomy
    parents = np.unique(taxonomy.parents[taxonomy.parents >= 0])
    coloured = [*taxonomy.levels[0].tolist(), *(node for node in parents.tolist() if taxonomy.parents[node] >= 0)]
    named = coloured if len(coloured) <= LISTED else []

    def fill(figure: Figure) -> str:
        from matplotlib import colormaps
        from matplotlib.collections import LineCollection
        from matplotlib.lines import Line2D

        few = len(coloured) <= len(COLOURS)
        colours: Any = COLOURS if few else colormaps["turbo"](np.linspace(0.05, 0.95, len(coloured)))
        looks = {node: (colours[place], MARKERS[place % len(MARKERS)]) for place, node in enumerate(coloured)}
        below = np.flatnonzero(taxonomy.parents >= 0)
        for axes, (name, one) in zip(figure.subplots(1, len(maps), squeeze=False)[0], maps.items(), strict=True):
            at = one.positions
            axes.set(xticks=[], yticks=[], aspect="auto")
            lines = np.stack([at[below], at[taxonomy.parents[below]]], axis=1)  # (n, 2, 2)
            own = [looks[int(parent)][0] for parent in taxonomy.parents[below]]
            axes.add_collection(LineCollection(list(lines), colors=own, linewidths=0.4, alpha=0.35, zorder=1))
            for node, (colour, marker) in looks.items():
                x, y = at[taxonomy.children(node)].T
                axes.scatter(x, y, s=20, color=colour, marker=marker, linewidths=0.3, edgecolors="white", zorder=2)
                if taxonomy.parents[node] < 0:
                    style = {"linewidths": 1.1, "edgecolors": INK, "zorder": 3}
                    axes.scatter(at[node, 0], at[node, 1], s=110, color=colour, marker=marker, **style)
            axes.set_title(f"{name}\n{_numbers(one)}", fontsize=8)
        figure.legend(
            handles=[
                Line2D([], [], color=colour, marker=marker, linestyle="none", markersize=4.5, label=name)
                for name, (colour, marker) in ((taxonomy.names[node][:30], looks[node]) for node in named)
            ],
            loc="outside lower left",
            ncols=4,
            fontsize=7,
            title=(
                f"t-SNE of the {len(taxonomy):,} label vectors (rows of the head), by cosine. Large: top labels."
                " Small: the labels below, with a line to their parent.\nThe measures are computed from the vectors,"
                " not from the map; shuffled: with parents assigned at random, mean ± standard deviation."
            ),
            title_fontsize=7,
            alignment="left",
        )
        return "label vectors by t-SNE: " + "; ".join(f"{name}: {_numbers(one)}" for name, one in maps.items())

    return draw("figure5", fill, (PANEL * len(maps), PANEL + 1.2 + 0.04 * len(named)))


def _numbers(one: LabelMap) -> str:
    silhouette = "undefined: fewer than two parents have two children"
    if one.silhouette is not None:
        silhouette = f"{one.silhouette.value:.3f} (shuffled: {one.silhouette.shuffled(3)})"
    others, chance = len(one.taxonomy) - 1, one.parent_rank_by_chance
    shuffled = one.parent_rank.shuffled(1)
    rank = f"{one.parent_rank.value:.1f} of {others:,} (shuffled: {shuffled}; any label: {chance:,.1f})"
    return f"silhouette by parent {silhouette}\nmean rank of the parent {rank}".replace("-", "−")
