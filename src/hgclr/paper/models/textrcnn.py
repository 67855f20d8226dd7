"""TextRCNN: a text encoder without pretraining, for any system.

Below the encoder: its tokenizer, with the words of a training set as vocabulary, and initial word vectors.
"""

# No "from __future__ import annotations": types that are strings are not checked.

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from math import isfinite, prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub.dataclasses import strict
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput

from hgclr.data.folder import Document
from hgclr.data.readers import limited_lines
from hgclr.errors import InputError
from hgclr.files import open_regular
from hgclr.models import HierarchicalPreTrainedModel, architecture
from hgclr.remote import local
from hgclr.taxonomy import Taxonomy
from hgclr.training.settings import RunConfig

logger = logging.getLogger(__name__)

PADDING, UNKNOWN = "[PAD]", "[UNK]"
MOST_WORDS = 50_000
"""Limit on the words in a vocabulary, without the padding and the unknown word."""
MANY_DOCUMENTS = 20_000
"""With this many documents, the published minimum frequency leaves enough words."""
REMEDY = "give the unpacked text file of GloVe, or a text file of word2vec"

METHOD_SETTINGS: dict[str, Any] = {"pooling": "max", "max_length": 256, "label_heads": 5}
"""Defaults of systems on TextRCNN, unless the user or the preset sets them: pooling and length of the published
systems, and HGCLR's ``label_heads``, because TextRCNN has no attention heads. Five divides every width of GloVe's
vectors (25, 50, 100, 200, 300)."""

STATES: dict[str, Any] = {"kernels": (), "recurrent_width": 150}
"""Sizes of a TextRCNN with ``textrcnn_features: states``."""

WORD_RANGE = 0.25
"""Initial word vectors without a file are uniform between minus and plus this."""


@strict
class TextRCNNConfig(PreTrainedConfig):
    """The configuration of a TextRCNN; ``kernels`` are the widths of the convolutions, in words.

    Without kernels, a word's vector is the state of the GRU. The published systems have 64 or 100 states.
    """

    model_type = "textrcnn"

    vocab_size: int = 50_002
    pad_token_id: int | None = 0
    word_width: int = 300
    recurrent_width: int = 100
    filters: int = 100
    kernels: list[int] | tuple[int, ...] = (2, 3, 4)
    word_dropout: float = 0.5
    recurrent_dropout: float = 0.1

    @property
    def hidden_size(self) -> int:
        """The size of a token's vector: the features of all convolutions, or both states of the GRU."""
        return len(self.kernels) * self.filters or 2 * self.recurrent_width


class WordEmbeddings(nn.Module):
    """Word embeddings with dropout, with the interface of a transformer's embedding layer."""

    def __init__(self, config: TextRCNNConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.word_width, padding_idx=config.pad_token_id)
        self.dropout = nn.Dropout(config.word_dropout)

    def forward(self, input_ids: Tensor | None = None, inputs_embeds: Tensor | None = None) -> Tensor:
        """Return the vectors of words with dropout, (B, L, D), from ids, (B, L), or vectors, (B, L, D)."""
        if inputs_embeds is None:
            inputs_embeds = self.word_embeddings(input_ids)
        vectors: Tensor = self.dropout(inputs_embeds)
        return vectors


class BidirectionalGRU(nn.Module):
    """Two GRUs that read texts in both directions; padding on the right has no influence.

    The second GRU reads each text reversed in place. Packed sequences would be slower on a CPU, and ONNX has no
    operator for them.
    """

    def __init__(self, width: int, state: int) -> None:
        super().__init__()
        self.forwards = nn.GRU(width, state, batch_first=True)
        self.backwards = nn.GRU(width, state, batch_first=True)

    def forward(self, vectors: Tensor, real: Tensor) -> Tensor:
        """Return the states of both directions, (B, L, 2S), 0 on padding, from vectors (B, L, D) and a mask, (B, L)."""
        position = torch.arange(real.shape[1], device=real.device)
        mirrored = torch.where(real, real.sum(1, keepdim=True) - 1 - position, position)  # (B, L), its own inverse
        states, _ = self.forwards(vectors)
        reversed_states, _ = self.backwards(_take(vectors, mirrored))
        both = torch.cat([states, _take(reversed_states, mirrored)], -1)
        return both * real.unsqueeze(-1).to(both.dtype)


