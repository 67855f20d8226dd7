"""Two or four processes with a part of a batch each compute the loss and gradient of one that has it all."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hgclr.errors import InputError
from hgclr.models import FlatForSequenceClassification
from hgclr.training import TrainingSettings, fit, fitting, head
from hgclr.training.trainer import EpochOrder
from support.ranks import Case, fit_heads, run_ranks, take_steps

GUIDED = {"positives": "hierarchy", "keep_fraction": 0.5, "keep_at_least": 2, "contrastive_weight": 1.0}
CASES: dict[str, Case] = {
    "flat, document": ("flat", {"classification_loss": "document"}),
    "flat, sum": ("flat", {"classification_loss": "sum"}),
    "flat, mean": ("flat", {"classification_loss": "mean"}),
    "hierarchy": ("hgclr", GUIDED),
    "hierarchy, sum": ("hgclr", {**GUIDED, "classification_loss": "sum"}),
    "hierarchy, threshold": ("hgclr", {**GUIDED, "keep_fraction": None, "keep_threshold": 0.1}),
    "hierarchy, probabilities": ("hgclr", {**GUIDED, "guidance": "probabilities", "token_label_heads": 2}),
    "hierarchy, adapters, layers computed anew": ("hgclr", {**GUIDED, "large": True}),
    "dropout": ("hgclr", {**GUIDED, "positives": "dropout"}),
    "adversarial": ("hgclr", {**GUIDED, "positives": "adversarial"}),
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


@pytest.mark.slow
def test_a_head_is_fitted_to_what_all_ranks_have_encoded(make_encoder, taxonomy, tmp_path, monkeypatch) -> None:
    for name in ("BATCH", "ITERATIONS"):  # which the work sets
        monkeypatch.setattr(head, name, getattr(head, name))
    run_ranks(fit_heads, 2, tmp_path, make_encoder("bert"), taxonomy)
    fit_heads(0, 1, tmp_path, make_encoder("bert"), taxonomy)
    alone, first, second = (torch.load(tmp_path / f"head-{place}.pt") for place in ("0-of-1", "0-of-2", "1-of-2"))
    # A rank counts its documents once for each rank, as the others encode as many.
    assert (alone[1], first[1], second[1]) == ([8, 8, 1], [16, 2], [16])
    assert torch.equal(first[0], second[0])
    torch.testing.assert_close(first[0], alone[0], atol=1e-5, rtol=1e-4)


def test_a_batch_that_cannot_be_shared_is_refused(
    make_encoder, taxonomy, tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = FlatForSequenceClassification.from_encoder(make_encoder("bert"), taxonomy, tokenizer)
    monkeypatch.setattr(fitting, "world_size", lambda: 5)
    with pytest.raises(InputError, match=r"16 .* 5 .*training\.batch_size"):
        fit(model, tokenizer, [("atom laser", ["physics"])] * 20, settings=TrainingSettings(precision="fp32"))


@pytest.mark.parametrize("by_length", [True, False])
def test_an_epoch_has_an_order_of_its_own(by_length: bool) -> None:
    lengths = np.random.default_rng(3).integers(1, 200, 1001)
    order = EpochOrder(lengths, 12, by_length=by_length, seed=4)
    first = list(order)
    assert sorted(first) == list(range(1001))
    order.set_epoch(1)
    assert list(order) != first
    order.set_epoch(0)
    assert list(order) == first
    spread = np.mean([np.ptp(lengths[first[start : start + 12]]) for start in range(0, 996, 12)])
    assert (spread < 40) == by_length
