"""Training on a CPU takes the faster dropout; evaluation and saved models are those of the plain model."""

from __future__ import annotations

import copy

import torch

from hgclr.models import HGCLRForSequenceClassification
from hgclr.nn.fast import CPUDropout
from hgclr.training.trainer import accelerate_on_cpu


def test_every_dropout_layer_is_replaced_and_nothing_else(make_encoder, taxonomy, tokenizer) -> None:
    plain = HGCLRForSequenceClassification.from_encoder(make_encoder("bert"), taxonomy, tokenizer).eval()
    fast = copy.deepcopy(plain)
    accelerate_on_cpu(fast)
    dropouts = [module for module in fast.train().modules() if isinstance(module, torch.nn.Dropout)]
    rates = [module.p for module in plain.modules() if isinstance(module, torch.nn.Dropout)]
    assert {type(module) for module in dropouts} == {CPUDropout}
    assert [module.p for module in dropouts] == rates
    assert fast.state_dict().keys() == plain.state_dict().keys()
    ids = torch.randint(5, 30, (3, 7))
    assert torch.equal(fast.eval()(ids, torch.ones_like(ids)).logits, plain(ids, torch.ones_like(ids)).logits)
