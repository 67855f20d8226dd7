"""The Trainer: batches, rates, scores, early stopping; what it overrides of transformers."""

from __future__ import annotations

import inspect
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from transformers import EvalPrediction, TrainingArguments

from hgclr.models import FlatForSequenceClassification, HGCLRForSequenceClassification
from hgclr.models.base import load_tokenizer
from hgclr.training import RunConfig, TrainingSettings
from hgclr.training.checkpoints import EarlyStop
from hgclr.training.fitting import base_rates, history, label_counts, trainer_arguments
from hgclr.training.head import target_rows
from hgclr.training.recipe import make_recipe
from hgclr.training.trainer import Collator, HierarchicalTrainer, StreamingScores


def evaluations(callback: EarlyStop, scores: list[tuple[float, float]]) -> int | None:
    """Feed (macro, micro) scores; return the number of the evaluation that stops the run."""
    for number, (macro, micro) in enumerate(scores, 1):
        control = SimpleNamespace(should_training_stop=False)
        callback.on_evaluate(None, None, control, metrics={"eval_macro_f1": macro, "eval_micro_f1": micro})
        if control.should_training_stop:
            return number
    return None


def test_early_stop_counts_evaluations_without_a_better_score() -> None:
    assert evaluations(EarlyStop(2, ["macro_f1"]), [(0.1, 0), (0.3, 0), (0.2, 0), (0.3, 0), (0.9, 0)]) == 4
    assert evaluations(EarlyStop(2, ["macro_f1"]), [(0.1, 0), (0.05, 0), (0.2, 0), (0.1, 0)]) is None


def test_the_published_counter_is_reset_by_either_score() -> None:
    scores = [(0.3, 0.3), (0.2, 0.4), (0.2, 0.5), (0.2, 0.6)]
    assert evaluations(EarlyStop(2, ["macro_f1", "micro_f1"]), scores) is None
    assert evaluations(EarlyStop(2, ["macro_f1"]), scores) == 3


def test_early_stop_remembers_its_counter_in_a_checkpoint() -> None:
    callback = EarlyStop(3, ["macro_f1"])
    evaluations(callback, [(0.5, 0), (0.4, 0), (0.4, 0)])
    again = EarlyStop.from_state(callback.state())
    assert evaluations(again, [(0.4, 0)]) == 1


