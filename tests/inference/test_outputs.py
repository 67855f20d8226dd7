"""What a model says of documents, to be calibrated on."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import numpy as np
import pytest

from hgclr.data.folder import Document
from hgclr.inference.outputs import outputs_of, read_outputs
from hgclr.taxonomy import Taxonomy

TREE = Taxonomy(["a1", "a", "b", "a2", "b1"], [1, -1, -1, 1, 2])


class ThreeAtATime:
    """A classifier whose logits tell which text they are of."""

    taxonomy, window = TREE, 3

    def logits(self, texts: list[str]):
        yield np.array([[int(text)] * 5 for text in texts], dtype=np.float32)


@pytest.mark.parametrize(("entries", "number", "said"), [(100, 7, False), (35, 7, False), (34, 6, True), (1, 1, True)])
def test_more_documents_than_the_limit_are_sampled(
    entries: int, number: int, said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    documents = [Document(str(row), (1, 3) if row % 2 else (2,)) for row in range(7)]
    rows = {"dev": documents}
    folder = SimpleNamespace(documents=rows.__getitem__, usable=lambda split, *_: iter(rows[split]))
    counted: list[int] = []
    with caplog.at_level(logging.WARNING, logger="hgclr"):
        found = read_outputs(ThreeAtATime(), folder, "dev", entries=entries, progress=counted.append)
    chosen = [int(logit) for logit in found.logits[:, 0]]
    assert len(set(chosen)) == number
    assert chosen == sorted(chosen)
    expected = [[1, 3] if row % 2 else [2] for row in chosen]
    assert [np.flatnonzero(row).tolist() for row in found.gold] == expected
    assert sum(counted) == number
    assert caplog.messages == ([f"{number} of the 7 documents of dev are looked at, a random sample"] if said else [])


def test_documents_need_no_folder() -> None:
    documents = (Document(str(row), (1, 3) if row % 2 else (2,)) for row in range(4))
    found = outputs_of(ThreeAtATime(), documents)
    assert found.logits[:, 0].tolist() == [0, 1, 2, 3]
    assert [np.flatnonzero(row).tolist() for row in found.gold] == [[2], [1, 3], [2], [1, 3]]
