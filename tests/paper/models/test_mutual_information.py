"""HTCInfoMax's losses against loops, without padding and one pair at a time."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from hgclr.models.base import token_mean
from hgclr.paper.models.htcinfomax import (
    InformationGate,
    PriorDiscriminator,
    TextLabelDiscriminator,
    gold_mean,
    mutual_information_loss,
    other_documents,
    prior_matching_loss,
)

LENGTHS = (1, 2, 6, 4)
WIDTH = 5


def make_texts(padding: int = 0) -> tuple[Tensor, Tensor]:
    """Return texts of several lengths, what stands in their padding being large, and their mask."""
    torch.manual_seed(1)
    texts = torch.randn(len(LENGTHS), max(LENGTHS) + padding, WIDTH)
    mask = torch.zeros(texts.shape[:2], dtype=torch.int64)
    for row, length in enumerate(LENGTHS):
        mask[row, :length] = 1
        texts[row, length:] = 1000.0
    return texts, mask


def convolve(convolution: torch.nn.Conv1d, rows: list[Tensor]) -> list[Tensor]:
    """Multiply out a convolution over three neighbours; outside the text there is nothing."""
    result = []
    for place in range(len(rows)):
        out = convolution.bias.clone()
        for offset in (-1, 0, 1):
            if 0 <= place + offset < len(rows):
                out = out + convolution.weight[:, :, offset + 1] @ rows[place + offset]
        result.append(out)
    return result


def literal_score(discriminator: TextLabelDiscriminator, label: Tensor, text: Tensor) -> Tensor:
    rows = [torch.clamp(row, min=0) for row in convolve(discriminator.first_convolution, list(text))]
    rows = convolve(discriminator.second_convolution, rows)
    vector = torch.cat([label, sum(rows) / len(rows)])
    for number, layer in enumerate((discriminator.score[0], discriminator.score[2], discriminator.score[4])):
        vector = layer.weight @ (torch.clamp(vector, min=0) if number else vector) + layer.bias
    return vector[0]


@pytest.mark.parametrize("padding", [0, 3])
def test_the_discriminator_scores_each_text_as_if_it_were_alone(padding: int) -> None:
    torch.manual_seed(0)
    discriminator = TextLabelDiscriminator(WIDTH, hidden=7)
    labels = torch.randn(len(LENGTHS), WIDTH)
    texts, mask = make_texts()
    expected = [
        literal_score(discriminator, label, text[:length])
        for label, text, length in zip(labels, texts, LENGTHS, strict=True)
    ]
    texts, mask = (
        torch.nn.functional.pad(x, shape) for x, shape in ((texts, (0, 0, 0, padding)), (mask, (0, padding)))
    )
    found = discriminator(labels, discriminator.summarise(texts, mask))
    torch.testing.assert_close(found, torch.stack(expected), atol=1e-5, rtol=1e-4)


def test_the_discriminators_have_the_sizes_of_the_paper() -> None:
    shapes = {name: tuple(weight.shape) for name, weight in TextLabelDiscriminator(300).named_parameters()}
    assert [shape for name, shape in shapes.items() if name.endswith("weight")] == [
        (300, 300, 3),
        (512, 300, 3),
        (512, 812),
        (512, 512),
        (1, 512),
    ]
    weights = [tuple(weight.shape) for weight in PriorDiscriminator(300).parameters() if weight.ndim == 2]
    assert weights == [(1000, 300), (200, 1000), (1, 200)]


def test_the_mutual_information_loss_by_loops() -> None:
    torch.manual_seed(2)
    matched, mismatched = torch.randn(6), torch.randn(6)
    expected = 0.0
    for right, wrong in zip(matched.tolist(), mismatched.tolist(), strict=True):
        expected += math.log(1 + math.exp(-right)) / 6 + math.log(1 + math.exp(wrong)) / 6
    assert mutual_information_loss(matched, mismatched).item() == pytest.approx(expected, rel=1e-5)


def test_the_prior_matching_loss_by_loops() -> None:
    torch.manual_seed(3)
    discriminator = PriorDiscriminator(WIDTH)
    drawn, labels = torch.rand(6, WIDTH), torch.randn(6, WIDTH)
    expected = 0.0
    for u, y in zip(drawn, labels, strict=True):
        told = [1 / (1 + math.exp(-discriminator(x).item())) for x in (u, y)]
        expected -= (math.log(told[0]) + math.log(1 - told[1])) / 6
    assert prior_matching_loss(discriminator, labels, drawn).item() == pytest.approx(expected, rel=1e-5)


def test_the_discriminator_learns_to_tell_and_label_features_not_to_be_told() -> None:
    """The gradients of the one are those of the loss, those of the other the non-saturating ones of a generator."""
    torch.manual_seed(4)
    discriminator = PriorDiscriminator(WIDTH)
    drawn, labels = torch.rand(6, WIDTH), torch.randn(6, WIDTH, requires_grad=True)
    weights = list(discriminator.parameters())
    probabilities = [torch.sigmoid(discriminator(x)) for x in (drawn, labels)]
    loss = -(probabilities[0].log() + (1 - probabilities[1]).log()).mean()
    expected = torch.autograd.grad(loss, weights, retain_graph=True)
    expected += torch.autograd.grad(-probabilities[1].log().mean(), labels)
    found = torch.autograd.grad(prior_matching_loss(discriminator, labels, drawn), [*weights, labels])
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)


def test_scores_beyond_the_sigmoid_give_numbers() -> None:
    """The sigmoid of 1000 is 1 in any precision, and the logarithm of 1 minus that is not a number to train with."""
    discriminator = PriorDiscriminator(WIDTH)
    for score in (1000.0, -1000.0):
        scores = torch.tensor([score], requires_grad=True)
        torch.nn.init.constant_(discriminator[-1].bias, score)
        labels = torch.zeros(1, WIDTH, requires_grad=True)
        for loss in (
            mutual_information_loss(scores, scores),
            prior_matching_loss(discriminator, labels, torch.rand(1, WIDTH)),
        ):
            assert loss.item() == pytest.approx(1000.0, abs=1)
            loss.backward()
        assert torch.isfinite(scores.grad).all()
        assert torch.isfinite(labels.grad).all()


def test_a_discriminator_learns_which_labels_belong_to_which_text() -> None:
    """As it starts in a model: labels are told by one feature of the text, which neither of the two has by itself."""
    torch.manual_seed(7)
    discriminator = TextLabelDiscriminator(WIDTH, hidden=32)
    optimiser = torch.optim.Adam(discriminator.parameters(), lr=3e-3)
    mask = torch.ones(32, 4, dtype=torch.int64)
    losses = []
    for _ in range(150):
        labels = torch.randn(32, WIDTH)
        texts = torch.randn(32, 4, WIDTH) + labels.unsqueeze(1)
        summaries = discriminator.summarise(texts, mask)
        scores = (discriminator(labels, x) for x in (summaries, summaries[other_documents(32)]))
        losses.append(mutual_information_loss(*scores))
        optimiser.zero_grad()
        losses[-1].backward()
        optimiser.step()
    assert losses[0].item() == pytest.approx(2 * math.log(2), abs=0.1)
    assert losses[-1].item() < 0.9


def test_no_document_is_its_own_other_and_each_is_one() -> None:
    torch.manual_seed(5)
    seen = set()
    for _ in range(200):
        others = other_documents(5).tolist()
        assert sorted(others) == list(range(5))
        assert all(other != document for document, other in enumerate(others))
        seen.add(others[0])
    assert seen == {1, 2, 3, 4}
    assert other_documents(2).tolist() == [1, 0]
    assert other_documents(1).tolist() == [0]


def test_means_and_gate_by_loops() -> None:
    torch.manual_seed(6)
    texts, mask = make_texts(2)
    means = token_mean(texts, mask)
    for row, length in enumerate(LENGTHS):
        torch.testing.assert_close(means[row], sum(texts[row, place] for place in range(length)) / length)

    labels = torch.randn(3, WIDTH)
    gold = torch.tensor([[1.0, 0, 1], [0, 1, 0], [0, 0, 0]])
    expected = [(labels[0] + labels[2]) / 2, labels[1], torch.zeros(WIDTH)]  # the last one has no labels
    torch.testing.assert_close(gold_mean(labels, gold), torch.stack(expected))

    gate = InformationGate(3, WIDTH)
    total = gate.labels.bias[0].item()
    for feature in range(WIDTH):
        total += gate.text.weight[0, feature].item() * sum(mean[feature].item() for mean in means) / len(LENGTHS)
        total += sum(gate.labels.weight[0, k * WIDTH + feature].item() * labels[k, feature].item() for k in range(3))
    assert gate(means, labels).item() == pytest.approx(1 / (1 + math.exp(-total)), rel=1e-4)
