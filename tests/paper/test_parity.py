"""Numbers that the authors' released program computed for a small model, against ours through the import."""

from __future__ import annotations

import hashlib
import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertTokenizerFast

from hgclr.models import HGCLRForSequenceClassification
from hgclr.paper.published import published_name, read_published
from support.toy import still

REFERENCE = Path(__file__).parents[2].parent / "shared" / "reference" / "parity.json"
EDGES, DISTANCES = "graph_encoder.edge_embedding.weight", "graph_encoder.distance_embedding.weight"
VANISHING = ("self.key.bias", "k_proj.bias", "hir_attn.layer_norm.bias")
"""What adds the same to all logits of a softmax: the gradient is 0, and what is found of it is rounding."""
CASES = {"edge_padding_zero": 0.0, "edge_padding_drawn": 0.02}


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    if not REFERENCE.is_file():
        pytest.skip("the authors' numbers (../shared/reference/parity.json) are not on this machine")
    return json.loads(REFERENCE.read_text())


def weight(name: str, shape: list[int]) -> torch.Tensor:
    """A parameter of the released program by the formula under ``weights`` in the file."""
    seed = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16)
    x = np.random.default_rng(seed).standard_normal(shape)
    if "LayerNorm.weight" in name or "layer_norm.weight" in name or name.endswith("norm.weight"):
        x = 1 + 0.1 * x
    else:
        x = (0.8 if name in (DISTANCES, EDGES) else 0.1) * x
    return torch.from_numpy(x.astype(np.float32))


def imported(reference: dict[str, Any], padding: float, folder: Path) -> HGCLRForSequenceClassification:
    weights = {name: weight(name, shape) for name, shape in reference["shapes"].items()}
    weights[EDGES][0] = padding
    numbers = reference["settings"]
    arguments = Namespace(
        lamb=numbers["lambda"],
        thre=numbers["gamma"],
        tau=numbers["gumbel_temperature"],
        layer=numbers["layers"],
        graph=1,
        contrast=1,
    )
    torch.save({"param": weights, "args": arguments}, folder / "checkpoint.pt")
    torch.save(dict(enumerate(reference["names_token_ids"])), folder / "bert_value_dict.pt")
    children: dict[int, set[int]] = {}
    for child, parent in enumerate(reference["parents"]):
        if parent >= 0:
            children.setdefault(parent, set()).add(child)
    torch.save(children, folder / "slot.pt")
    encoder = folder / "encoder"
    BertConfig(**reference["encoder_config"]).save_pretrained(encoder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{n}" for n in range(5, 200))]
    (encoder / "vocab.txt").write_text("\n".join(words) + "\n")
    BertTokenizerFast(vocab=str(encoder / "vocab.txt")).save_pretrained(encoder)
    model, _ = read_published(folder / "checkpoint.pt", folder, str(encoder))
    for name, module in model.named_modules():
        if name.startswith("label_encoder.layers") and hasattr(module, "dropout"):
            module.dropout.p = 0.0
    return still(model)


def close(found: torch.Tensor, expected: Any, what: str) -> None:
    """Within 1e-5 of the largest: the released program computes in single precision, the file has eight decimals."""
    value = torch.tensor(expected, dtype=torch.float64)
    size = float(value.abs().max())
    torch.testing.assert_close(
        found.detach().double(), value, atol=1e-5 * size + 1e-8, rtol=1e-5, msg=lambda text: f"{what}: {text}"
    )


@pytest.mark.parametrize("case", CASES)
def test_the_released_program_computes_the_same(
    reference: dict[str, Any], case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = reference[case]
    model = imported(reference, CASES[case], tmp_path)
    assert model.config.edge_padding == case.removeprefix("edge_padding_")
    ids = torch.tensor(reference["input_ids"])
    labels = torch.zeros(len(ids), len(reference["parents"]))
    for row, gold in enumerate(reference["gold"]):
        labels[row, gold] = 1.0
    noise = torch.from_numpy(np.random.default_rng(8).gumbel(size=(*ids.shape, labels.shape[1])).astype(np.float32))
    mask = (ids != 0).long()
    probability: list[torch.Tensor] = []
    compute = model.token_probability

    def watched(*arguments: Any) -> torch.Tensor:
        probability.append(compute(*arguments))
        return probability[-1]

    monkeypatch.setattr(model, "token_probability", watched)
    output = model(ids, mask, labels, noise=noise)
    output.loss.backward()

    close(output.logits, expected["logits"], "logits")
    close(output.loss, expected["loss"], "loss")
    for term in ("loss_original", "loss_positive", "loss_contrastive"):
        close(output.terms[term], expected[term], term)
    close(model.label_features(), expected["label_features"], "label features")
    for document, length in enumerate(mask.sum(1).tolist()):
        found = probability[0][document, :length]
        close(found, expected["P_i"][document][:length], "P_i")
        kept = (found > reference["settings"]["gamma"]).int()
        assert kept.tolist() == expected["kept"][document][:length]

    ours = gradients(model, reference)
    assert set(ours) == set(expected["gradients"])
    for name, gradient in ours.items():
        theirs = expected["gradients"][name]
        norm = float(gradient.double().norm())
        if name.endswith(VANISHING):
            assert max(norm, theirs["norm"]) < 1e-8, name
            continue
        assert norm == pytest.approx(theirs["norm"], rel=1e-5, abs=0), name
        close(gradient.flatten()[: len(theirs["first"])], theirs["first"], name)
    blind = case == "edge_padding_drawn"  # labels see themselves alone: the tree gets no gradient
    assert [ours[name].norm() == 0 for name in (EDGES, DISTANCES)] == [blind, blind]


def gradients(model: HGCLRForSequenceClassification, reference: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Ours under their names, in their shapes: padding rows are there, and get no gradient."""
    found = {}
    for name, parameter in model.named_parameters():
        theirs = published_name(name, reference["shapes"])
        gradient = torch.zeros(reference["shapes"][theirs])
        if name == "label_encoder.structure.edge":
            gradient[1:, 0] = parameter.grad
        elif name == "label_encoder.structure.spatial":
            gradient[: len(parameter), 0] = parameter.grad  # distance 0 is a padding row as well, and frozen
        else:
            gradient[: len(parameter)] = parameter.grad
        found[theirs] = gradient
    return found
