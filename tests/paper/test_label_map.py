"""Figure 5: the numbers against scikit-learn and brute force, shuffled trees, the map, the files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import silhouette_score

from hgclr.errors import InputError
from hgclr.models import FlatForSequenceClassification, HGCLRForSequenceClassification
from hgclr.models.base import load_tokenizer, save
from hgclr.paper import label_map as label_measures
from hgclr.paper.label_map import (
    Measure,
    label_vectors,
    map_labels,
    map_models,
    parent_ranks,
    parent_silhouette,
    shuffled_parents,
    write_label_maps,
)
from hgclr.taxonomy import Taxonomy


def families(count: int, children: int) -> Taxonomy:
    ids = [f"top {top}" for top in range(count)]
    ids += [f"label {top} {child}" for top in range(count) for child in range(children)]
    return Taxonomy(ids, [-1] * count + [top for top in range(count) for _ in range(children)])


def clustered(tree: Taxonomy, noise: float, seed: int = 0) -> np.ndarray:
    """Return vectors: one axis for each top label, its children around it with noise."""
    random = np.random.default_rng(seed)
    centres = np.eye(len(tree))
    parents = np.where(tree.parents < 0, np.arange(len(tree)), tree.parents)
    return centres[parents] + noise * random.normal(size=(len(tree), len(tree)))


def brute_rank(vectors: np.ndarray, label: int, parent: int) -> float:
    def cosine(one: int, other: int) -> float:
        return float(vectors[one] @ vectors[other] / np.linalg.norm(vectors[one]) / np.linalg.norm(vectors[other]))

    others = [other for other in range(len(vectors)) if other not in (label, parent)]
    return 1 + sum(cosine(label, other) > cosine(label, parent) for other in others)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(data=st.data(), count=st.integers(5, 14), width=st.integers(1, 4))
def test_silhouette_of_any_tree_is_that_of_scikit_learn(data: st.DataObject, count: int, width: int) -> None:
    parents = np.array([-1, *(data.draw(st.integers(-1, label - 1)) for label in range(1, count))])
    numbers = st.integers(-3, 3)  # small whole numbers: equal vectors and zero vectors do come up
    vectors = np.array(
        data.draw(st.lists(st.lists(numbers, min_size=width, max_size=width), min_size=count, max_size=count))
    )
    below = [label for label in range(count) if parents[label] >= 0 and (parents == parents[label]).sum() > 1]
    found = parent_silhouette(vectors.astype(float), parents)
    if len(set(parents[below])) < 2:
        assert found is None
    else:
        expected = silhouette_score(vectors[below].astype(float), parents[below], metric="cosine")
        assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("block", [1, 25, 2**22])
def test_ranks_of_parents_by_brute_force(monkeypatch: pytest.MonkeyPatch, taxonomy: Taxonomy, block: int) -> None:
    monkeypatch.setattr(label_measures, "BLOCK", block)
    vectors = np.random.default_rng(4).normal(size=(len(taxonomy), 5))
    found = parent_ranks(vectors, taxonomy.parents)
    for label, parent in enumerate(taxonomy.parents.tolist()):
        if parent < 0:
            assert np.isnan(found[label])
        else:
            assert found[label] == brute_rank(vectors, label, parent)
    several = parent_ranks(vectors, np.stack([taxonomy.parents, np.roll(taxonomy.parents, 1)]))
    np.testing.assert_array_equal(several[0], found)
    np.testing.assert_array_equal(several[1], parent_ranks(vectors, np.roll(taxonomy.parents, 1)))


def test_shuffled_trees_keep_tops_and_family_sizes() -> None:
    parents = np.array([-1, 0, 0, 0, -1, 4, 4, 1])
    shuffled = shuffled_parents(parents, 50, seed=1)
    assert shuffled.shape == (50, 8)
    for row in shuffled:
        np.testing.assert_array_equal(row < 0, parents < 0)
        np.testing.assert_array_equal(np.sort(row), np.sort(parents))
    assert len({tuple(row) for row in shuffled}) > 20
    np.testing.assert_array_equal(shuffled, shuffled_parents(parents, 50, seed=1))
    assert (shuffled != shuffled_parents(parents, 50, seed=2)).any()


def test_a_measure_counts_the_shuffled_trees_that_are_as_good() -> None:
    high = Measure.against(0.5, [0.1, 0.5, 0.7, -0.3], high_is_good=True)
    assert (high.value, high.shuffled_mean) == (0.5, pytest.approx(0.25))
    assert high.shuffled_sd == pytest.approx((sum((x - 0.25) ** 2 for x in (0.1, 0.5, 0.7, -0.3)) / 3) ** 0.5)
    assert high.as_good == pytest.approx(3 / 5)  # 0.5, 0.7 and the true tree
    assert Measure.against(0.5, [0.1, 0.5, 0.7, -0.3], high_is_good=False).as_good == pytest.approx(4 / 5)


def test_perfect_families_stand_out_from_shuffled_ones_and_noise_does_not() -> None:
    tree = families(4, 8)
    tight = map_labels(clustered(tree, 0.02), tree, permutations=60)
    assert tight.silhouette is not None
    assert tight.silhouette.value > 0.9
    assert tight.silhouette.shuffled_mean < 0.05
    assert tight.silhouette.as_good == pytest.approx(1 / 61)
    assert tight.parent_rank.value < 9  # its parent is one of the eight others of the family
    assert tight.parent_rank.shuffled_mean > 12
    assert tight.parent_rank_by_chance == np.mean(range(1, len(tree)))
    noise = map_labels(np.random.default_rng(0).normal(size=(len(tree), 30)), tree, permutations=60)
    assert noise.silhouette is not None
    assert noise.silhouette.as_good > 0.05
    assert noise.parent_rank.as_good > 0.05
    # On the map of the tight vectors, too, every label lies nearest to one of its own family.
    family = np.where(tree.parents < 0, np.arange(len(tree)), tree.parents)
    apart = np.linalg.norm(tight.positions[:, None] - tight.positions[None], axis=-1)
    np.fill_diagonal(apart, np.inf)
    np.testing.assert_array_equal(family[apart.argmin(1)], family)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_map_and_the_same_files(tmp_path: Path) -> None:
    tree = families(3, 5)
    first, again, other = (map_labels(clustered(tree, 0.3), tree, seed=seed, permutations=9) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.positions, again.positions)
    assert first.to_json() == again.to_json()
    assert first.silhouette != other.silhouette
    for folder, one in (("first", first), ("again", again)):
        write_label_maps({"flat": one, "HGCLR": one}, tmp_path / folder)
    for name in ("figure5.png", "figure5.svg", "figure5.json"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


@pytest.fixture(scope="module")
def models(make_encoder, taxonomy, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("maps")
    tokenizer = load_tokenizer(make_encoder("bert"))
    other = Taxonomy([f"{label}!" for label in taxonomy.ids], taxonomy.parents)
    small = Taxonomy(["a", "b", "a1"], [-1, -1, 0])
    for name, kind, tree in (
        ("flat", FlatForSequenceClassification, taxonomy),
        ("hgclr", HGCLRForSequenceClassification, taxonomy),
        ("other", FlatForSequenceClassification, other),
        ("small", FlatForSequenceClassification, small),
    ):
        torch.manual_seed(1)
        save(kind.from_encoder(make_encoder("bert"), tree, tokenizer), tokenizer, folder / name)
    return {name: folder / name for name in ("flat", "hgclr", "other", "small")}


def test_models_are_mapped_by_the_rows_of_their_heads(
    models: dict[str, Path], taxonomy: Taxonomy, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING"):
        maps = map_models({"flat": models["flat"], "HGCLR": models["hgclr"]}, permutations=4)
    assert len(caplog.records) == 2
    for name, folder in (("flat", "flat"), ("HGCLR", "hgclr")):
        vectors, tree = label_vectors(models[folder])
        assert tree == taxonomy
        assert vectors.shape == (len(taxonomy), 32)
        weight = (
            (FlatForSequenceClassification if folder == "flat" else HGCLRForSequenceClassification)
            .from_pretrained(models[folder])
            .classifier.weight
        )
        np.testing.assert_array_equal(vectors, weight.detach().double().numpy())
        assert maps[name].parent_rank.value == pytest.approx(np.nanmean(parent_ranks(vectors, taxonomy.parents)))


def test_different_trees_and_missing_models_are_refused(models: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((models["flat"] / "config.json").read_bytes())
    for other in (models["small"], models["other"], tmp_path / "nowhere", tmp_path):
        with pytest.raises(InputError) as error:
            map_models({"flat": models["flat"], "HGCLR": other})
        assert error.value.path == other
