"""What we use of libraries beyond their public interfaces, and the versions it was tried on.

Each stands in one place of ours. If one of these fails after an upgrade, look there first, then raise the version here.
"""

from __future__ import annotations

import inspect
from importlib.metadata import version

import pytest

TRIED = {"transformers": "5.22", "datasets": "5.2"}


def names(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize("package", TRIED)
def test_the_version_is_one_that_was_tried(package: str) -> None:
    found, tried = (tuple(int(part) for part in text.split(".")[:2]) for text in (version(package), TRIED[package]))
    assert found >= tried, f"{package} {version(package)} is older than what this was written for"


def test_the_trainers_methods_that_ours_overrides() -> None:
    """In hgclr.training.trainer: batches of dev from the longest, and checkpoints that are marked when complete."""
    from transformers import Trainer

    assert names(Trainer._get_eval_sampler) == ["self", "eval_dataset"]
    assert names(Trainer._save_checkpoint) == ["self", "model", "trial"]
    assert "_created_lr_scheduler" in inspect.getsource(Trainer.create_scheduler)  # which ours sets as well


def test_the_attention_that_ours_falls_back_to() -> None:
    """In hgclr.training.trainer: attention with dropout on a CPU takes a mask of tokens, as flash attention does."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import AttentionMaskInterface, flash_attention_mask

    assert names(sdpa_attention_forward)[:5] == ["module", "query", "key", "value", "attention_mask"]
    assert callable(flash_attention_mask)
    assert hasattr(AttentionMaskInterface, "register")


def test_the_name_of_an_encoders_attention() -> None:
    """In hgclr.training.fitting: after training the encoder gets back the attention that it had."""
    from transformers import BertConfig

    assert BertConfig(attn_implementation="eager")._attn_implementation == "eager"


def test_the_writer_of_the_token_cache() -> None:
    """In hgclr.data.tokens: tables of tokens are written one by one, so that memory stays flat."""
    from datasets.arrow_writer import ArrowWriter

    assert {"features", "path"} <= set(names(ArrowWriter.__init__))
    assert callable(ArrowWriter.write_table)
    assert callable(ArrowWriter.finalize)
