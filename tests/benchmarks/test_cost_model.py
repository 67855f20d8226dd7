"""The cost model's operations against what torch counts, and its messages against a ring done by hand."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertModel

from cost_model import BERT_BASE, Encoder, messages, training_step
from hgclr.config import PRESETS
from hgclr.models import HGCLRForSequenceClassification

LAYERS, WIDTH, TOKENS, DOCUMENTS = 2, 32, 24, 3


def make_config(vocabulary: int) -> BertConfig:
    return BertConfig(
        vocab_size=vocabulary,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=4 * WIDTH,
        attn_implementation="eager",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


@pytest.fixture
def encoder() -> Encoder:
    return Encoder(parameters=0, layers=LAYERS, width=WIDTH, weights=LAYERS * 12 * WIDTH**2)


def count(work) -> float:
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def test_a_text_takes_what_torch_counts(encoder: Encoder) -> None:
    model = BertModel(make_config(50), add_pooling_layer=False)
    ids = torch.zeros(DOCUMENTS, TOKENS, dtype=torch.long)
    assert encoder.forward(TOKENS) * DOCUMENTS == pytest.approx(count(lambda: model(ids)))


def test_a_step_of_hgclr_takes_what_torch_counts(encoder: Encoder, tokenizer, taxonomy) -> None:
    """Nearly: head and projection are left out, and that the backward pass costs twice the forward pass is a rule."""
    torch.manual_seed(0)
    settings = PRESETS["published"] | {"keep_threshold": 0.0}
    model = HGCLRForSequenceClassification.from_encoder_config(
        make_config(len(tokenizer)), taxonomy, tokenizer, **settings
    ).train()
    model.encoder.set_attn_implementation("eager")  # torch counts no other on a CPU
    batch = {
        "input_ids": torch.full((DOCUMENTS, TOKENS), 5),
        "attention_mask": torch.ones(DOCUMENTS, TOKENS, dtype=torch.long),
        "labels": torch.eye(len(taxonomy))[:DOCUMENTS],
    }
    shared, alone = training_step(encoder, DOCUMENTS, TOKENS, len(taxonomy), views=2)
    losses = []
    forward = count(lambda: losses.append(model(**batch).loss))
    assert (shared + alone) / 3 == pytest.approx(forward, rel=0.05)
    assert shared + alone == pytest.approx(forward + count(losses[0].backward), rel=0.15)


def test_bert_base_has_its_size() -> None:
    with torch.device("meta"):
        model = BertModel(BertConfig())
    assert sum(p.numel() for p in model.parameters()) == BERT_BASE.parameters
    assert sum(p.numel() for p in model.encoder.parameters()) == BERT_BASE.weights


@pytest.mark.parametrize("processes", [2, 4, 8])
def test_a_ring_sends_each_part_twice_less_one(processes: int) -> None:
    """In a ring, P - 1 rounds add the parts up and P - 1 hand the sums on; a round sends one part of P."""
    sent, number = messages(1_000, 0, 0, processes)
    assert sent == sum(4 * 1_000 / processes for _ in range(2 * (processes - 1)))
    assert number == 2 * (processes - 1) * 3  # one bucket, and the vectors there and back
