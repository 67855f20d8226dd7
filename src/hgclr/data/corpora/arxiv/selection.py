"""Decide which papers are taken and to which split they go, whatever their order: by a hash of the id, or by date."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable
from datetime import date

from hgclr.data.corpora.arxiv.papers import Paper
from hgclr.errors import InputError

__all__ = ["Limit", "split_by_date", "split_by_hash"]

HASHES = 2**64


class Limit:
    """At most so many papers of one primary category: those with the lowest hashes.

    Every paper is offered first; a second reading takes. In between, one number is kept for every paper that will be
    taken, and none for the others.

    Args:
        size: papers of a category.
        seed: decides the hashes.
    """

    def __init__(self, size: int, seed: int) -> None:
        self._size = size
        self._seed = seed
        self._lowest: dict[str, list[int]] = {}
        """By category, the hashes so far, negated: the first of each heap is the highest."""

    def offer(self, paper: Paper) -> None:
        """Let a paper compete for the places of its category."""
        heap = self._lowest.setdefault(paper.primary, [])
        value = -_hash("limit", self._seed, paper.id)
        if len(heap) < self._size:
            heapq.heappush(heap, value)
        else:
            heapq.heappushpop(heap, value)

    def chosen(self) -> Callable[[Paper], bool]:
        """Return what tells, paper by paper in a second reading, whether one is taken."""
        highest = {category: -heap[0] for category, heap in self._lowest.items()}
        room = dict.fromkeys(highest, self._size)

        def takes(paper: Paper) -> bool:
            if _hash("limit", self._seed, paper.id) > highest[paper.primary] or not room[paper.primary]:
                return False
            room[paper.primary] -= 1  # papers that stand in the file twice have the same hash twice
            return True

        return takes


def split_by_hash(dev_share: float, test_share: float, seed: int) -> Callable[[Paper], str]:
    """Return what draws the split of a paper.

    Raises:
        InputError: if the shares leave nothing for training.
    """
    if dev_share < 0 or test_share < 0 or dev_share + test_share >= 1:
        raise InputError(
            f"a share of {dev_share:g} for dev and {test_share:g} for test",
            remedy="give shares of at least 0 whose sum is below 1",
        )

    def split(paper: Paper) -> str:
        place = _hash("split", seed, paper.id) / HASHES
        return "test" if place < test_share else "dev" if place < test_share + dev_share else "train"

    return split


def split_by_date(dev_from: date, test_from: date) -> Callable[[Paper], str]:
    """Return what tells the split of a dated paper: train before ``dev_from``, test from ``test_from`` on.

    Raises:
        InputError: if test does not begin after dev.
    """
    if dev_from >= test_from:
        raise InputError(f"dev begins on {dev_from}, test on {test_from}", remedy="let dev begin before test")

    def split(paper: Paper) -> str:
        if paper.created is None:
            raise ValueError(f"paper {paper.id!r} was read without its date")
        return "train" if paper.created < dev_from else "dev" if paper.created < test_from else "test"

    return split


def _hash(purpose: str, seed: int, identifier: str) -> int:
    """Return 64 bits. Other purposes give other bits: the papers that a limit leaves must not be all of one split."""
    digest = hashlib.blake2b(f"{purpose}\n{seed}\n{identifier}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")
