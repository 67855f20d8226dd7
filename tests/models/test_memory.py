"""What training needs: parameters counted by hand, a peak measured, what is refused and what is not."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig

from hgclr.errors import InputError
from hgclr.models import architecture
from hgclr.taxonomy import Taxonomy
from hgclr.training import RunConfig, memory, train
from hgclr.training.memory import check_batch, check_parameters, need_of
from support.fresh_process import FreshProcesses, fresh_processes

BERT_BASE = AutoConfig.for_model("bert")  # 768 wide, 12 layers, 30,522 words


def wide_tree(labels: int) -> Taxonomy:
    """Ten top labels, all others below one of them."""
    return Taxonomy([f"label {i}" for i in range(labels)], [-1 if i < 10 else i % 10 for i in range(labels)])


def free(monkeypatch: pytest.MonkeyPatch, gigabytes: float | None) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: None if gigabytes is None else int(gigabytes * 1e9))


def on_meta(kind: str, tree: Taxonomy, tokenizer, **settings):
    with torch.device("meta"):
        return architecture(kind).from_encoder_config(BERT_BASE, tree, tokenizer, **settings)


def test_the_parameters_of_hiagm_are_counted_exactly(tokenizer) -> None:
    labels, width, hidden = 1186, 300, 768
    need = need_of(on_meta("hiagm-tp", wide_tree(labels), tokenizer))
    transformation = hidden * labels * width + labels * width
    classifier = labels * width * labels + labels
    structure = 2 * (labels + labels * width + width + labels) + width
    assert need.head == transformation + classifier + structure
    assert need.encoder == 108_891_648  # BERT-base, without its pooler's 590,592 of the well-known 109,482,240
    # weight, gradient, two moments; and the regularisation's gradient of the classifier's weight
    assert need.total == 16 * (need.head + need.encoder) + 4 * labels * width * labels


def test_a_model_that_cannot_fit_is_refused_with_the_figures(tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 8.2)
    with pytest.raises(InputError) as refused:
        check_parameters("hiagm-tp", BERT_BASE, wide_tree(1186), tokenizer, {})
    assert str(refused.value) == (
        "hiagm-tp with 1,186 labels has a head of 696 M parameters on an encoder of 109 M: training needs about"
        " 14.6 GB, 8.2 GB are free; lower model.node_width, or choose hgclr, which grows with the number of labels, not"
        " with its square"
    )
    check_parameters("hiagm-tp", BERT_BASE, wide_tree(1186), tokenizer, {"node_width": 60})  # does the remedy help?
    check_parameters("hgclr", BERT_BASE, wide_tree(1186), tokenizer, {})
    free(monkeypatch, 0.1)
    with pytest.raises(
        InputError, match=r"^flat with 20 labels .*, 0\.1 GB are free; choose a smaller encoder, or set model\.lora$"
    ):
        check_parameters("flat", BERT_BASE, wide_tree(20), tokenizer, {})


def test_31_000_labels_are_no_hindrance_to_hgclr(tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """MiniLM-L6 with 31,000 labels trains within 4 GB."""
    free(monkeypatch, 4)
    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    encoder = AutoConfig.for_model("bert", **sizes)
    tree = wide_tree(31_000)
    check_parameters("hgclr", encoder, tree, tokenizer, {})
    with torch.device("meta"):
        model = architecture("hgclr").from_encoder_config(encoder, tree, tokenizer)
    check_batch("hgclr", model, batch_size=16, length=64)


def test_nothing_is_checked_where_free_memory_is_not_known(tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, None)
    check_parameters("hiagm-tp", BERT_BASE, wide_tree(5000), tokenizer, {})
    check_batch("flat", on_meta("flat", wide_tree(20), tokenizer), batch_size=10**6, length=512)


def test_a_batch_that_cannot_fit_is_refused(tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 4)
    model = on_meta("flat", wide_tree(20), tokenizer)
    check_batch("flat", model, batch_size=8, length=128)
    with pytest.raises(
        InputError,
        match=r"^training flat with 20 labels on 64 texts of up to 512 tokens at a time needs about \d+\.\d GB more,"
        r" 4\.0 GB are free; lower training\.batch_size .*, set training\.gradient_checkpointing or lower"
        r" model\.max_length$",
    ):
        check_batch("flat", model, batch_size=64, length=512)


@pytest.mark.parametrize("kind", ["flat", "hgclr"])
def test_longer_texts_more_of_them_and_more_labels_need_more(tokenizer, kind: str) -> None:
    few, many = on_meta(kind, wide_tree(20), tokenizer), on_meta(kind, wide_tree(200), tokenizer)
    least = need_of(few, batch_size=4, length=16).total
    assert need_of(few).total < least
    assert need_of(few, batch_size=8, length=16).total > least
    assert need_of(few, batch_size=4, length=32).total > least
    assert need_of(many, batch_size=4, length=16).total > least


def test_looking_disturbs_neither_the_seed_nor_the_log(tokenizer, caplog: pytest.LogCaptureFixture) -> None:
    before = torch.get_rng_state()
    with caplog.at_level(logging.INFO):
        check_parameters("hgclr", BERT_BASE, wide_tree(5000), tokenizer, {})  # large enough for a warning
    assert torch.equal(torch.get_rng_state(), before)
    assert not [record for record in caplog.records if record.name.startswith("hgclr")]
    assert logging.getLogger("hgclr.models").level == logging.NOTSET


def test_a_run_is_refused_before_anything_is_written(
    make_encoder, toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunConfig.model_validate(
        {
            "data": {"path": toy_data},
            "model": {"encoder": make_encoder("bert"), "architecture": "hiagm-tp"},
            "training": {"epochs": 1, "precision": "fp32"},
            "output": tmp_path / "run",
        }
    )
    free(monkeypatch, 0.001)
    with pytest.raises(InputError, match="hiagm-tp with 9 labels has a head of"):
        train(run)
    monkeypatch.setattr("hgclr.training.run.check_parameters", lambda *_, **__: None)
    with pytest.raises(InputError, match="training hiagm-tp with 9 labels on 16 texts"):
        train(run)
    assert not (tmp_path / "run" / "checkpoints").exists()


_STEPS = """
import json, sys, torch
from transformers import AutoConfig
from hgclr.models import architecture
from hgclr.training.memory import need_of
from hgclr.taxonomy import Taxonomy
from hgclr.training.trainer import accelerate_on_cpu

