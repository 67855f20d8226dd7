"""The vocabulary and word vectors of TextRCNN: the words of a training set."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from hgclr.data.readers import limited_lines
from hgclr.errors import InputError
from hgclr.files import open_regular

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PADDING, UNKNOWN = "[PAD]", "[UNK]"
MOST_WORDS = 50_000
"""Words in a vocabulary, the padding and the unknown word not counted."""
MANY_DOCUMENTS = 20_000
"""Documents from which the published minimum frequency leaves enough words."""
REMEDY = "give the unpacked text file of GloVe, or word2vec's in text format"


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
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

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
    try:
        with open_regular(path) as file:
            found = _read_vectors(file, path, {word.encode(): place for place, word in enumerate(words)})
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from error
    places = sorted(found)
    if not places:
        raise InputError(
            f"no vector for any of the {len(words):,} words in the training texts",
            path=path,
            remedy="give vectors of the language of the texts, in lower case",
        )
    return np.array(places), np.stack([found[place] for place in places])


def _read_vectors(file: BinaryIO, path: Path, places: dict[bytes, int]) -> dict[int, NDArray[np.float32]]:
    found: dict[int, NDArray[np.float32]] = {}
    width: int | None = None
    for number, line in enumerate(limited_lines(file, path), 1):
        line = line.rstrip()
        if number == 1 and _is_header(line):
            continue
        first = width is None
        if width is None:
            width = line.count(b" ")
        # From the right: in the largest table of GloVe some "words" are phrases with spaces in them.
        word, *numbers = line.rsplit(b" ", width)
        longer = b" " in word and _is_number(word.rsplit(b" ", 1)[1])
        if not numbers or len(numbers) < width or longer:
            what = "no word vector" if first else f"{line.count(b' ')} numbers where the first vector has {width}"
            raise InputError(what, path=path, line=number, remedy=REMEDY)
        place = places.get(word, -1)
        wanted = place >= 0 and place not in found
        if wanted or first:  # the first shows whether this is a file of vectors at all
            vector = _numbers(numbers, path, number)
        if wanted:
            found[place] = vector
    return found


def _is_header(line: bytes) -> bool:
    """Tell whether this is word2vec's first line: two whole numbers."""
    parts = line.split()
    return len(parts) == 2 and all(part.isdigit() for part in parts)


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numbers(texts: Sequence[bytes], path: Path, line: int) -> NDArray[np.float32]:
    for text in texts:
        if not _is_number(text) or not math.isfinite(float(text)):
            raise InputError(
                f"{text.decode(errors='backslashreplace')!r:.40} is no number of a vector", path=path, line=line
            )
    return np.array([float(text) for text in texts], dtype=np.float32)
