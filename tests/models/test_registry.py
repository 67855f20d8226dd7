"""A new architecture needs a class only; layers for training are left out of the deployed model."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from hgclr.models import CORE, FlatForSequenceClassification, HierarchicalPreTrainedModel, architecture
from hgclr.models.base import HierarchicalOutput
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.changes import compare
from hgclr.training.changed_tree import carry_over


class TwoLayersForSequenceClassification(HierarchicalPreTrainedModel):
    """A seventh system."""

    def __init__(self, config) -> None:
        super().__init__(config)
        width = config.text_encoder.hidden_size
        self.between = torch.nn.Linear(width, width)
        self.classifier = torch.nn.Linear(width, config.label_count)
        self.post_init()

    def forward(self, input_ids, attention_mask, labels=None):
        vectors = self.encode(attention_mask, input_ids=input_ids)
        return HierarchicalOutput(logits=self.classifier(torch.tanh(self.between(vectors))))


def test_a_seventh_system_needs_no_more_than_its_class(make_encoder, taxonomy, tokenizer, monkeypatch) -> None:
    monkeypatch.setitem(CORE, "two-layers", TwoLayersForSequenceClassification)
    monkeypatch.setattr(TwoLayersForSequenceClassification, "config_class", FlatForSequenceClassification.config_class)
    model = architecture("two-layers").from_encoder(make_encoder("bert"), taxonomy, tokenizer).eval()
    assert type(model.deployed()) is TwoLayersForSequenceClassification
    grown = Taxonomy([*taxonomy.ids, "poetry"], [*taxonomy.parents, -1])
    new = carry_over(model, compare(taxonomy, grown), tokenizer, rates=torch.full((10,), 0.1), texts=["atom", "judge"])
    batch = tokenizer(["the lens of a prism"], return_tensors="pt")
    inputs = batch["input_ids"], batch["attention_mask"]
    torch.testing.assert_close(new(*inputs).logits[:, :9], model(*inputs).logits)
    assert new.config.taxonomy == grown


def test_layers_for_training_are_left_out_without_a_word(
    make_encoder, taxonomy, tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By ``_keys_to_ignore_on_load_unexpected``, which is no public name; tried with transformers 5.22.

    These layers are all that the two classes differ in.
    """
    model = architecture("hgclr").from_encoder(make_encoder("bert"), taxonomy, tokenizer)
    model.save_pretrained(tmp_path)
    caplog.clear()  # of what was said when the encoder was loaded
    deployed = model.deployed_class
    with caplog.at_level(logging.WARNING, logger="transformers"):
        loaded, found = deployed.from_pretrained(tmp_path, output_loading_info=True)
    assert not found["unexpected_keys"]
    assert not found["missing_keys"]
    assert not caplog.records
    left = {key.partition(".")[0] for key in model.state_dict().keys() - loaded.state_dict().keys()}
    assert left == set(model.training_parts)
