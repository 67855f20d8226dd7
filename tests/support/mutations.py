"""Damage to real files: flipped bytes, cut ends, foreign bytes, and fields of JSON that are not what they were."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["mutated_bytes", "mutated_json", "mutated_text"]

VALUES = (None, True, -1, 0, 1, 7, 2**62, -(2**63), 0.5, 1e300, float("nan"), "", "x", "../x", "0", [], [1], ["a"], {})
"""What a field may become; nothing between 7 and what no machine can hold, which would only take its memory."""
ODD = ("2001-99-99", "&a [*a]", "!!python/object:os.system x", "{", "0x", "- -", "*b")
"""Values that YAML reads as something of its own, or not at all."""
NESTED: Any = json.loads("[" * 300 + "]" * 300)


def mutated_bytes(content: bytes, draw: random.Random) -> bytes:
    """Flip bits, cut the end off, put foreign bytes in, or leave some out."""
    data = bytearray(content)
    kind = draw.choice(("flip", "flip", "cut", "insert", "delete", "zero", "empty"))
    place = draw.randrange(len(data) + 1) if draw.random() < 0.5 else draw.randrange(min(len(data), 200) + 1)
    length = draw.choice((1, 4, 64))
    if kind == "flip":
        for _ in range(draw.choice((1, 2, 8))):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    elif kind == "cut":
        del data[place:]
    elif kind == "insert":
        data[place:place] = draw.randbytes(length)
    elif kind == "delete":
        del data[place : place + length]
    elif kind == "zero":
        data[place : place + length] = bytes(len(data[place : place + length]))
    else:
        data.clear()
    return bytes(data)


def mutated_json(content: bytes, draw: random.Random) -> bytes:
    """Change one to three fields, at any depth: another value, another field's value, none, or one more."""
    value = json.loads(content)
    for _ in range(draw.choice((1, 1, 3))):
        places = list(_places(value))
        if not places:
            break
        holder, key = draw.choice(places)
        kind = draw.choice(("value", "value", "value", "swap", "delete", "rename", "nest"))
        if kind == "value":
            holder[key] = copy.deepcopy(draw.choice(VALUES))
        elif kind == "swap":
            other, other_key = draw.choice(places)
            holder[key] = copy.deepcopy(other[other_key])
        elif kind == "delete":
            del holder[key]
        elif kind == "rename" and isinstance(holder, dict):
            holder[f"{key}x"] = holder.pop(key)
        else:
            holder[key] = copy.deepcopy(NESTED)
    return json.dumps(value).encode()


def mutated_text(content: bytes, draw: random.Random) -> bytes:
    """Change lines of a text, as YAML is one, or its bytes."""
    if draw.random() < 0.4:
        return mutated_bytes(content, draw)
    lines = content.decode().split("\n")
    place = draw.randrange(len(lines))
    name, _, value = lines[place].partition(":")
    changes: tuple[Callable[[], str], ...] = (
        lambda: f"{name}: {json.dumps(draw.choice(VALUES))}",
        lambda: f"{name}: {draw.choice(ODD)}",
        lambda: f"{name}: {'[' * 500}",
        lambda: f"{name}{draw.choice('x: ')}:{value}",
        lambda: f" {lines[place]}",
        lambda: lines[place] + "\n" + lines[place],
        lambda: "",
        lambda: draw.choice(lines),
    )
    lines[place] = draw.choice(changes)()
    return "\n".join(lines).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every holder of a field, with the field's key or index."""
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(min(len(holder), 20))
        for key in keys:
            yield holder, key
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])
