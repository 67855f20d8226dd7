"""The small parts of training, each by itself."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from transformers import EvalPrediction, TrainingArguments

from hgclr.models import HGCLRForSequenceClassification
from hgclr.training.checkpoints import CollapseWatch, EarlyStop
from hgclr.training.fitting import base_rates, history, label_counts
from hgclr.training.trainer import Collator, HierarchicalTrainer, StreamingScores, longest_first


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


def test_a_collapse_is_named_with_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    """The published program's users meet this: λ = 1 against a mean cross-entropy."""
    for weight, cause in ((1.0, "the contrastive term is 42 times the classification loss"), (0.0, "train longer")):
        watch = CollapseWatch(weight)
        watch.on_log(None, None, None, logs={"loss": 2.2, "loss_original": 0.05, "loss_contrastive": 2.1})
        caplog.clear()
        for scores in (0.0, 0.3, 0.0):  # never two empty evaluations in a row
            watch.on_evaluate(None, None, None, metrics={"eval_micro_f1": scores})
        assert not caplog.records
        watch.on_evaluate(None, None, None, metrics={"eval_micro_f1": 0.0})
        assert cause in caplog.text


def test_the_collator_pads_to_the_longest_and_spreads_labels() -> None:
    batch = Collator(4, pad_token=9)([{"input_ids": [1, 2, 3], "labels": [0, 3]}, {"input_ids": [5], "labels": [1]}])
    assert batch["input_ids"].tolist() == [[1, 2, 3], [5, 9, 9]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["labels"].tolist() == [[1, 0, 0, 1], [0, 1, 0, 0]]
    empty = Collator(4, pad_token=9)([{"input_ids": [], "labels": [2]}])
    assert (empty["input_ids"].tolist(), empty["attention_mask"].tolist()) == ([[9]], [[1]])


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


def test_documents_are_scored_from_the_longest_to_the_shortest() -> None:
    assert longest_first([3, 9, 5, 9]).tolist() == [1, 3, 2, 0]


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
