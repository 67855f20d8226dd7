"""TextRCNN: a text encoder without pretraining, in the place of a pretrained one under any system.

Below the encoder: its tokenizer, whose vocabulary is the words of a training set, and word vectors to start from.
"""

# No "from __future__ import annotations" here: what it makes of a configuration's types is not checked any more.

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
"""Words in a vocabulary, the padding and the unknown word not counted."""
MANY_DOCUMENTS = 20_000
"""Documents from which the published minimum frequency leaves enough words."""
REMEDY = "give the unpacked text file of GloVe, or word2vec's in text format"

METHOD_SETTINGS: dict[str, Any] = {"pooling": "max", "max_length": 256, "label_heads": 5}
"""What a system on TextRCNN takes where neither the user nor the preset decides (see HGCLRConfig): the maximum over
time and the length of the published systems; and heads for HGCLR's labels, which cannot be as many as the text encoder
has, since it has none. Five divides every width that GloVe's vectors come in (25, 50, 100, 200, 300)."""

STATES: dict[str, Any] = {"kernels": (), "recurrent_width": 150}
"""Sizes of a TextRCNN with ``textrcnn_features: states``."""

WORD_RANGE = 0.25
"""Words that no file gives a vector for start uniform within plus and minus this."""


@strict
class TextRCNNConfig(PreTrainedConfig):
    """Configure a TextRCNN: ``kernels`` are the words that each convolution sees at a time.

    Without kernels, a word has the states of the GRU. The published systems have a state of 64 or 100.
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
        """Return the size of a token's vector: the features of all convolutions, or both states of the GRU."""
        return len(self.kernels) * self.filters or 2 * self.recurrent_width


class WordEmbeddings(nn.Module):
    """Look words up, with dropout; what a transformer's embedding layer is called for works with this one too."""

    def __init__(self, config: TextRCNNConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.word_width, padding_idx=config.pad_token_id)
        self.dropout = nn.Dropout(config.word_dropout)

    def forward(self, input_ids: Tensor | None = None, inputs_embeds: Tensor | None = None) -> Tensor:
        """Return the vectors of words, (B, L, D), from their ids, (B, L), or from vectors looked up already."""
        if inputs_embeds is None:
            inputs_embeds = self.word_embeddings(input_ids)
        vectors: Tensor = self.dropout(inputs_embeds)
        return vectors


class BidirectionalGRU(nn.Module):
    """Read texts of different lengths from both ends; what is padded to the right of a text has no influence.

    The second GRU reads each text reversed in its place. That needs no packed sequences, which are slower on a CPU and
    which ONNX has no operator for.
    """

    def __init__(self, width: int, state: int) -> None:
        super().__init__()
        self.forwards = nn.GRU(width, state, batch_first=True)
        self.backwards = nn.GRU(width, state, batch_first=True)

    def forward(self, vectors: Tensor, real: Tensor) -> Tensor:
        """Return both directions' states, (B, L, 2S), 0 on padding, from vectors (B, L, D) and what is real, (B, L)."""
        position = torch.arange(real.shape[1], device=real.device)
        mirrored = torch.where(real, real.sum(1, keepdim=True) - 1 - position, position)  # (B, L), its own inverse
        states, _ = self.forwards(vectors)
        reversed_states, _ = self.backwards(_take(vectors, mirrored))
        both = torch.cat([states, _take(reversed_states, mirrored)], -1)
        return both * real.unsqueeze(-1).to(both.dtype)


