"""A service over a model that one can compute by hand: every word of the vocabulary speaks for some labels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from hgclr.decisions.settings import Decisions
from hgclr.inference import HierarchicalClassifier
from hgclr.taxonomy import Taxonomy

BIAS = -3.0
"""The logit of a label that no word speaks for: 4.7 %."""
FOR, ABOVE, BESIDE = 4.0, 6.0, 0.5
"""What a word says for its label, for the labels above that, and for those beside it: 73 %, 95 % and 8 %."""
SPECIAL = ["[PAD]", "[UNK]"]

Weights = dict[str, dict[str, float]]
"""How much a word adds to the logits of labels."""


class WordBackend:
    """Add up what each word says: ``z_k = BIAS + ∑ weight(word, k)``, every word counted once."""

    batch_tokens = 4096

    def __init__(self, table: NDArray[np.float32]) -> None:
        self.table = table

    def logits(self, input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64]) -> NDArray[np.float32]:
        present = np.zeros((len(input_ids), len(self.table)), dtype=np.float32)
        np.put_along_axis(present, input_ids, 1.0, axis=1)
        present[:, : len(SPECIAL)] = 0.0
        return BIAS + present @ self.table


def make_classifier(taxonomy: Taxonomy, weights: Weights, **decisions: object) -> HierarchicalClassifier:
    """Return a classifier whose probabilities are the sigmoids of such sums."""
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *weights])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    table = np.zeros((len(vocabulary), len(taxonomy)), dtype=np.float32)
    for word, row in weights.items():
        for label, weight in row.items():
            table[vocabulary[word], taxonomy.ids.index(label)] = weight
    return HierarchicalClassifier(
        WordBackend(table),
        tokenizer,
        taxonomy,
        pad_token=0,
        max_length=64,
        decisions=Decisions(taxonomy, **decisions),  # type: ignore[arg-type]
    )


def word_weights(taxonomy: Taxonomy, words: dict[str, str]) -> Weights:
    """Return weights for words that are given by the label they speak for."""
    weights: Weights = {}
    for label, spoken in words.items():
        *above, node = taxonomy.path(taxonomy.ids.index(label)).tolist()
        beside = np.flatnonzero(taxonomy.parents == taxonomy.parents[node]).tolist()
        by_node = dict.fromkeys(beside, BESIDE) | dict.fromkeys(above, ABOVE) | {node: FOR}
        by_id = {taxonomy.ids[other]: weight for other, weight in by_node.items()}
        weights |= dict.fromkeys(spoken.split(), by_id)
    return weights


@contextmanager
def serving(classifier: HierarchicalClassifier, *, name: str, **settings: object) -> Iterator[str]:
    """Serve a classifier in a thread, on a free port; yield the address."""
    pytest.importorskip("fastapi", reason="the page is tested on the service, which needs fastapi")
    from hgclr.serving.app import create_app
    from hgclr.serving.service import Settings
    from support.fake_service import served

    with served(create_app(classifier, Settings(**settings), name=name)) as client:  # type: ignore[arg-type]
        yield str(client.base_url).rstrip("/")
