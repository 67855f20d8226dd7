"""A model that needs no torch, whose labels can be told from the words of a text; and files of texts for it.

Its logits are the sum over the words of a text: a word counts for its label and all labels above.
"""

from __future__ import annotations

import json
import math
import os
import signal
import time
from pathlib import Path

import numpy as np
import onnx
from tokenizers import Tokenizer, models, pre_tokenizers

from hgclr.bulk.run import answer_in_worker

PARENTS = {"science": None, "physics": "science", "law": None, "courts": "law"}
WORDS = {"atom": "physics", "experiment": "science", "judge": "courts", "statute": "law"}
NOTHING, EACH = -3.0, 5.0
"""The logit of a label without any of its words, and what each of them adds."""
IDS = list(PARENTS)


def path_to(label: str) -> list[str]:
    parent = PARENTS[label]
    return [*([] if parent is None else path_to(parent)), label]


def prediction(text: str, **more: object) -> dict[str, object]:
    """Return the prediction for a text in its JSON form."""
    return {"labels": expected(text), "abstained": [], "truncated": False} | more


def expected(text: str) -> list[dict[str, object]]:
    """Return the labels of a text, by counting its words."""
    counts = {label: sum(label in path_to(WORDS[word]) for word in text.split() if word in WORDS) for label in IDS}
    given = sorted((label for label in IDS if NOTHING + EACH * counts[label] > 0), key=path_to)
    return [
        {
            "id": label,
            "path": path_to(label),
            "probability": round(1 / (1 + math.exp(-NOTHING - EACH * counts[label])), 4),
        }
        for label in given
    ]


def write_model(folder: Path, *, each: float = EACH, ids: dict[str, str] | None = None) -> Path:
    """Write the model as ``hgclr export --to onnx`` would.

    Args:
        folder: where.
        each: what a word adds.
        ids: other ids for labels.
    """
    folder.mkdir(parents=True)
    vocabulary = ["[PAD]", "[UNK]", *WORDS]
    table = np.zeros((len(vocabulary), len(IDS)), dtype=np.float32)
    for word, label in WORDS.items():
        table[vocabulary.index(word), [IDS.index(above) for above in path_to(label)]] = each
    body = f"""
        <ir_version: 10, opset_import: ["" : 23]>
        agraph (int64[batch, length] input_ids, int64[batch, length] attention_mask)
            => (float[batch, {len(IDS)}] logits) {{
            last = Constant <value_ints = [2]> ()
            middle = Constant <value_ints = [1]> ()
            nothing = Constant <value_float = {NOTHING}> ()
            words = Gather (table, input_ids)
            numbers = Cast <to = 1> (attention_mask)
            mask = Unsqueeze (numbers, last)
            real = Mul (words, mask)
            total = ReduceSum <keepdims = 0> (real, middle)
            logits = Add (total, nothing)
        }}
    """
    model = onnx.parser.parse_model(body)
    model.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    onnx.save(model, folder / "model.onnx")
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "id2label": {str(place): (ids or {}).get(label, label) for place, label in enumerate(IDS)},
        "label_parents": [-1 if PARENTS[label] is None else IDS.index(PARENTS[label]) for label in IDS],
        "label_names": IDS,
        "pad_token_id": 0,
        "max_length": 16,
        "cut_length": None,
        "threshold": 0.5,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def text_of(number: int) -> str:
    """Return a text for a number: all combinations of words come in turn, and the number itself."""
    words = [word for place, word in enumerate(WORDS) if number >> place & 1]
    return " ".join([f"no{number}", *words])


def die(*_: object) -> None:
    """Kill the process that this is called in."""
    os.kill(os.getpid(), signal.SIGKILL)


def slowly(model, device, changes, texts):
    """Take a while for every chunk, and note beside the model which process of which node had it.

    This module is not on the nodes of a cluster: register it to be sent by value.
    """
    import ray

    node = ray.get_runtime_context().get_node_id()
    line = json.dumps({"node": node, "process": os.getpid(), "texts": len(texts)}) + "\n"
    descriptor = os.open(Path(model).with_name("blocks.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, line.encode())  # one call: lines of several processes do not mix
    os.close(descriptor)
    time.sleep(0.05)
    return answer_in_worker(model, device, changes, texts)


def write_lines(path: Path, first: int, count: int) -> Path:
    """Write rows as JSON lines, each with a number of its own."""
    rows = ({"number": number, "text": text_of(number)} for number in range(first, first + count))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def check_lines(path: Path, first: int, count: int) -> None:
    """Check that a result has the rows that `write_lines` wrote, each once, in order, with the right labels."""
    rows = read_lines(path)
    assert [row["number"] for row in rows] == list(range(first, first + count))
    for row in rows:
        text = text_of(row["number"])
        assert row == {"number": row["number"], "text": text, "prediction": prediction(text)}
