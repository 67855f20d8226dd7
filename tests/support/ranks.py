"""One training step of a tiny model by one process, or by several that have a part of the batch each."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel

from hgclr.cli.app import app
from hgclr.data.folder import Document
from hgclr.data.tokens import tokenize_documents
from hgclr.models import architecture
from hgclr.models.base import load_tokenizer
from hgclr.taxonomy import Taxonomy
from hgclr.training import RunConfig, head, train
from hgclr.training.fitting import add_adapters, checkpoint_layers
from hgclr.training.settings import LoraSettings
from hgclr.training.trainer import Collator

Case = tuple[str, dict[str, Any]]
DOCUMENTS = 8


def run_ranks(work: Callable[..., None], ranks: int, folder: Path, *arguments: Any) -> None:
    """Run ``work(rank, ranks, folder, …)`` in so many processes that have joined by gloo.

    They are forks of a process that has imported what they need, which takes longer than all the rest.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["hgclr.training.trainer"])
    store, environment = folder / f"store-{ranks}", dict(os.environ)  # their own is that of when the server was started
    processes = [
        context.Process(target=_joined, args=(environment, store, work, rank, ranks, folder, *arguments))
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
        process.kill()
    assert [process.exitcode for process in processes] == [0] * ranks


def _joined(
    environment: dict[str, str], store: Path, work: Callable[..., None], rank: int, ranks: int, *arguments: Any
) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    work(rank, ranks, *arguments)
    torch.distributed.destroy_process_group()


def take_steps(rank: int, ranks: int, folder: Path, encoder: str, taxonomy: Taxonomy, cases: dict[str, Case]) -> None:
    """Take a step of each case and save loss and gradient."""
    found = {name: step(rank, ranks, encoder, taxonomy, *case) for name, case in cases.items()}
    if rank == 0:
        torch.save(found, folder / f"{ranks}.pt")


def step(
    rank: int, ranks: int, encoder: str, taxonomy: Taxonomy, system: str, settings: dict[str, Any]
) -> tuple[float, dict[str, torch.Tensor]]:
    """Return loss and gradient of a batch of documents, without dropout and with given Gumbel noise."""
    torch.manual_seed(1)
    settings, tokenizer = dict(settings), load_tokenizer(encoder)
    large = settings.pop("large", False)
    model = architecture(system).from_encoder(encoder, taxonomy, tokenizer, **settings)
    for name, parameter in model.named_parameters():  # so large that everything matters
        if not name.startswith("encoder.") and parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    if large:
        add_adapters(model.encoder, LoraSettings(rank=4))
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.3)
        checkpoint_layers(model.encoder)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.double().train()
    random = np.random.default_rng(0)
    rows = [
        {
            "input_ids": [2, *random.integers(5, len(tokenizer), size=length).tolist(), 3],
            "labels": sorted(
                {int(label) for leaf in random.integers(len(taxonomy), size=2) for label in taxonomy.path(leaf)}
            ),
        }
        for length in random.integers(1, 24, size=DOCUMENTS)
    ]
    part = np.arange(DOCUMENTS)[rank::ranks]
    batch = Collator(len(taxonomy), tokenizer.pad_token_id)([rows[place] for place in part])
    batch["labels"] = batch["labels"].double()
    if settings.get("positives") == "hierarchy":
        noise = torch.from_numpy(random.gumbel(size=(DOCUMENTS, 25, len(taxonomy))))
        batch["noise"] = noise[part, : batch["input_ids"].shape[1]]
    trained = DistributedDataParallel(model, find_unused_parameters=True) if ranks > 1 else model
    loss = trained(**batch).loss
    loss.backward()
    mean = loss.detach().clone()
    if ranks > 1:
        torch.distributed.all_reduce(mean)
    gradients = {name: value.grad for name, value in model.named_parameters() if value.grad is not None}
    return float(mean) / ranks, gradients


def fit_heads(rank: int, ranks: int, folder: Path, encoder: str, taxonomy: Taxonomy) -> None:
    """Fit a head to frozen vectors of 17 documents, of which one of two ranks encodes a batch more than the other."""
    head.BATCH, head.ITERATIONS = 8, 3
    tokenizer = load_tokenizer(encoder)
    torch.manual_seed(1)
    model = architecture("flat").from_encoder(encoder, taxonomy, tokenizer)
    words = ["atom", "laser", "court", "judge"]
    documents = [Document(" ".join(words[: number % 4 + 1]), (number % 9,)) for number in range(17)]
    tokens = tokenize_documents(documents, tokenizer, max_length=16)
    encoded: list[int] = []
    head.fit_head(model, tokens, Collator(len(taxonomy), tokenizer.pad_token_id, on_documents=encoded.append))
    torch.save((model.classifier.weight.detach(), encoded), folder / f"head-{rank}-of-{ranks}.pt")


def train_together(rank: int, ranks: int, folder: Path, config: Path) -> None:
    """Train as one of several, with what torchrun would say in the environment."""
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_PORT": 29500}
    os.environ |= {"MASTER_ADDR": "localhost", **{name: str(number) for name, number in numbers.items()}}
    train(RunConfig.read(config, output=folder / "together"))


def train_by_command(environment: dict[str, str], config: Path, output: Path) -> None:
    """Do as ``hgclr train`` does, in a process that torchrun's agent has started as a fork."""
    os.environ.update(environment)  # their own is that of when the server of the forks was started
    output.with_name(f"process-{os.environ['RANK']}").write_text(str(os.getpid()))
    torch.set_num_threads(1)
    app(["train", str(config), "--output", str(output)], prog_name="hgclr", standalone_mode=False)
