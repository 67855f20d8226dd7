"""A text encoder with a linear head: the baseline, and what HGCLR is deployed as."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from hgclr.config import HGCLRConfig
from hgclr.models.base import ClassifierOutput, TextClassifier
from hgclr.models.label_names import name_blocks, name_tokens
from hgclr.nn.objective import classification_loss

__all__ = ["FlatModel"]


class FlatModel(TextClassifier):
    """Classify a text by ``p = sigmoid(W_c h + b_c)``, h the encoder's vector of the text (Eqs. 2 and 16).

    Example:
        >>> model = FlatModel.from_encoder("all-MiniLM-L6-v2", taxonomy, tokenizer)  # doctest: +SKIP
        >>> model(input_ids, attention_mask).logits.shape  # doctest: +SKIP
        torch.Size([2, 141])
    """

    # HGCLR can be loaded as a flat model: its label side is left out without a word.
    _keys_to_ignore_on_load_unexpected = [r"^(label_encoder|token_label_attention|projection|name_tokens)"]  # noqa: RUF012

    def __init__(self, config: HGCLRConfig) -> None:
        super().__init__(config)
        self.classifier = nn.Linear(config.text_encoder.hidden_size, config.label_count)  # W_c, b_c
        self.post_init()

    @torch.no_grad()
    def start_from_names(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Start each row of the head in the direction in which the encoder puts the label's name.

        ``w_k = (n_k - n̄) / ‖n_k - n̄‖``, n_k the vector of the k-th name read as a text. A pretrained encoder puts a
        name near texts on its subject, so that labels with few documents or none begin with more than chance.
        """
        training = self.training
        self.eval()
        names = name_tokens(self.config.taxonomy.names, tokenizer)
        for labels, tokens in name_blocks(names):
            real = tokens >= 0
            vectors = self.encode(real.long(), input_ids=tokens.masked_fill(~real, int(tokenizer.pad_token_id)))
            self.classifier.weight[labels] = vectors
        self.classifier.weight.copy_(F.normalize(self.classifier.weight - self.classifier.weight.mean(0), dim=-1))
        self.train(training)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> ClassifierOutput:
        """Classify texts.

        Args:
            input_ids: (B, L).
            attention_mask: 1 on real tokens, (B, L).
            labels: gold labels as 0/1, (B, K); with them, the loss is returned too.
        """
        logits = self.classifier(self.encode(attention_mask, input_ids=input_ids))  # (B, K)
        if labels is None:
            return ClassifierOutput(logits=logits)
        loss = classification_loss(logits, labels, self.config.classification_loss)
        return ClassifierOutput(loss=loss, logits=logits, terms={"loss_original": loss.detach()})


FlatModel.deployed_class = FlatModel
