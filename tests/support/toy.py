"""A tiny HGCLR model without dropout, whose label side matters from the start; texts; random trees; shared checks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import AutoTokenizer

from hgclr.inference import HierarchicalClassifier
from hgclr.models import HGCLRForSequenceClassification, load_deployed
from hgclr.models.base import save
from hgclr.taxonomy import Taxonomy

TEXTS = [
    "quantum laser of the atom",
    "judge",
    "serve the racket in the net of the lake",
    "salt is a molecule",
]
GOLD = [["science", "physics"], ["society", "law"], ["society", "sports", "tennis"], ["science", "chemistry"]]
NO_DROPOUT = {"classifier_dropout": 0.0, "label_dropout": 0.0, "contrastive_dropout": 0.0}


def still(model: HGCLRForSequenceClassification) -> HGCLRForSequenceClassification:
    """Training mode without the randomness: the objective is computed and the encoder has no dropout."""
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.encoder.eval()
    return model


def make_model(make_encoder, taxonomy, kind: str = "bert", **settings) -> tuple[HGCLRForSequenceClassification, object]:
    tokenizer = AutoTokenizer.from_pretrained(make_encoder(kind))
    torch.manual_seed(0)
    model = HGCLRForSequenceClassification.from_encoder(
        make_encoder(kind), taxonomy, tokenizer, **(settings | NO_DROPOUT)
    )
    for name, parameter in model.named_parameters():  # large enough to matter
        if name.startswith("label_encoder.structure."):
            torch.nn.init.normal_(parameter)
        elif name.startswith(("token_label_attention.", "projection.", "classifier.")):
            torch.nn.init.normal_(parameter, std=0.3)
    return still(model), tokenizer


def batch_of(tokenizer, taxonomy, texts=TEXTS, gold=GOLD, extra_padding: int = 0) -> dict[str, torch.Tensor]:
    encoded = tokenizer(texts, padding=True, truncation=True, max_length=32, return_tensors="pt")
    labels = torch.zeros(len(texts), len(taxonomy))
    for row, names in enumerate(gold):
        labels[row, [taxonomy.resolve(name) for name in names]] = 1.0
    pad = torch.full((len(texts), extra_padding), tokenizer.pad_token_id)
    return {
        "input_ids": torch.cat([encoded["input_ids"], pad], 1),
        "attention_mask": torch.cat([encoded["attention_mask"], torch.zeros_like(pad)], 1),
        "labels": labels,
    }


def noise_for(batch: dict[str, torch.Tensor], labels: int, seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    return -torch.empty(*batch["input_ids"].shape, labels).exponential_().log()


def random_tree(labels: int, seed: int, *, deep: bool = False) -> Taxonomy:
    """A random forest whose label indices are shuffled, so that parents may come after children."""
    random = np.random.default_rng(seed)
    parents = np.array([-1] + [i - 1 if deep else int(random.integers(-1, i)) for i in range(1, labels)])
    place = random.permutation(labels)
    shuffled = np.empty(labels, dtype=int)
    shuffled[place] = np.where(parents < 0, -1, place[parents])
    return Taxonomy([f"label {i}" for i in range(labels)], shuffled)


def check_it_is_deployed_as(kind: type, model, batch: dict[str, torch.Tensor]) -> None:
    """In evaluation mode a model with a part for training only is the model that it is deployed as."""
    output, other = model(**batch), model.deployed()(**batch)
    assert type(model.deployed()) is kind
    assert set(output.terms) == {"loss_original", "loss_recursive"}
    torch.testing.assert_close(output.logits, other.logits)
    torch.testing.assert_close(output.loss, other.loss)


def check_saved_and_loaded(kind: type, model, tokenizer, expected: torch.Tensor, added: tuple[str, ...], folder: Path):
    """Save both forms of a model; loaded for prediction, each gives the same probabilities, with nothing for training.

    Returns the training model, loaded.
    """
    save(model.deployed(), tokenizer, folder / "model")
    save(model, tokenizer, folder / "training-model")
    for name in ("model", "training-model"):
        loaded = load_deployed(folder / name)
        assert type(loaded) is kind
        assert not [key for key in loaded.state_dict() if key.startswith(added)]
        scores = HierarchicalClassifier.load(folder / name).predict_proba(TEXTS)
        torch.testing.assert_close(torch.from_numpy(scores), torch.sigmoid(expected), atol=1e-5, rtol=1e-4)
    again = type(model).from_pretrained(folder / "training-model")
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], weight, msg=name)
    return again
