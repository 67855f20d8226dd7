"""HTCInfoMax: HiAGM-LA with labels that know of their texts and follow a prior (Deng et al., NAACL 2021)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hgclr.config import HGCLRConfig
from hgclr.models.base import ClassifierOutput
from hgclr.models.hiagm import HiAGMLAModel
from hgclr.nn.mutual_information import (
    InformationGate,
    PriorDiscriminator,
    TextLabelDiscriminator,
    gold_mean,
    mutual_information_loss,
    other_documents,
    prior_matching_loss,
    text_mean,
)

__all__ = ["HTCInfoMaxModel"]


class HTCInfoMaxModel(HiAGMLAModel):
    """Train :class:`~hgclr.models.hiagm.HiAGMLAModel` with two more losses; predict as that model does.

    ``L = L_C + F L_MI + (1 - F) L_prior``: L_C is HiAGM's loss; L_MI asks a discriminator whether the mean feature of a
    document's gold labels goes with its text or with another's; L_prior asks another one whether a feature is a
    label's or a draw from the uniform distribution on [0, 1); the gate F weighs them. Both are meant beside a mean
    cross-entropy and are scaled as it is, see :meth:`~hgclr.models.hiagm.HiAGM.beside_mean`.

    Discriminators and gate are trained like all else. The released program never gives them to its optimiser, so that
    only the label features and the texts can move F. A gate that is trained turns to the smaller of the two losses and
    shuts the other out: on clinc150 F is 0 after two epochs, and L_MI stays where a discriminator that guesses is. The
    log has F as ``gate``.
    """

    def __init__(self, config: HGCLRConfig) -> None:
        super().__init__(config)
        width = config.node_width
        self.label_projection = nn.Linear(width, width, bias=False)
        self.text_discriminator = TextLabelDiscriminator(width)
        self.prior_discriminator = PriorDiscriminator(width)
        self.information_gate = InformationGate(config.label_count, width)
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: Any) -> None:
        """Let the discriminators draw their own weights; all else is as in HiAGM."""
        if isinstance(module, TextLabelDiscriminator | PriorDiscriminator):
            module.reset_parameters()
        else:
            super()._init_weights(module)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> ClassifierOutput:
        """Classify texts; in training mode with labels, compute the whole objective.

        Args:
            input_ids: (B, L).
            attention_mask: 1 on real tokens, (B, L).
            labels: gold labels as 0/1, (B, K).
        """
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
        gate = self.information_gate(text_mean(texts, attention_mask), projected)  # F
        return ClassifierOutput(
            loss=classification + gate * information + (1 - gate) * prior,
            logits=logits,
            terms=terms
            | {"loss_information": information.detach(), "loss_prior": prior.detach(), "gate": gate.detach()},
        )

    def information_loss(self, texts: Tensor, attention_mask: Tensor, features: Tensor, gold: Tensor) -> Tensor:
        """Return L_MI, (): 0 for a single document, which has no other to be told from.

        Args:
            texts: vectors of the tokens, (B, L, d).
            attention_mask: 1 on real tokens, (B, L).
            features: projected label features, (K, d).
            gold: 0/1, (B, K).
        """
        chosen = gold_mean(features, gold)  # y, (B, d)
        summaries = self.text_discriminator.summarise(texts, attention_mask)  # (B, hidden)
        others = summaries[other_documents(len(texts)).to(summaries.device)]
        loss = mutual_information_loss(
            self.text_discriminator(chosen, summaries), self.text_discriminator(chosen, others)
        )
        return loss * (len(texts) > 1)  # times 0, and not left out, so that every parameter has a gradient in any batch


HTCInfoMaxModel.deployed_class = HiAGMLAModel
