"""What computes logits: torch, or onnxruntime where there need be no torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hgclr.errors import refuse_broken, require_extra
from hgclr.hardware import chosen_threads, usable_cores

if TYPE_CHECKING:
    from hgclr.models import HierarchicalPreTrainedModel

PROCESSOR_TOKENS = 1024
"""Tokens in a batch on a CPU: more fit no cache, and only add padding."""
ACCELERATOR_TOKENS = 16384
"""Tokens in a batch on an accelerator, which wants more work at a time."""


class Backend(Protocol):
    """Anything that turns padded token ids into logits."""

    batch_tokens: int
    """Tokens that it takes best at a time, padding included."""

    def logits(self, input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return logits, (B, K), from ids and mask, (B, L)."""


class TorchBackend:
    """Run a model in torch.

    Args:
        model: a folder, a hub name, or a model in memory.
        device: where to run, such as ``cpu`` or ``cuda``; by default an accelerator where there is one.
    """

    def __init__(self, model: str | Path | HierarchicalPreTrainedModel, device: str | None = None) -> None:
        require_extra("torch", extra="train", capability="Prediction with torch")
        import torch

        from hgclr.models import load_deployed

        remedy = "give the folder 'model' that hgclr train wrote"
        with refuse_broken(f"no model could be loaded from {model}", remedy=remedy):
            self.model = load_deployed(model) if isinstance(model, str | Path) else model.eval()
        self.device = torch.device(device or torch.accelerator.current_accelerator() or "cpu")
        self.model.to(self.device)  # type: ignore[arg-type]
        self.batch_tokens = PROCESSOR_TOKENS if self.device.type == "cpu" else ACCELERATOR_TOKENS

    def logits(self, input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64]) -> NDArray[np.float32]:
        import torch

        with torch.inference_mode():
            output = self.model(
                torch.from_numpy(input_ids).to(self.device), torch.from_numpy(attention_mask).to(self.device)
            )
        logits: NDArray[np.float32] = output.logits.float().cpu().numpy()
        return logits


class OnnxBackend:
    """Run a graph that ``hgclr export`` wrote, in onnxruntime on the CPU.

    Args:
        graph: the file.
        threads: how many to compute with; by default as many as ``OMP_NUM_THREADS`` says, which torch obeys too, or
            else one for each core that this process may use.
    """

    batch_tokens = PROCESSOR_TOKENS

    def __init__(self, graph: str | Path, threads: int | None = None) -> None:
        require_extra("onnxruntime", extra="onnx", capability="Prediction with an ONNX model")
        onnxruntime = import_onnxruntime()
        with refuse_broken("no graph could be loaded", path=graph, remedy="write it again with hgclr export"):
            self.session = onnxruntime.InferenceSession(
                graph, session_options(threads), providers=["CPUExecutionProvider"]
            )

    @property
    def label_count(self) -> int:
        count: int = self.session.get_outputs()[0].shape[1]
        return count

    def logits(self, input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64]) -> NDArray[np.float32]:
        logits: NDArray[np.float32]
        (logits,) = self.session.run(["logits"], {"input_ids": input_ids, "attention_mask": attention_mask})
        return logits


def import_onnxruntime() -> Any:
    """Return onnxruntime, which from version 1.29 reports sessions and models to its maker unless it is told not to."""
    # Read once, when it is imported. The function alone still leaves a number for this machine and a list of what to
    # send in the user's cache; it is for a program that imported onnxruntime before us.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime  # type: ignore[import-untyped]

    onnxruntime.disable_telemetry_events()
    return onnxruntime


def session_options(threads: int | None = None) -> Any:
    """Return onnxruntime's options for a graph of ours; ``threads`` as in :class:`OnnxBackend`."""
    options = import_onnxruntime().SessionOptions()
    # Its own choice would count the cores of the machine, not those of a container, and tie its threads to them.
    options.intra_op_num_threads = threads or usable_threads()
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors; its warnings are about its own optimisations
    # The kernel that this fusion puts in takes longer than the addition and the norm it replaces.
    options.add_session_config_entry("optimization.disable_specified_optimizers", "SkipLayerNormFusion")
    # Threads that wait for work by spinning take the cores from whatever makes the next batch.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Work in small shares: a core that is busy with something else then keeps nobody waiting.
    options.add_session_config_entry("session.dynamic_block_base", "4")
    # A plan of memory is kept for every shape ever seen; shapes here are of any length.
    options.enable_mem_pattern = False
    return options


def usable_threads() -> int:
    """Return the number of threads that the environment asks for, or else of the cores that this process may use."""
    if (chosen := chosen_threads()) is not None:
        return chosen
    try:
        siblings = Path("/sys/devices/system/cpu/smt/active").read_text(encoding="ascii").strip() == "1"
    except OSError:  # not on every system
        siblings = False
    return max(1, usable_cores() // 2) if siblings else usable_cores()  # two threads of a core share what multiplies


Item = TypeVar("Item")
Made = TypeVar("Made")
PADDING = 32
"""One in so many tokens of a full batch may be padding: of 1,024 tokens 32, which cost on a CPU about as much as
one more batch (with MiniLM-L6 20 do in torch, 8 in ONNX)."""


def windows(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield consecutive lists of up to ``size`` items; never more than one of them is in memory."""
    iterator = iter(items)
    while window := list(islice(iterator, size)):
        yield window


def one_ahead(make: Callable[[Item], Made], items: Sequence[Item]) -> Iterator[Made]:
    """Yield ``make(item)`` for each item in order; while the caller works on one, a thread makes the next.

    Only ``make`` runs in the thread, and never more than one call of it: what is asked of it must take a bounded time,
    because a caller that stops early waits for the call under way. An exception in it reaches the caller in the place
    of its result.
    """
    if not items:
        return
    with ThreadPoolExecutor(1, thread_name_prefix="one_ahead") as thread:  # starts no thread until one is needed
        made = make(items[0])
        for item in items[1:]:
            coming = thread.submit(make, item)
            yield made
            made = coming.result()
        yield made


def longest_first(lengths: Sequence[int]) -> list[int]:
    """Return the indices of the lengths, the longest first, equal ones in their order."""
    order: list[int] = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable").tolist()
    return order


def batches_by_length(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield lists of indices, the longest texts first, each batch within ``budget`` tokens once padded.

    A batch also ends where its padding would cost more than a batch of its own for what follows: above one token in
    :data:`PADDING` of the budget.
    A text longer than the budget gets a batch of its own.
    """
    batch: list[int] = []
    real = 0  # tokens of the batch that are not padding
    for index in longest_first(lengths):
        if batch:
            padded = (len(batch) + 1) * lengths[batch[0]]
            if padded > budget or padded - real - lengths[index] > budget // PADDING:
                yield batch
                batch, real = [], 0
        batch.append(index)
        real += lengths[index]
    if batch:
        yield batch


def pad(texts: Sequence[Sequence[int]], token: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return token ids and attention mask, (B, L), L the longest of the texts.

    A text without tokens, which only a tokenizer without special tokens makes, gets the padding as its one token.
    """
    texts = [text or [token] for text in texts]
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    real = np.arange(lengths.max()) < lengths[:, np.newaxis]  # (B, L)
    ids = np.full(real.shape, token, dtype=np.int64)
    ids[real] = np.fromiter(chain.from_iterable(texts), dtype=np.int64, count=int(lengths.sum()))
    return ids, real.astype(np.int64)