def test_the_collator_pads_to_the_longest_and_spreads_labels() -> None:
    batch = Collator(4, pad_token=9)([{"input_ids": [1, 2, 3], "labels": [0, 3]}, {"input_ids": [5], "labels": [1]}])
    assert batch["input_ids"].tolist() == [[1, 2, 3], [5, 9, 9]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["labels"].tolist() == [[1, 0, 0, 1], [0, 1, 0, 0]]
    empty = Collator(4, pad_token=9)([{"input_ids": [], "labels": [2]}])
    assert (empty["input_ids"].tolist(), empty["attention_mask"].tolist()) == ([[9]], [[1]])


def test_labels_may_be_unknown() -> None:
    rows = [
        {"input_ids": [1], "labels": [0, 2], "unsure": []},
        {"input_ids": [1], "labels": [], "unsure": [1, 3]},
        {"input_ids": [1], "labels": [3], "unsure": [0]},
    ]
    expected = [[1, 0, 1, 0], [0, np.nan, 0, np.nan], [np.nan, 0, 0, 1]]
    np.testing.assert_array_equal(Collator(4, pad_token=9)(rows)["labels"], expected)
    targets = target_rows(datasets.Dataset.from_list(rows), 4)
    for begin, end in ((0, 3), (0, 1), (1, 3), (2, 2)):
        np.testing.assert_array_equal(targets(begin, end), np.reshape(expected[begin:end], (-1, 4)))
    hard = [{"input_ids": [1], "labels": labels} for labels in ([0, 3], [], [1])]
    expected = Collator(4, pad_token=9)(hard)["labels"]
    np.testing.assert_array_equal(target_rows(datasets.Dataset.from_list(hard), 4)(0, 3), expected)


def test_scores_in_batches_equal_scikit_learn_on_all(taxonomy) -> None:
    random = np.random.default_rng(0)
    logits = torch.from_numpy(random.normal(size=(50, len(taxonomy))))
    gold = torch.from_numpy(random.random((50, len(taxonomy))) < 0.3).float()
    scores = StreamingScores(taxonomy, 0.6)
    for _ in range(2):  # the second round must not remember the first
        assert scores(EvalPrediction(logits[:30], gold[:30]), compute_result=False) == {}
        result = scores(EvalPrediction(logits[30:], gold[30:]), compute_result=True)
    predicted = logits.numpy() > np.log(0.6 / 0.4)
    assert result["micro_f1"] == pytest.approx(f1_score(gold, predicted, average="micro"))
    assert result["macro_f1"] == pytest.approx(f1_score(gold, predicted, average="macro", zero_division=0))


def test_base_rates_count_labels() -> None:
    tokens = datasets.Dataset.from_dict({"labels": [[0, 1], [1], [1]]})
    assert label_counts(None, 3).tolist() == [0, 0, 0]
    counts = label_counts(tokens, 3)
    torch.testing.assert_close(base_rates(counts, len(tokens)), torch.tensor([1.5, 3.5, 0.5]) / 4)


def test_new_layers_have_their_own_rate_and_only_matrices_decay(
    make_encoder, taxonomy, tokenizer, tmp_path: Path
) -> None:
    model = HGCLRForSequenceClassification.from_encoder(make_encoder("bert"), taxonomy, tokenizer)
    arguments = TrainingArguments(output_dir=str(tmp_path), learning_rate=1e-4, weight_decay=0.01, use_cpu=True)
    trainer = HierarchicalTrainer(model, arguments, processing_class=tokenizer, head_learning_rate=1e-3)
    seen = {}
    for group in trainer.create_optimizer().param_groups:
        for parameter in group["params"]:
            seen[id(parameter)] = (group["lr"], group["weight_decay"])
    names = dict(model.named_parameters())
    assert len(seen) == len(names)
    for name, parameter in names.items():
        rate, decay = seen[id(parameter)]
        assert rate == (1e-4 if name.startswith("encoder.") else 1e-3), name
        if name.endswith("bias"):
            assert decay == 0, name
    assert seen[id(names["classifier.weight"])] == (1e-3, 0.01)


def test_history_joins_scores_with_the_last_loss() -> None:
    log = [
        {"loss": 3.0, "loss_original": 3.0, "epoch": 0.5},
        {"loss": 2.0, "loss_original": 2.0, "learning_rate": 1.0, "epoch": 1.0},
        {"eval_macro_f1": 0.5, "eval_micro_f1": 0.6, "epoch": 1.0},
        {"train_runtime": 3.0, "epoch": 1.0},
    ]
    assert history(log) == [{"epoch": 1.0, "micro_f1": 0.6, "macro_f1": 0.5, "loss": 2.0, "loss_original": 2.0}]


def test_a_constant_rate_warms_up_from_the_first_step(make_encoder, taxonomy, tokenizer, tmp_path: Path) -> None:
    model = HGCLRForSequenceClassification.from_encoder(make_encoder("bert"), taxonomy, tokenizer)
    arguments = TrainingArguments(
        str(tmp_path), learning_rate=0.4, lr_scheduler_type="constant_with_warmup", warmup_steps=4, use_cpu=True
    )
    trainer = HierarchicalTrainer(model, arguments, processing_class=tokenizer, head_learning_rate=0.8)
    optimizer = trainer.create_optimizer()
    scheduler = trainer.create_scheduler(10)
    rates = []
    for _ in range(6):
        rates.append(sorted({round(group["lr"], 6) for group in optimizer.param_groups}))
        optimizer.step()
        scheduler.step()
    assert rates == [[0.1, 0.2], [0.2, 0.4], [0.3, 0.6], [0.4, 0.8], [0.4, 0.8], [0.4, 0.8]]


@pytest.mark.parametrize(
    ("sections", "batching"),
    [
        ({}, "by_length"),
        ({"model": {"preset": "paper"}}, "uniform"),
        ({"model": {"preset": "published"}}, "uniform"),
        ({"training": {"batching": "uniform"}}, "uniform"),
        ({"model": {"preset": "published"}, "training": {"batching": "by_length"}}, "by_length"),
    ],
)
def test_the_presets_draw_batches_uniformly(sections: dict, batching: str) -> None:
    run = RunConfig.model_validate({"data": {"path": "data"}, "output": "run", **sections})
    assert run.resolved_training.batching == batching


@pytest.mark.parametrize(
    ("preset", "training", "precision"),
    [
        ("default", {}, "auto"),
        ("paper", {}, "fp32"),
        ("published", {}, "fp32"),
        ("paper", {"precision": "auto"}, "auto"),
    ],
)
def test_the_presets_compute_in_full_precision(preset: str, training: dict, precision: str) -> None:
    sections = {"data": {"path": "data"}, "output": "run", "model": {"preset": preset}, "training": training}
    assert RunConfig.model_validate(sections).resolved_training.precision == precision


def test_lengths_within_a_batch_spread_more_when_batches_are_drawn(make_encoder, taxonomy, tmp_path: Path) -> None:
    encoder = make_encoder("bert")
    tokenizer = load_tokenizer(encoder)
    model = FlatForSequenceClassification.from_encoder(encoder, taxonomy, tokenizer)
    documents = [("atom " * (1 + number % 40), ["physics"]) for number in range(400)]
    spreads = {}
    for batching in ("by_length", "uniform"):
        settings = TrainingSettings(batching=batching, batch_size=8)
        recipe = make_recipe(settings, documents=len(documents), encoder_parameters=1000)
        arguments = trainer_arguments(settings, recipe, "fp32", tmp_path / batching)
        trainer = HierarchicalTrainer(
            model, arguments, processing_class=tokenizer, train_dataset=documents, eval_dataset=documents
        )
        masks = [batch["attention_mask"].sum(1).numpy() for batch in trainer.get_train_dataloader()]
        assert sum(map(len, masks)) == 400
        spreads[batching] = float(np.mean([mask.max() - mask.min() for mask in masks]))
    assert spreads["by_length"] < 5 < 25 < spreads["uniform"]


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
