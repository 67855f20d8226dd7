"""HTCInfoMax: HiAGM-LA with text-label mutual information and label prior matching (Deng et al., NAACL 2021).

Below the model: the two discriminators, the gate between their losses, and the losses.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from hgclr.models.base import HierarchicalOutput, LabelRows, LabelSized, token_mean
from hgclr.nn.gathering import gather, rank
from hgclr.paper.models.hiagm import BaselineConfig, HiAGMLAForSequenceClassification


class HTCInfoMaxForSequenceClassification(HiAGMLAForSequenceClassification):
    """HiAGM-LA, trained with two more losses.

    ``L = L_C + F L_MI + (1 - F) L_prior``: L_C is HiAGM's loss. For L_MI, a discriminator decides whether the mean
    feature of a document's gold labels belongs to its text or to another text. For L_prior, a second one decides
    whether a feature is a label's or a draw from the uniform distribution on [0, 1). The gate F weighs them and is
    logged as ``gate``. Both losses are weighted relative to a mean cross-entropy, and scaled like it.
    """

    deployed_class = HiAGMLAForSequenceClassification
    training_parts = ("label_projection", "text_discriminator", "prior_discriminator", "information_gate")

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__(config)
        width = config.node_width
        self.label_projection = nn.Linear(width, width, bias=False)
        self.text_discriminator = TextLabelDiscriminator(width)
        self.prior_discriminator = PriorDiscriminator(width)
        self.information_gate = InformationGate(config.label_count, width)
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: Any) -> None:
        """Draw the discriminators' weights as torch does, because with N(0, 0.02) scores hardly depend on the input.

        All other weights are as in HiAGM.
        """
        if isinstance(module, TextLabelDiscriminator | PriorDiscriminator):
            for layer in module.modules():
                if isinstance(layer, nn.Linear | nn.Conv1d):
                    layer.reset_parameters()
        else:
            super()._init_weights(module)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> HierarchicalOutput:
        texts = self.texts(input_ids, attention_mask)  # T, (B, L, d)
        features = self.label_features()  # (K, d)
        seen = self.attend(features, texts, attention_mask)  # (B, K, d)
        if labels is None or not self.training:
            return self.output(seen, labels)
        logits = self.classifier(seen.flatten(1))  # (B, K)
        classification, terms = self.classification(logits, labels)
        projected = self.label_projection(features)  # Y, (K, d)
        information = self.beside_mean(logits) * self.information_loss(texts, attention_mask, projected, labels)
        prior = self.beside_mean(logits) * prior_matching_loss(
            self.prior_discriminator, projected, torch.rand_like(projected)
        )
        gate = self.information_gate(token_mean(texts, attention_mask), projected)  # F
        return HierarchicalOutput(
            loss=classification + gate * information + (1 - gate) * prior,
            logits=logits,
            terms=terms
            | {"loss_information": information.detach(), "loss_prior": prior.detach(), "gate": gate.detach()},
        )

    def information_loss(self, texts: Tensor, attention_mask: Tensor, features: Tensor, gold: Tensor) -> Tensor:
        """Return L_MI, (): 0 for a single document, because it needs another one.

        ``texts`` are vectors of the tokens, (B, L, d), ``features`` are projected, (K, d), ``gold`` is (B, K).
        """
        chosen = gold_mean(features, gold)  # y, (B, d)
        summaries = self.text_discriminator.summarise(texts, attention_mask)  # (B, hidden)
        everyone = gather(summaries)  # (P B, hidden)
        first = rank() * len(texts)
        others = everyone[other_documents(len(everyone), summaries.device)[first : first + len(texts)]]
        loss = mutual_information_loss(
            self.text_discriminator(chosen, summaries), self.text_discriminator(chosen, others)
        )
        return loss * (len(everyone) > 1)  # times 0, so that every parameter has a gradient in any batch


class TextLabelDiscriminator(nn.Module):
    """Score whether labels belong to a text: ``D(y, T)``, one number for each pair.

    Two convolutions over the tokens with a ReLU in between; their mean over the tokens and y are the input of three
    linear layers. Padding is 0 before each convolution and not in the mean, so a text scores the same in every batch.
    The convolutions are padded by one, so that a text of one token has a score.
    """

    def __init__(self, width: int, hidden: int = 512) -> None:
        super().__init__()
        self.first_convolution = nn.Conv1d(width, width, kernel_size=3, padding=1)
        self.second_convolution = nn.Conv1d(width, hidden, kernel_size=3, padding=1)
        self.score = nn.Sequential(
            nn.Linear(width + hidden, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1)
        )

    def summarise(self, texts: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the part of the score that depends only on the texts, (B, hidden), from (B, L, d) and their mask."""
        real = attention_mask.unsqueeze(1)  # (B, 1, L)
        found = torch.relu(self.first_convolution(texts.transpose(1, 2) * real))  # (B, d, L)
        found = self.second_convolution(found * real)  # (B, hidden, L)
        return token_mean(found.transpose(1, 2), attention_mask)

    def forward(self, labels: Tensor, summaries: Tensor) -> Tensor:
        """Return the scores, (B,), of labels, (B, d), with texts from :meth:`summarise`, (B, hidden)."""
        scores: Tensor = self.score(torch.cat([labels, summaries], 1)).squeeze(1)
        return scores


