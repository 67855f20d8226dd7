"""Files as the authors' published program writes them, from random numbers; nothing here comes from ``hgclr``."""

from __future__ import annotations

from argparse import Namespace
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

NAMES = ["science", "society", "physics", "law", "law", "optics of physics", "tennis"]
PARENTS = [-1, -1, 0, 0, 1, 2, 4]
WIDTH, LAYERS, INNER, POSITIONS = 32, 2, 64, 64  # the tiny BERT of the tests
ARGUMENTS = {"lamb": 0.3, "thre": 0.2, "tau": 1, "graph": 1, "layer": 1, "contrast": 1}
OTHERS = {"lr": 3e-5, "data": "toy", "batch": 12, "device": "cuda", "multi": True, "seed": 3, "wandb": False}


class PublishedProgram:
    """A data folder and a checkpoint, to be changed at will before they are written."""

    def __init__(self, tokenizer: Any, names: list[str] = NAMES, parents: list[int] = PARENTS) -> None:
        torch.manual_seed(11)
        self.label_tokens = {
            number: tokenizer(name, add_special_tokens=False)["input_ids"] for number, name in enumerate(names)
        }
        self.slot: dict[int, set[int]] = defaultdict(set)
        for child, parent in enumerate(parents):
            if parent >= 0:
                self.slot[parent].add(child)
        self.arguments: dict[str, Any] = {**OTHERS, **ARGUMENTS}
        self.weights = {
            **bert(len(tokenizer)),
            **label_side(len(names)),
            **stored_labels(tokenizer, list(self.label_tokens.values()), parents),
        }

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write everything; return checkpoint and data folder."""
        data = folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        torch.save(self.label_tokens, data / "bert_value_dict.pt")
        torch.save(self.slot, data / "slot.pt")
        moments = {0: {"step": 7, "exp_avg": torch.zeros(2), "exp_avg_sq": torch.zeros(2)}}
        content = {
            "param": self.weights,
            "optim": [{"state": moments, "param_groups": [{"lr": 3e-5, "params": [0]}]}, 0.0, 2000, 7, 3e-5],
            "sche": None,
            "score": 0.5,
            "args": Namespace(**self.arguments),
            "best_score": 0.5,
        }
        torch.save(content, folder / "checkpoint_best_macro.pt")
        return folder / "checkpoint_best_macro.pt", data


def bert(vocabulary: int) -> dict[str, Tensor]:
    weights = {
        "bert.embeddings.position_ids": torch.arange(POSITIONS)[None],
        "bert.embeddings.word_embeddings.weight": torch.randn(vocabulary, WIDTH) * 0.5,
        "bert.embeddings.position_embeddings.weight": torch.randn(POSITIONS, WIDTH) * 0.5,
        "bert.embeddings.token_type_embeddings.weight": torch.randn(2, WIDTH) * 0.5,
        **norm("bert.embeddings.LayerNorm"),
    }
    for number in range(LAYERS):
        layer = f"bert.encoder.layer.{number}"
        for part in ("query", "key", "value"):
            weights |= linear(f"{layer}.attention.self.{part}")
        weights |= linear(f"{layer}.attention.output.dense") | norm(f"{layer}.attention.output.LayerNorm")
        weights |= linear(f"{layer}.intermediate.dense", WIDTH, INNER)
        weights |= linear(f"{layer}.output.dense", INNER, WIDTH) | norm(f"{layer}.output.LayerNorm")
    return weights


def label_side(labels: int) -> dict[str, Tensor]:
    layer = "graph_encoder.hir_layers.0"
    weights = {
        **linear("classifier", WIDTH, labels),
        **linear("contrastive_lossfct.transform.1"),
        **linear("contrastive_lossfct.transform.4"),
        **linear("token_classifier.dense"),
        **linear("token_classifier.out_proj", WIDTH, labels),
        "graph_encoder.id_embedding.weight": torch.randn(labels + 1, WIDTH),
        "graph_encoder.distance_embedding.weight": torch.randn(20, 1),
        "graph_encoder.edge_embedding.weight": torch.cat([torch.zeros(1, 1), torch.randn(labels, 1)]),
        **norm(f"{layer}.hir_attn.layer_norm"),
        **norm(f"{layer}.cross_layer_norm"),
        **linear(f"{layer}.classifier", WIDTH, labels),
        **linear(f"{layer}.output_layer.0", WIDTH, INNER),
        **linear(f"{layer}.output_layer.2", INNER, WIDTH),
        **norm(f"{layer}.output_layer_norm"),
    }
    for part in ("k_proj", "v_proj", "q_proj", "out_proj"):
        weights |= linear(f"{layer}.hir_attn.self.{part}") | linear(f"{layer}.cross_attn.{part}")
    return weights


def stored_labels(tokenizer: Any, tokens: list[list[int]], parents: list[int]) -> dict[str, Tensor]:
    rows = [torch.tensor([tokenizer.cls_token_id, *name, tokenizer.sep_token_id]) for name in tokens]
    everyone = range(len(parents))
    return {
        "graph_encoder.label_name": torch.nn.utils.rnn.pad_sequence(
            rows, batch_first=True, padding_value=tokenizer.pad_token_id
        ),
        "graph_encoder.label_id": torch.arange(len(parents)),
        "graph_encoder.edge_mat": torch.zeros(len(parents) ** 2, 15, dtype=torch.long),  # read by nobody but itself
        "graph_encoder.distance_mat": torch.tensor([[distance(parents, i, j) for i in everyone for j in everyone]]),
        "graph_encoder.edge_list": torch.zeros(2, 2 * len(parents), dtype=torch.long),
    }


def distance(parents: list[int], one: int, other: int) -> int:
    """The published walk: whichever label has the larger number climbs, which is right if parents come first."""
    steps = 0
    while one != other:
        one, other = sorted((one, other))
        other = parents[other]
        steps += 1
    return steps


def linear(name: str, inputs: int = WIDTH, outputs: int = WIDTH) -> dict[str, Tensor]:
    return {f"{name}.weight": torch.randn(outputs, inputs) * 0.3, f"{name}.bias": torch.randn(outputs) * 0.3}


def norm(name: str) -> dict[str, Tensor]:
    return {f"{name}.weight": 1 + torch.randn(WIDTH) * 0.1, f"{name}.bias": torch.randn(WIDTH) * 0.1}
