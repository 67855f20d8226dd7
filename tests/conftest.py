"""Fixtures that need no network: a tiny vocabulary, tiny random encoders, a toy tree and toy documents."""

from __future__ import annotations

import gc
import gzip
import json
import logging
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from support.fresh_process import FreshProcesses, fresh_processes

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("PIP_NO_INDEX", "1")  # encoders come from the package index
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Tests run side by side, and thread pools would fight for the cores. Numpy and torch look when they are imported, hence
# nothing is before this.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Some virtual machines announce AMX and kill the process that uses it, as bfloat16 does. It looks once, too.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

SHARED_DATA = Path(__file__).parents[1].parent / "shared" / "data"

WORDS = {
    "physics": "atom laser quantum",
    "optics": "lens mirror prism",
    "chemistry": "acid salt molecule",
    "law": "court judge contract",
    "sports": "goal match referee",
    "tennis": "racket serve net",
    "rowing": "boat oar lake",
}
TREE = {
    "science": None,
    "physics": "science",
    "optics": "physics",
    "chemistry": "science",
    "society": None,
    "law": "society",
    "sports": "society",
    "tennis": "sports",
    "rowing": "sports",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that are slow as a whole: of two workers, the one with the last file decides the end.

    Two tests of one name are refused: xdist would run one of them and say nothing.
    """
    if repeated := [name for name, times in Counter(item.nodeid for item in items).items() if times > 1]:
        raise pytest.UsageError(f"several tests are called {repeated[0]}: give each a name of its own")
    tests, slow = Counter(item.path for item in items), Counter[Path]()
    slow.update(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path] / tests[item.path])


def pytest_collection_finish() -> None:
    """Keep the garbage collector away from what is imported by now: it would go through it after every training."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _known_machine() -> Iterator[None]:
    """Ask git and the installed packages once: what they say is part of every result, and does not change meanwhile."""
    from hgclr import provenance

    with pytest.MonkeyPatch.context() as patch:
        for name in ("_commit", "_version"):
            patch.setattr(provenance, name, cache(getattr(provenance, name)))
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Leave the flushing to the system: no test takes the power away, and a run of toys flushes a hundred times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the tests out of the user's cache."""
    monkeypatch.setenv("HGCLR_CACHE", str(tmp_path_factory.getbasetemp() / "hgclr-cache"))


@pytest.fixture(autouse=True)
def _own_log() -> None:
    """Undo what commands have set: those of other tests, and of fixtures of whole files, run in the same process."""
    ours = [name for name in logging.root.manager.loggerDict if name == "hgclr" or name.startswith("hgclr.")]
    for logger in map(logging.getLogger, ours):
        logger.disabled, logger.propagate = False, True  # a server's configuration may turn them off
        logger.handlers.clear()
        logger.setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def graphs(shared_folder: Path) -> Path:
    """A folder for the graphs of all workers."""
    folder = shared_folder / "graphs"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session", autouse=True)
def _traced_once(graphs: Path) -> Iterator[None]:
    """Trace models of a kind only once, where the tests to be run have imported the exporter."""
    with pytest.MonkeyPatch.context() as patch:
        if "hgclr.export.onnx" in sys.modules:
            from support.traced import traced_once

            patch.setattr("hgclr.export.onnx.as_traced", traced_once(graphs))
        yield


@pytest.fixture(scope="session")
def transformers_processes() -> Iterator[FreshProcesses]:
    """Processes that have imported torch and transformers, and nothing of ours."""
    with fresh_processes("transformers.pipelines", "torch") as processes:
        yield processes


@pytest.fixture(scope="session")
def in_time() -> Callable[[float, float], bool]:
    """Return a function that tells whether work took at most so many CPU seconds, as the machine is here and now.

    Two tests at a time on the two halves of one core, or cold caches, make everything slower, and memory most. Where
    the limit is not kept, a fixed piece of work tells how many times as long everything takes as where it was set.
    """

    def in_time(seconds: float, limit: float) -> bool:
        if seconds < limit:
            return True
        best = float("inf")
        for _ in range(3):
            started = time.process_time()
            sorted({str(number): [number] for number in range(300_000)})
            best = min(best, time.process_time() - started)
        return seconds < limit * best / 0.15

    return in_time


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The benchmark sets beside the repository."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the benchmark data (../shared/data) is not on this machine")
    return SHARED_DATA


@pytest.fixture(scope="session")
def taxonomy():
    """A tree of nine labels and three levels in which some parents come after their children."""
    from hgclr.taxonomy import Taxonomy

    ids = sorted(TREE)
    return Taxonomy(ids, [ids.index(TREE[i]) if TREE[i] else -1 for i in ids])


@pytest.fixture(scope="session")
def vocabulary() -> list[str]:
    words = sorted({word for text in WORDS.values() for word in text.split()} | set(TREE))
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a", "of", "in", "is", *words]


@pytest.fixture(scope="session")
def make_encoder(tmp_path_factory: pytest.TempPathFactory, vocabulary: list[str]) -> Callable[[str], str]:
    """Return a function that writes a tiny random encoder of a kind (bert, mpnet, …) and gives its folder."""
    made: dict[str, str] = {}

    def make(kind: str) -> str:
        if kind not in made:
            made[kind] = _write_encoder(kind, vocabulary, tmp_path_factory.mktemp(kind))
        return made[kind]

    return make