class TextRCNNModel(PreTrainedModel):
    """Encode words by a bidirectional GRU and convolutions over its states.

    ``words -> dropout -> BiGRU -> dropout -> [ReLU(Conv_k)] for k in kernels``: the vector of a word is the
    concatenation of the features of all convolutions. The maximum over time (``pooling: max``) and the linear layer
    belong to the classifier.

    A convolution over k words is padded by k // 2 zeros on both sides. For an even k this gives one position more than
    there are words; the last position is dropped.
    """

    config: TextRCNNConfig
    config_class = TextRCNNConfig
    base_model_prefix = "encoder"

    def __init__(self, config: TextRCNNConfig) -> None:
        super().__init__(config)
        self.embeddings = WordEmbeddings(config)
        self.recurrent = BidirectionalGRU(config.word_width, config.recurrent_width)
        self.dropout = nn.Dropout(config.recurrent_dropout)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(2 * config.recurrent_width, config.filters, kernel, padding=kernel // 2)
            for kernel in config.kernels
        )
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: Any) -> None:
        """Draw word vectors within ±0.25, and other weights within 1 / √(inputs), as torch does."""
        if isinstance(module, nn.Embedding):
            init.uniform_(module.weight, -WORD_RANGE, WORD_RANGE)
            if module.padding_idx is not None:  # init.copy_ skips a weight that was loaded
                padding = torch.tensor([module.padding_idx], device=module.weight.device)
                init.copy_(module.weight, module.weight.index_fill(0, padding, 0.0))
        elif isinstance(module, nn.GRU | nn.Conv1d):
            inputs = module.hidden_size if isinstance(module, nn.GRU) else prod(module.weight.shape[1:])
            for weight in module.parameters():
                init.uniform_(weight, -(inputs**-0.5), inputs**-0.5)

    def get_input_embeddings(self) -> nn.Module:
        return self.embeddings.word_embeddings

    def forward(
        self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, inputs_embeds: Tensor | None = None
    ) -> BaseModelOutput:
        """Return the vector of each word, (B, L, H) with H = kernels * filters; undefined on padding.

        Args:
            input_ids: (B, L).
            attention_mask: 1 on words, 0 on the padding to their right, (B, L); None for no padding.
            inputs_embeds: word vectors instead of ``input_ids``, before dropout, (B, L, D).
        """
        vectors = self.embeddings(input_ids, inputs_embeds)  # (B, L, D)
        length = vectors.shape[1]
        if length == 0:
            raise InputError("there is no word to encode", remedy="remove empty texts")
        real = vectors.new_ones(vectors.shape[:2]) if attention_mask is None else attention_mask
        states: Any = self.dropout(self.recurrent(vectors, real.bool()))  # (B, L, 2S)
        if not self.convolutions:
            return BaseModelOutput(last_hidden_state=states)
        states = states.transpose(1, 2)  # (B, 2S, L)
        features = [torch.relu(convolution(states)[..., :length]) for convolution in self.convolutions]  # (B, F, L)
        hidden: Any = torch.cat(features, 1).transpose(1, 2)  # (B, L, kernels * F)
        return BaseModelOutput(last_hidden_state=hidden)


def _take(vectors: Tensor, places: Tensor) -> Tensor:
    """Return the vectors, (B, L, D), in the order of ``places``, (B, L)."""
    return vectors.gather(1, places.unsqueeze(-1).expand(-1, -1, vectors.shape[-1]))


AutoConfig.register(TextRCNNConfig.model_type, TextRCNNConfig)
AutoModel.register(TextRCNNConfig, TextRCNNModel)


def build(
    run: RunConfig, taxonomy: Taxonomy, documents: Iterable[Document], settings: dict[str, Any]
) -> tuple[HierarchicalPreTrainedModel, PreTrainedTokenizerBase]:
    """Return a new model on a new TextRCNN with the words of the training documents as vocabulary."""
    settings = dict(settings)
    features, file = settings.pop("textrcnn_features", None), settings.pop("word_vectors", None)
    tokenizer = word_tokenizer(document.text for document in documents)
    special = len(tokenizer.all_special_ids)  # special tokens have the first ids
    words = tokenizer.convert_ids_to_tokens(list(range(special, len(tokenizer))))
    sizes: dict[str, Any] = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    if file is not None:
        places, vectors = read_word_vectors(local(file), words)
        logger.info("%s has vectors for %d of %d words", file, len(places), len(words))
        sizes["word_width"] = vectors.shape[1]
    config = TextRCNNConfig(**sizes | (STATES if features == "states" else {}))
    settings |= {name: value for name, value in METHOD_SETTINGS.items() if settings.get(name) is None}
    settings["pooling"] = run.model.overrides.get("pooling", METHOD_SETTINGS["pooling"])  # overrides the preset
    model = architecture(run.model.architecture).from_encoder(config, taxonomy, tokenizer, **settings)
    if file is not None:
        with torch.no_grad():
            model.encoder.get_input_embeddings().weight[places + special] = torch.from_numpy(vectors)
    return model, tokenizer