class TextRCNNModel(PreTrainedModel):
    """Encode words by a bidirectional GRU and convolutions over its states.

    ``words -> dropout -> BiGRU -> dropout -> [ReLU(Conv_k)] for k in kernels``: each word has the features of all
    convolutions side by side. The maximum over time and the linear layer are the classifier's, with ``pooling: max``.

    A convolution over k words is padded by k // 2 zeros on both sides. For an even k that gives one position more than
    there are words; the last, which sees no more than the end of the text once again, is left out.
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
        """Draw word vectors within ±0.25 and the rest as torch does, within 1 / √(inputs)."""
        if isinstance(module, nn.Embedding):
            init.uniform_(module.weight, -WORD_RANGE, WORD_RANGE)
            if module.padding_idx is not None:  # through the whole weight, which knows whether it was loaded
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
        """Return the vector of each word, (B, L, H) with H = kernels * filters; on padding it means nothing.

        Args:
            input_ids: (B, L).
            attention_mask: 1 on words, 0 on the padding to their right, (B, L); all are words without it.
            inputs_embeds: word vectors instead of ``input_ids``, before dropout, (B, L, D).
        """
        vectors = self.embeddings(input_ids, inputs_embeds)  # (B, L, D)
        length = vectors.shape[1]
        if length == 0:
            raise InputError("there is no word to encode", remedy="leave empty texts out")
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
    """Put a new model on a new TextRCNN, whose vocabulary is the words of the training documents."""
    settings = dict(settings)
    features, file = settings.pop("textrcnn_features", None), settings.pop("word_vectors", None)
    tokenizer = word_tokenizer(document.text for document in documents)
    special = len(tokenizer.all_special_ids)  # they come first
    words = tokenizer.convert_ids_to_tokens(list(range(special, len(tokenizer))))
    sizes: dict[str, Any] = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    if file is not None:
        places, vectors = read_word_vectors(local(file), words)
        logger.info("%s has vectors for %d of %d words", file, len(places), len(words))
        sizes["word_width"] = vectors.shape[1]
    config = TextRCNNConfig(**sizes | (STATES if features == "states" else {}))
    settings |= {name: value for name, value in METHOD_SETTINGS.items() if settings.get(name) is None}
    settings["pooling"] = run.model.overrides.get("pooling", METHOD_SETTINGS["pooling"])  # whatever the preset says
    model = architecture(run.model.architecture).from_encoder(config, taxonomy, tokenizer, **settings)
    if file is not None:
        with torch.no_grad():
            model.encoder.get_input_embeddings().weight[places + special] = torch.from_numpy(vectors)
    return model, tokenizer


def minimum_frequency(documents: int) -> int:
    """Return how often a word must occur in so many documents to be in the vocabulary.

    The published systems ask for 5, in training sets of 20,000 documents and more. In a small set many words that tell
    labels apart occur less often: in 1,500 utterances, 5 would make 15 % of all words unknown, 2 makes 7 %. Never 1:
    hardly anything can be learned of a word seen once, and it is from such words that the vector of the unknown one is
    learned.
    """
    return 5 if documents >= MANY_DOCUMENTS else 2


def word_tokenizer(
    texts: Iterable[str], *, minimum: int | None = None, largest: int = MOST_WORDS
) -> PreTrainedTokenizerBase:
    """Build a tokenizer whose tokens are the words of training texts, the most frequent first.

    Texts are split as BERT's are before word pieces: at white space and around punctuation, in lower case. Accents
    stay, in one spelling (NFC): they tell words apart in many languages, and tables of word vectors have them. Padding
    is token 0, a word that is not in the vocabulary token 1, and there are no other special tokens.

    Args:
        texts: the training texts; they are read once, and never all in memory.
        minimum: how often a word must occur, by default :func:`minimum_frequency`.
        largest: how many words there are at most; of words that are equally frequent, the first in the alphabet stay.
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

    A line is a word and its numbers, with single spaces in between; word2vec's first line, the number of words and of
    numbers, may be there. The file is streamed and only the vectors asked for are kept, the first where a word occurs
    twice.

    Returns:
        Which of the words were found, as places in ``words``, (n,), sorted, and their vectors, (n, D).
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
                # From the right: in the largest table of GloVe some "words" are phrases with spaces in them.
                word, *numbers = line.rsplit(b" ", width)
                longer = b" " in word and _number(word.rsplit(b" ", 1)[1]) is not None
                if not numbers or len(numbers) < width or longer:
                    what = "no word vector" if first else f"{line.count(b' ')} numbers, the first vector has {width}"
                    raise InputError(what, path=path, line=number, remedy=REMEDY)
                place = places.get(word, -1)
                wanted = place >= 0 and place not in found
                if not wanted and not first:  # the first shows whether this is a file of vectors at all
                    continue
                vector = [_number(text) for text in numbers]
                if None in vector or not all(map(isfinite, vector)):  # type: ignore[arg-type]
                    raise InputError("not the numbers of a vector", path=path, line=number, remedy=REMEDY)
                if wanted:
                    found[place] = np.array(vector, dtype=np.float32)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from error
    if not found:
        raise InputError(
            f"no vector for any of the {len(words):,} words in the training texts",
            path=path,
            remedy="give vectors of the language of the texts, in lower case",
        )
    return np.array(sorted(found)), np.stack([found[place] for place in sorted(found)])


def _number(text: bytes) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