class Tokenizer:
    all_special_ids, unk_token_id = [0], 1

def high_water():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))

torch.set_num_threads(1)
torch.nn.Linear(8, 8)(torch.ones(1, 8)).sum().backward()
kind, labels, batch, length, before = sys.argv[1], *map(int, sys.argv[2:]), high_water()
sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
tree = Taxonomy([str(i) for i in range(labels)], [-1 if i < 10 else i % 10 for i in range(labels)])
model = architecture(kind).from_encoder_config(AutoConfig.for_model("bert", **sizes), tree, Tokenizer()).train()
accelerate_on_cpu(model, model.encoder)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
ids = torch.randint(5, 100, (batch, length))
gold = torch.zeros(batch, labels)
gold[:, [1, 11]] = 1
for _ in range(2):
    model(ids, torch.ones_like(ids), labels=gold).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(json.dumps([high_water() - before, need_of(model, batch_size=batch, length=length).total]))
"""


@pytest.fixture(scope="module")
def processes() -> Iterator[FreshProcesses]:
    with fresh_processes("transformers", "hgclr.training.trainer") as processes:
        yield processes


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells a process its peak")
@pytest.mark.parametrize(
    ("kind", "labels", "batch", "length"), [("flat", 50, 16, 128), ("hiagm-tp", 400, 16, 32), ("hiagm-la", 300, 16, 64)]
)
def test_the_estimate_is_near_the_measured_peak(
    processes: FreshProcesses, kind: str, labels: int, batch: int, length: int
) -> None:
    done = processes.run(_STEPS, kind, labels, batch, length)
    assert done.returncode == 0, done.stderr
    measured, estimated = json.loads(done.stdout.splitlines()[-1])
    assert estimated == pytest.approx(measured, rel=0.2)
