"""A model with a random head, for speed benchmarks without a trained model."""

from __future__ import annotations

from pathlib import Path

from hgclr.taxonomy import Taxonomy

__all__ = ["write_untrained"]


def write_untrained(
    encoder: str, taxonomy: Taxonomy, folder: Path, *, pooling: str = "cls", max_length: int = 512
) -> Path:
    """Write a flat model with a random head, which predicts a few labels per text, and return its folder."""
    import torch

    from hgclr.models import FlatForSequenceClassification
    from hgclr.models.base import load_tokenizer, save

    torch.manual_seed(0)
    tokenizer = load_tokenizer(encoder)
    model = FlatForSequenceClassification.from_encoder(
        encoder, taxonomy, tokenizer, pooling=pooling, max_length=max_length
    )
    torch.nn.init.normal_(model.classifier.weight, std=0.05)
    torch.nn.init.constant_(model.classifier.bias, -1.0)
    save(model, tokenizer, folder)
    return folder
