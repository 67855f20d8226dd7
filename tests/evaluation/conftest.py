"""A classifier in torch with a training model beside it, and one that is a sum over tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoTokenizer

from hgclr.inference import HierarchicalClassifier
from hgclr.models import HGCLRForSequenceClassification
from hgclr.models.base import load_tokenizer, save


@pytest.fixture(scope="session")
def run(make_encoder, taxonomy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of a training run, ``model`` and ``training-model``, untrained, with logits that are spread out."""
    folder = tmp_path_factory.mktemp("run")
    tokenizer = load_tokenizer(make_encoder("bert"))
    torch.manual_seed(4)
    network = HGCLRForSequenceClassification.from_encoder(
        make_encoder("bert"), taxonomy, tokenizer, gumbel_temperature=0.5
    )
    torch.nn.init.normal_(network.classifier.weight, std=0.7)
    for layer in network.encoder.modules():  # at initialisation, attention hardly depends on the tokens
        if isinstance(layer, torch.nn.Linear | torch.nn.Embedding):
            torch.nn.init.normal_(layer.weight, std=0.3)
    for parameter in network.token_label_attention.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    save(network, tokenizer, folder / "training-model")
    save(network.deployed(), tokenizer, folder / "model")
    return folder


@pytest.fixture(scope="session")
def classifier(run: Path) -> HierarchicalClassifier:
    return HierarchicalClassifier.load(run / "model")


class SumOfTokens:
    """A backend without torch: a text's logits are a sum over its tokens, so each token's contribution is known."""

    batch_tokens = 40

    def __init__(self, weights: NDArray[np.float32]) -> None:
        self.weights = weights  # (V, K)

    def logits(self, input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64]) -> NDArray[np.float32]:
        summed = (self.weights[input_ids] * attention_mask[..., np.newaxis]).sum(1)
        return summed.astype(np.float32) - 1


@pytest.fixture(scope="session")
def additive(make_encoder, taxonomy) -> HierarchicalClassifier:
    tokenizer = AutoTokenizer.from_pretrained(make_encoder("bert"))
    weights = np.random.default_rng(3).normal(size=(len(tokenizer), len(taxonomy))).astype(np.float32)
    return HierarchicalClassifier(
        SumOfTokens(weights),
        tokenizer.backend_tokenizer,
        taxonomy,
        pad_token=tokenizer.pad_token_id,
        max_length=12,
    )
