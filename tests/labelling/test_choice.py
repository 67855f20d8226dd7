"""The next text, against loops that follow the definitions."""

from __future__ import annotations

import numpy as np
import pytest

from hgclr.labelling.choice import Pool, choose, cluster_count, kmeans, next_cluster


def make_pool(count: int, seed: int, *, leaves: int = 5, clusters: int = 5, share: float = 0.15) -> Pool:
    generator = np.random.default_rng(seed)
    return Pool(
        random=generator.random(count) < 0.2,
        order=generator.random(count),
        clusters=generator.integers(0, clusters, count),
        distances=generator.random(count, dtype=np.float32),
        margins=generator.random(count, dtype=np.float32),
        leaves=leaves,
        share=share,
    )


def choose_by_hand(pool: Pool, taken: list[int], free: list[int]) -> int | None:
    of_slice = [text for text in taken if pool.random[text]]
    others = [text for text in taken if not pool.random[text]]
    slice_free = [text for text in free if pool.random[text]]
    rest = [text for text in free if not pool.random[text]]
    if slice_free and ((len(of_slice) + 1) / (len(taken) + 1) <= pool.share or not rest):
        return min(slice_free, key=lambda text: pool.order[text])
    if not rest:
        return None
    if len(others) >= pool.leaves and len(others) % 2 == 0:
        return min(rest, key=lambda text: pool.margins[text])
    clusters = {int(pool.clusters[text]) for text in rest}
    covered = {each: sum(pool.clusters[text] == each for text in others) for each in clusters}
    fewest = [each for each in clusters if covered[each] == min(covered.values())]
    largest = min(fewest, key=lambda each: (-int((pool.clusters == each).sum()), each))
    return min((text for text in rest if pool.clusters[text] == largest), key=lambda text: pool.distances[text])


@pytest.mark.parametrize("seed", range(5))
def test_a_whole_sitting_follows_the_definition(seed: int) -> None:
    pool, generator = make_pool(60, seed), np.random.default_rng(seed)
    taken: list[int] = []
    for _ in range(70):
        mask = np.isin(np.arange(60), taken)
        free = ~mask & (generator.random(60) < 0.8)
        chosen = choose(pool, mask, free)
        assert chosen == choose_by_hand(pool, taken, np.flatnonzero(free).tolist())
        if chosen is not None:
            taken.append(chosen)
    assert len(taken) > 50


def test_the_random_slice_has_its_share_of_the_answers_at_every_moment() -> None:
    pool = make_pool(3000, 0, leaves=50, clusters=100)
    taken = np.zeros(3000, dtype=np.bool_)
    for answers in range(1, 301):
        taken[choose(pool, taken, ~taken)] = True
        assert int((taken & pool.random).sum()) == int(0.15 * answers + 1e-9)
    chosen = np.flatnonzero(taken & pool.random)
    assert set(chosen) == set(np.flatnonzero(pool.random)[np.argsort(pool.order[pool.random])][:45])


@pytest.mark.parametrize(("strategy", "values"), [("margin", "margins"), ("random", "order")])
def test_other_strategies_take_the_smallest_value(strategy, values: str) -> None:
    pool, taken = make_pool(50, 1, share=0.0), np.zeros(50, dtype=np.bool_)
    expected = [text for text in np.argsort(getattr(pool, values)).tolist() if not pool.random[text]]
    for text in expected[:20]:
        assert choose(pool, taken, ~taken, strategy) == text
        taken[text] = True


def test_no_text_is_chosen_if_none_is_free() -> None:
    pool = make_pool(10, 0)
    assert choose(pool, np.ones(10, dtype=np.bool_), np.zeros(10, dtype=np.bool_)) is None


def test_clusters_double_with_the_answers() -> None:
    assert [cluster_count(answers, 10, 1000) for answers in (0, 9, 10, 19, 20, 40)] == [10, 10, 20, 20, 40, 80]
    assert cluster_count(0, 1000, 30) == 15
    assert cluster_count(0, 1, 1) == 1


def test_the_largest_cluster_among_those_covered_least() -> None:
    clusters = np.array([0, 0, 0, 1, 1, 2])
    free = np.ones(6, dtype=np.bool_)
    taken = np.zeros(6, dtype=np.bool_)
    for expected, text in ((0, 0), (1, 3), (2, 5), (0, 1)):
        assert next_cluster(clusters, taken, free) == expected
        taken[text] = True
    assert next_cluster(clusters, taken, np.array([False] * 5 + [True])) == 2


def test_kmeans_finds_groups_of_directions_and_the_distances_from_their_means() -> None:
    generator = np.random.default_rng(0)
    groups = np.repeat(np.arange(6), 40)
    units = np.eye(16)[groups] + 0.02 * generator.normal(size=(240, 16))
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    own, distances = kmeans((units * generator.uniform(1, 5, (240, 1))).astype(np.float32), 6, seed=3)
    assert len({(group, cluster) for group, cluster in zip(groups.tolist(), own.tolist(), strict=True)}) == 6
    for cluster in range(6):
        part = units[own == cluster]
        np.testing.assert_allclose(distances[own == cluster], np.linalg.norm(part - part.mean(0), axis=1), atol=1e-4)
    assert sorted(kmeans(units[:3], 9)[0].tolist()) == [0, 1, 2]
    assert set(kmeans(np.ones((9, 4), dtype=np.float32), 3)[0].tolist()) == {0}