class PriorDiscriminator(nn.Sequential):
    """Distinguish draws of the prior from label features: the logit of ``D_p``, (K, d) -> (K, 1)."""

    def __init__(self, width: int) -> None:
        super().__init__(nn.Linear(width, 1000), nn.ReLU(), nn.Linear(1000, 200), nn.ReLU(), nn.Linear(200, 1))


class InformationGate(nn.Module, LabelSized):
    """Weigh the two losses: ``F = σ(w1 · mean text + w2 · flatten(Y) + b)``, one number per batch."""

    def __init__(self, labels: int, width: int) -> None:
        super().__init__()
        self.text = nn.Linear(width, 1, bias=False)  # w1
        self.labels = nn.Linear(labels * width, 1)  # w2 and b

    def forward(self, texts: Tensor, labels: Tensor) -> Tensor:
        """Return F, (), from the mean token of each text, (B, d), and the label features, (K, d)."""
        gate: Tensor = torch.sigmoid(self.text(gather(texts).mean(0)) + self.labels(labels.flatten())).squeeze(0)
        return gate

    def label_entries(self, rows: LabelRows) -> dict[str, Tensor]:
        return {"labels.weight": rows.column_blocks(self.labels.weight)}


def gold_mean(labels: Tensor, gold: Tensor) -> Tensor:
    """Return the mean feature, (B, d), of each document's ``gold`` labels, 0/1, (B, K), from (K, d); 0 without any."""
    gold = gold.to(labels.dtype)
    return gold @ labels / gold.sum(1, keepdim=True).clamp(min=1)


def other_documents(documents: int, device: torch.device | None = None) -> Tensor:
    """Return the index of another document of the batch for each, (B,): a rotation by a random number from 1 to B - 1.

    A random permutation, as in the released program, pairs one document with itself on average. A single document is
    paired with itself.
    """
    return torch.arange(documents, device=device).roll(int(torch.randint(1, max(documents, 2), ())))


def mutual_information_loss(matched: Tensor, mismatched: Tensor) -> Tensor:
    """Return ``mean softplus(-D(y, T)) + mean softplus(D(y, T'))``, the negative Jensen-Shannon bound.

    The scores are those of labels with their own texts T, (B,), and with the texts T' of other documents, (B,).
    """
    return F.softplus(-matched).mean() + F.softplus(mismatched).mean()


def prior_matching_loss(discriminator: PriorDiscriminator, labels: Tensor, drawn: Tensor) -> Tensor:
    """Return ``-mean [log D_p(u) + log(1 - D_p(Y_k))]`` over labels, with adversarial gradients.

    The value, and the gradient of the discriminator D_p, are those of this loss. The label features Y, (K, d), should
    look like draws u, (K, d), to the discriminator, so their gradient is that of ``-mean log D_p(Y_k)``, as usual in
    adversarial training. In the released program they minimise the loss itself, so they move away from the prior.
    """
    recognised = discriminator(labels.detach())
    loss = -(F.logsigmoid(discriminator(drawn)) + F.logsigmoid(-recognised)).mean()  # finite, unlike log(sigmoid)
    fixed = {name: weight.detach() for name, weight in discriminator.named_parameters()}
    taken: Tensor = -F.logsigmoid(functional_call(discriminator, fixed, (labels,))).mean()
    return loss + (taken - taken.detach())
