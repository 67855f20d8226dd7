"""Backends that compute logits with torch or onnxruntime; batches of texts by length."""

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
from hgclr.provenance import chosen_threads, usable_cores

if TYPE_CHECKING:
    from hgclr.models import HierarchicalPreTrainedModel

PROCESSOR_TOKENS = 1024
"""Tokens in a batch on a CPU: more do not fit the cache and only add padding."""
ACCELERATOR_TOKENS = 16384
"""Tokens in a batch on an accelerator."""


class Backend(Protocol):
    """Computes logits from padded token ids; ``batch_tokens`` is the best size of a batch, padding included."""

    batch_tokens: int

    def logits(self, input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return logits, (B, K), from ids and mask, (B, L)."""


class TorchBackend:
    """Run a model, given as a folder or in memory, with torch; by default on an accelerator if there is one."""

    def __init__(self, model: str | Path | HierarchicalPreTrainedModel, device: str | None = None) -> None:
        require_extra("torch", extra="train", capability="Prediction with torch")
        import torch

        from hgclr.models import load_deployed

        remedy = "give the folder 'model' that hgclr train wrote"
        with refuse_broken(f"cannot load a model from {model}", remedy=remedy):
            self.model = load_deployed(model) if isinstance(model, str | Path) else model.eval()
        self.device = torch.device(device or torch.accelerator.current_accelerator() or "cpu")
        self.model.to(self.device)  # type: ignore[arg-type]
        self.batch_tokens = PROCESSOR_TOKENS if self.device.type == "cpu" else ACCELERATOR_TOKENS

    def logits(self, input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64]) -> NDArray[np.float32]:
        return self._run(input_ids, attention_mask, lambda **inputs: self.model(**inputs).logits)

    def vectors(self, input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the encoder's vectors, (B, H), from ids and mask, (B, L)."""
        return self._run(input_ids, attention_mask, self.model.encode)

    def _run(
        self, input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64], compute: Callable[..., Any]
    ) -> NDArray[np.float32]:
        import torch

        with torch.inference_mode():
            inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
            rows = compute(**{name: torch.from_numpy(array).to(self.device) for name, array in inputs.items()})
        result: NDArray[np.float32] = rows.float().cpu().numpy()
        return result


class OnnxBackend:
    """Run a graph that ``hgclr export`` wrote with onnxruntime on the CPU, by default in :func:`usable_threads`."""

    batch_tokens = PROCESSOR_TOKENS

    def __init__(self, graph: str | Path, threads: int | None = None) -> None:
        require_extra("onnxruntime", extra="onnx", capability="Prediction with an ONNX model")
        onnxruntime = import_onnxruntime()
        with refuse_broken("cannot load the graph", path=graph, remedy="write it again with hgclr export"):
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
    """Return onnxruntime with telemetry, on by default from version 1.29, turned off."""
    # onnxruntime reads the variable on import. disable_telemetry_events is for programs that imported it earlier; alone
    # it leaves an id of the machine in the user's cache.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime  # type: ignore[import-untyped]

    onnxruntime.disable_telemetry_events()
    return onnxruntime


def session_options(threads: int | None = None) -> Any:
    """Return onnxruntime's options for a graph that ``hgclr export`` wrote."""
    options = import_onnxruntime().SessionOptions()
    # By default onnxruntime counts the cores of the machine, not of the container, and pins its threads to them.
    options.intra_op_num_threads = threads or usable_threads()
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors; its warnings concern its own optimisations
    # The fused kernel is slower than the addition and the norm that it replaces.
    options.add_session_config_entry("optimization.disable_specified_optimizers", "SkipLayerNormFusion")
    # Spinning threads would take the cores from the thread that tokenises the next batch.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Small blocks of work, so that one busy core does not delay the others.
    options.add_session_config_entry("session.dynamic_block_base", "4")
    # onnxruntime keeps a memory plan for every shape, and batches have many shapes.
    options.enable_mem_pattern = False
    return options


def usable_threads() -> int:
    """Return ``OMP_NUM_THREADS``, as torch does, or the number of cores that this process may use."""
    if (chosen := chosen_threads()) is not None:
        return chosen
    try:
        siblings = Path("/sys/devices/system/cpu/smt/active").read_text(encoding="ascii").strip() == "1"
    except OSError:  # only Linux has the file
        siblings = False
    return max(1, usable_cores() // 2) if siblings else usable_cores()  # two threads of a core share its vector units


Item = TypeVar("Item")
Made = TypeVar("Made")
PADDING = 32
"""1 in 32 tokens of a full batch may be padding: on a CPU, 32 of 1,024 cost about as much as one more batch."""


def windows(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield consecutive lists of up to ``size`` items, one at a time in memory."""
    iterator = iter(items)
    while window := list(islice(iterator, size)):
        yield window


def one_ahead(make: Callable[[Item], Made], items: Sequence[Item]) -> Iterator[Made]:
    """Yield ``make(item)`` for each item in order; a thread computes the next one while the caller works on one.

    A caller that stops early waits for the running call. An exception in ``make`` is raised in place of its result.
    """
    if not items:
        return
    with ThreadPoolExecutor(1, thread_name_prefix="one_ahead") as thread:  # starts its thread on the first submit
        made = make(items[0])
        for item in items[1:]:
            coming = thread.submit(make, item)
            yield made
            made = coming.result()
        yield made


def longest_first(lengths: Sequence[int]) -> list[int]:
    """Return the indices of the lengths, the longest first; ties keep their order."""
    order: list[int] = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable").tolist()
    return order


def batches_by_length(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield batches as lists of indices, the longest texts first, each within ``budget`` tokens after padding.

    A batch also ends where its padding would exceed one token in :data:`PADDING` of the budget. A text longer than the
    budget is a batch.
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
    """Return token ids and attention mask, (B, L); a text without tokens gets one padding token."""
    texts = [text or [token] for text in texts]
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    real = np.arange(lengths.max()) < lengths[:, np.newaxis]  # (B, L)
    ids = np.full(real.shape, token, dtype=np.int64)
    ids[real] = np.fromiter(chain.from_iterable(texts), dtype=np.int64, count=int(lengths.sum()))
    return ids, real.astype(np.int64)