def _write_encoder(kind: str, vocabulary: list[str], folder: Path) -> str:
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

    # MPNet and RoBERTa: <s> = 0, pad = 1, positions start at pad + 1; nothing may assume BERT's numbers.
    pad, first, last = (
        ("[PAD]", "[CLS]", "[SEP]") if kind in ("bert", "distilbert", "electra") else ("<pad>", "<s>", "</s>")
    )
    if pad != "[PAD]":
        vocabulary = [first, pad, last, "[UNK]", *vocabulary[4:]]
    ids = {word: index for index, word in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}", special_tokens=[(first, ids[first]), (last, ids[last])]
    )
    # Published tokenizer files carry a truncation and a padding of their own, which we must not obey.
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=5, pad_id=ids[pad], pad_token=pad)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token=pad,
        cls_token=first,
        sep_token=last,
        mask_token="[MASK]",
    ).save_pretrained(folder)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    if kind == "distilbert":
        sizes = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}
    if kind == "electra":
        sizes["embedding_size"] = 16  # word embeddings narrower than the text vectors
    torch.manual_seed(7)
    positions = 64 if pad == "[PAD]" else 66
    config = AutoConfig.for_model(
        kind, vocab_size=len(vocabulary), max_position_embeddings=positions, pad_token_id=ids[pad], **sizes
    )
    AutoModel.from_config(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def default_encoder(make_encoder: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny random encoder where the real one would be fetched to, for pages that are followed to the letter.

    It is trained for two epochs where the recipe has up to thirty.
    """
    from hgclr import encoders
    from hgclr.encoders import DEFAULT_ENCODER, ENCODERS, NOTE

    monkeypatch.setenv("HGCLR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("hgclr.training.recipe.default_epochs", lambda *_: 2)
    cached = Path(shutil.copytree(make_encoder("bert"), tmp_path / "cache" / "encoders" / DEFAULT_ENCODER))
    for name in ENCODERS[DEFAULT_ENCODER].sha256:
        if not (cached / name).exists():
            (cached / name).write_text("{}")
    # Files that are as noted are not hashed; others would be taken for damaged, and fetched again.
    (cached / NOTE).write_text(json.dumps(encoders._note(ENCODERS[DEFAULT_ENCODER], cached)))
    return cached


@pytest.fixture(scope="session")
def tokenizer(make_encoder: Callable[[str], str]):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(make_encoder("bert"))


@pytest.fixture(scope="session")
def untrained(make_encoder, taxonomy, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that saves an untrained model, whose logits are spread out, and gives its folder.

    What was made is given again: a test that changes a folder takes a copy.
    """
    made: dict[object, Path] = {}

    def make(kind: str = "bert", *, cls: type | None = None, spread: float = 1.0, **settings: object) -> Path:
        import torch

        from hgclr.models import FlatForSequenceClassification
        from hgclr.models.base import load_tokenizer, save

        key = kind, cls, spread, *sorted(settings.items())
        if key not in made:
            tokenizer = load_tokenizer(make_encoder(kind))
            torch.manual_seed(4)
            model = (cls or FlatForSequenceClassification).from_encoder(
                make_encoder(kind), taxonomy, tokenizer, **settings
            )
            torch.nn.init.normal_(model.classifier.weight, std=spread)
            torch.nn.init.normal_(model.classifier.bias, std=spread / 2)
            made[key] = tmp_path_factory.mktemp("untrained") / "model"
            save(model, tokenizer, made[key])
        return made[key]

    return make


@pytest.fixture(scope="session")
def toy_data(tmp_path_factory: pytest.TempPathFactory, taxonomy) -> Path:
    """A data folder whose texts give their labels away, so that a tiny model can learn it whole."""
    import numpy as np

    folder = tmp_path_factory.mktemp("toy")
    taxonomy.write(folder / "taxonomy.tsv")
    random = np.random.default_rng(5)
    for split, count in (("train", 96), ("dev", 24), ("test", 24)):
        with gzip.open(folder / f"{split}.jsonl.gz", "wt", encoding="utf-8") as file:
            for number in range(count):
                topics = random.choice(sorted(WORDS), size=1 + number % 2, replace=False)
                labels = taxonomy.closure([taxonomy.resolve(str(topic)) for topic in topics])
                words = [w for topic in topics for w in random.choice(WORDS[str(topic)].split(), 3)]
                words += list(random.choice(["the", "a", "of", "in", "is"], 1 + number % 7))
                random.shuffle(words)
                row = {"text": " ".join(words), "labels": [taxonomy.ids[label] for label in labels]}
                file.write(json.dumps(row) + "\n")
    return folder


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def trained_run(shared_folder: Path, make_encoder, toy_data: Path) -> Callable[[str], Path]:
    """Return a function that gives the run folder of an architecture, trained once for all tests of all workers.

    A test that changes the folder takes a copy.
    """

    def run_folder(architecture: str = "flat") -> Path:
        from filelock import FileLock

        from hgclr.training import RunConfig, train

        output = shared_folder / f"trained-{architecture}"
        with FileLock(f"{output}.lock"):
            if not (output / "metrics.json").is_file():
                settings = {"epochs": 8, "learning_rate": 1e-2, "precision": "fp32", "seed": 5}
                model = {"encoder": make_encoder("bert"), "architecture": architecture}
                train(RunConfig(data={"path": toy_data}, model=model, training=settings, output=output))
        return output

    return run_folder
