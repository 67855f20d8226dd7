"""Figure 5: do the label vectors that a model has learned show the label tree?

The paper draws a t-SNE of the head's rows and lets the eye judge. Here each map comes with numbers from the vectors
themselves, and with the same numbers for parents assigned at random.
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
"""Similarities computed at a time: 32 megabytes."""
PERMUTATIONS = 200
"""How often the parents are shuffled for the baselines."""
PERPLEXITY = 30.0
"""Of t-SNE, where there are labels enough: scikit-learn's own default."""
PANEL = 4.7
"""Inches: the side of a map."""
MARKERS = "os^DvPXp<>"
"""Children of a parent share a shape as well as a colour: for readers and printers that do not tell colours apart."""
LISTED = 40
"""Parents up to which the legend names them."""


@dataclass(frozen=True)
class Measure:
    """A number, and the same when every label below the top is given one of the parents at random.

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

    ``positions`` are by t-SNE, (K, 2). The silhouette by parent is from -1 to 1 (families tight and apart), None where
    no two parents have two children each. ``father_rank`` is the mean place of a label's father among the K - 1 other
    labels by cosine similarity, 1 the best. Both baselines are of so many shuffled trees (``permutations``).
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
            raise InputError(
                f"its label tree, of {len(other)} labels, is not that of {folders[first]}, of {len(taxonomy)}",
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
    """Return ``count`` times the parents, (count, K), assigned at random among the labels below the top.

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
    numbers = {**(report or {}), "maps": {name: one.to_json() for name, one in maps.items()}}
    return write_files(folder, {**draw_label_maps(maps).files(), "figure5.json": json_bytes(numbers)})


def draw_label_maps(maps: Mapping[str, LabelMap]) -> Plot:
    """Draw the maps side by side, each under its name and its numbers; one colour and shape for each father."""
    taxonomy = next(iter(maps.values())).taxonomy
    parents = np.unique(taxonomy.parents[taxonomy.parents >= 0])
    fathers = [*taxonomy.levels[0].tolist(), *(node for node in parents.tolist() if taxonomy.parents[node] >= 0)]
    named = fathers if len(fathers) <= LISTED else []

    def fill(figure: Figure) -> str:
        from matplotlib import colormaps
        from matplotlib.collections import LineCollection
        from matplotlib.lines import Line2D

        few = len(fathers) <= len(COLOURS)
        colours: Any = COLOURS if few else colormaps["turbo"](np.linspace(0.05, 0.95, len(fathers)))
        looks = {node: (colours[place], MARKERS[place % len(MARKERS)]) for place, node in enumerate(fathers)}
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
                f"t-SNE of the {len(taxonomy):,} label vectors (rows of the linear head) by cosine distance. Large: top"
                " labels. Small: the labels below, with a line to the father.\nNumbers are of the vectors, not of the"
                " map; shuffled: with fathers assigned at random, mean ± standard deviation."
            ),
            title_fontsize=7,
            alignment="left",
        )
        return "label vectors by t-SNE: " + "; ".join(f"{name}: {_numbers(one)}" for name, one in maps.items())

    return draw("figure5", fill, (PANEL * len(maps), PANEL + 1.2 + 0.04 * len(named)))


def _numbers(one: LabelMap) -> str:
    silhouette = "not defined: no two parents have two children"
    if one.silhouette is not None:
        silhouette = f"{one.silhouette.value:.3f} (shuffled: {one.silhouette.shuffled(3)})"
    others, chance = len(one.taxonomy) - 1, one.father_rank_by_chance
    shuffled = one.father_rank.shuffled(1)
    rank = f"{one.father_rank.value:.1f} of {others:,} (shuffled: {shuffled}; any label: {chance:,.1f})"
    return f"silhouette by parent {silhouette}\nmean rank of the father {rank}".replace("-", "−")
