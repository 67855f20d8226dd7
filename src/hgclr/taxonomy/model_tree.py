"""The label tree that a model's folder holds, read without the libraries that the model needs."""

from __future__ import annotations

import json
from pathlib import Path

from hgclr.errors import InputError
from hgclr.taxonomy.tree import Taxonomy

__all__ = ["read_model_tree"]

REMEDY = "give a folder that hgclr train or hgclr export wrote"


def read_model_tree(folder: str | Path) -> Taxonomy:
    """Read the label tree in the ``config.json`` of a model's folder.

    Raises:
        InputError: if there is none, or it is broken.
    """
    path = Path(folder) / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"no model's configuration: {error}", path=path, remedy=REMEDY) from error
    try:
        config |= config.get("hgclr", {})  # where a stock folder keeps what transformers does not know
        labels = {int(index): str(identifier) for index, identifier in config["id2label"].items()}
        return Taxonomy([labels[index] for index in range(len(labels))], config["label_parents"], config["label_names"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError("the model's configuration holds no label tree", path=path, remedy=REMEDY) from error
    except InputError as error:
        raise InputError(error.what, path=path, remedy=REMEDY) from None
