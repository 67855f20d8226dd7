"""Two or four processes with a part of a batch each compute the loss and gradient of one that has it all."""

from __future__ import annotations

import pytest
import torch

from support.ranks import Case, run_ranks, step, take_steps

GUIDED = {"keep_fraction": 0.5, "keep_at_least": 2, "contrastive_weight": 1.0}
NODES = {"node_width": 8, "joint_width": 6, "recursive_regularisation": 0.01}
CASES: dict[str, Case] = {
    "flat, document": ("flat", {"classification_loss": "document"}),
    "flat, sum": ("flat", {"classification_loss": "sum"}),
    "flat, mean": ("flat", {"classification_loss": "mean"}),
    "flat on TextRCNN": ("flat", {"textrcnn": True, "pooling": "max"}),
    "hierarchy": ("hgclr", GUIDED),
    "hierarchy, sum": ("hgclr", {**GUIDED, "classification_loss": "sum"}),
    "hierarchy, threshold": ("hgclr", {**GUIDED, "keep_fraction": None, "keep_threshold": 0.1}),
    "hierarchy, probabilities": ("hgclr", {**GUIDED, "guidance": "probabilities", "token_label_heads": 2}),
    "hierarchy, compact": ("hgclr", {**GUIDED, "compact_positives": True}),
    "hierarchy, different": ("hgclr", {**GUIDED, "negatives": "different"}),
    "hierarchy, distance": ("hgclr", {**GUIDED, "negatives": "distance"}),
    "dropout": ("hgclr", {**GUIDED, "positives": "dropout"}),
    "random": ("hgclr", {**GUIDED, "positives": "random"}),
    "adversarial": ("hgclr", {**GUIDED, "positives": "adversarial"}),
    "hiagm-tp": ("hiagm-tp", NODES),
    "hiagm-tp, tree-lstm, sum": (
        "hiagm-tp",
        {**NODES, "structure_encoder": "tree-lstm", "classification_loss": "sum"},
    ),
    "hiagm-la": ("hiagm-la", NODES),
    "htcinfomax": ("htcinfomax", NODES),
    "htcinfomax, sum": ("htcinfomax", {**NODES, "classification_loss": "sum"}),
    "himatch": ("himatch", NODES),
}


@pytest.fixture(scope="module")
def found(make_encoder, taxonomy, tmp_path_factory: pytest.TempPathFactory) -> dict:
    """Loss and gradient of every case, by the number of processes; the processes are started once for all cases."""
    folder, encoder = tmp_path_factory.mktemp("ranks"), make_encoder("bert")
    for ranks in (2, 4):
        run_ranks(take_steps, ranks, folder, encoder, taxonomy, CASES)
    take_steps(0, 1, folder, encoder, taxonomy, CASES)
    return {ranks: torch.load(folder / f"{ranks}.pt") for ranks in (1, 2, 4)}


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient_are_those_of_one_process(case: str, ranks: int, found: dict) -> None:
    (loss, gradients), (expected, expected_gradients) = found[ranks][case], found[1][case]
    assert loss == pytest.approx(expected, rel=1e-9)
    assert gradients.keys() == expected_gradients.keys()
    for name, gradient in gradients.items():
        largest = float(expected_gradients[name].abs().max())
        difference = float((gradient - expected_gradients[name]).abs().max())
        assert difference <= 1e-6 * max(largest, 1e-3), name
    assert any(float(gradient.abs().max()) > 1e-3 for gradient in expected_gradients.values())


@pytest.mark.parametrize("case", ["hierarchy", "random", "himatch", "htcinfomax"])
def test_another_step_draws_anew(case: str, make_encoder, taxonomy) -> None:
    losses = {step(0, 1, make_encoder("bert"), taxonomy, *CASES[case], key=key)[0] for key in (5, 5, 6, 7)}
    assert len(losses) == 3