def minimum_frequency(documents: int) -> int:
    """Return how often a word must occur in the documents to be in the vocabulary.

    The published systems use 5, in training sets of 20,000 documents and more. In a small set, many words that
    distinguish labels are rarer: in 1,500 utterances, 15 % of all words would be unknown with 5, and 7 % with 2. The
    minimum is never 1, because the vector of the unknown word is learned from words that occur once.
    """
    return 5 if documents >= MANY_DOCUMENTS else 2


def word_tokenizer(
    texts: Iterable[str], *, minimum: int | None = None, largest: int = MOST_WORDS
) -> PreTrainedTokenizerBase:
    """Return a tokenizer with the words of training texts as tokens, the most frequent first.

    Texts are split as in BERT before word pieces: at white space and around punctuation, in lower case. Accents are
    kept in one spelling (NFC), because they distinguish words in many languages and in tables of word vectors. Padding
    is token 0, the unknown word is token 1, and there are no other special tokens.

    Args:
        texts: the training texts, read once as a stream.
        minimum: how often a word must occur, by default :func:`minimum_frequency`.
        largest: limit on the number of words; ties are broken alphabetically.
    """
    normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.BertNormalizer(strip_accents=False)])
    splitter = pre_tokenizers.BertPreTokenizer()
    counts: Counter[str] = Counter()
    documents = 0
    for text in texts:
        counts.update(word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
        documents += 1
    least = minimum_frequency(documents) if minimum is None else minimum
    words = sorted((word for word in counts if counts[word] >= least), key=lambda word: (-counts[word], word))
    if not words:
        remedy = "train on more documents, or choose a pretrained encoder"
        raise InputError(f"no word occurs {least} times in the {documents} training texts", remedy=remedy)
    places = {word: place for place, word in enumerate([PADDING, UNKNOWN, *words[:largest]])}
    tokenizer = Tokenizer(models.WordLevel(places, unk_token=UNKNOWN))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PADDING,
        unk_token=UNKNOWN,
        padding_side="right",
        model_input_names=["input_ids", "attention_mask"],
    )


def read_word_vectors(path: Path, words: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Read the vectors of some words from a text file of GloVe or word2vec.

    A line is a word and its numbers, separated by single spaces; word2vec's first line, the numbers of words and of
    dimensions, is optional. The file is streamed, and only the vectors of ``words`` are kept, the first if a word
    occurs twice.

    Returns:
        The sorted indices of the found words, (n,), and their vectors, (n, D).
    """
    places = {word.encode(): place for place, word in enumerate(words)}
    found: dict[int, NDArray[np.float32]] = {}
    width: int | None = None
    try:
        with open_regular(path) as file:
            for number, line in enumerate(limited_lines(file, path), 1):
                line = line.rstrip()
                if number == 1 and len(line.split()) == 2 and all(part.isdigit() for part in line.split()):
                    continue  # word2vec's first line
                first = width is None
                if width is None:
                    width = line.count(b" ")
                # Split from the right: in the largest table of GloVe, some "words" contain spaces.
                word, *numbers = line.rsplit(b" ", width)
                longer = b" " in word and _number(word.rsplit(b" ", 1)[1]) is not None
                if not numbers or len(numbers) < width or longer:
                    what = "not a word vector" if first else f"{line.count(b' ')} numbers, the first vector has {width}"
                    raise InputError(what, path=path, line=number, remedy=REMEDY)
                place = places.get(word, -1)
                wanted = place >= 0 and place not in found
                if not wanted and not first:  # the first line is always parsed, to check the format
                    continue
                vector = [_number(text) for text in numbers]
                if None in vector or not all(map(isfinite, vector)):  # type: ignore[arg-type]
                    raise InputError("a value of the vector is not a number", path=path, line=number, remedy=REMEDY)
                if wanted:
                    found[place] = np.array(vector, dtype=np.float32)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from error
    if not found:
        raise InputError(
            f"the file has no vector for any of the {len(words):,} words in the training texts",
            path=path,
            remedy="give vectors for the language of the texts, in lower case",
        )
    return np.array(sorted(found)), np.stack([found[place] for place in sorted(found)])


def _number(text: bytes) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
