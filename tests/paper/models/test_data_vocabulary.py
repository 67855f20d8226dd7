"""Vocabularies of training texts and files of word vectors."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hgclr.paper.models.words import minimum_frequency, read_word_vectors, word_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from hgclr.errors import InputError

TEXTS = ["The cat sat.", "the Dog sat!", "THE bird, the dog"]


def tokens(tokenizer, text: str) -> list[str]:
    return tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])


def test_words_are_ordered_by_frequency_then_alphabet() -> None:
    tokenizer = word_tokenizer(iter(TEXTS), minimum=1)
    words = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    assert words == ["[PAD]", "[UNK]", "the", "dog", "sat", "!", ",", ".", "bird", "cat"]


def test_rare_words_are_unknown() -> None:
    tokenizer = word_tokenizer(TEXTS)  # few texts: twice is enough
    assert tokens(tokenizer, "The dog sat on the cat") == ["the", "dog", "sat", "[UNK]", "the", "[UNK]"]
    assert tokens(word_tokenizer(TEXTS, minimum=3), "the dog") == ["the", "[UNK]"]


def test_of_equally_frequent_words_the_first_stay() -> None:
    tokenizer = word_tokenizer(TEXTS, minimum=1, largest=4)
    assert set(tokenizer.get_vocab()) == {"[PAD]", "[UNK]", "the", "dog", "sat", "!"}


@settings(deadline=None, max_examples=50, derandomize=True)
@given(st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1), min_size=1, max_size=8), st.integers(1, 3))
def test_the_vocabulary_is_that_of_a_plain_count(texts: list[list[str]], minimum: int) -> None:
    counts = Counter(word for text in texts for word in text)
    expected = sorted((word for word in counts if counts[word] >= minimum), key=lambda word: (-counts[word], word))
    joined = [" ".join(text) for text in texts]
    if not expected:
        with pytest.raises(InputError, match="no word occurs"):
            word_tokenizer(joined, minimum=minimum)
        return
    tokenizer = word_tokenizer(reversed(joined), minimum=minimum)  # the order of texts decides nothing
    assert tokenizer.convert_ids_to_tokens(range(2, len(tokenizer))) == expected


def test_there_are_no_special_tokens_but_padding_and_the_unknown_word() -> None:
    tokenizer = word_tokenizer(TEXTS)
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id) == (0, 1)
    assert sorted(tokenizer.all_special_ids) == [0, 1]
    batch = tokenizer(["the dog", "the"], padding=True)
    assert dict(batch) == {"input_ids": [[2, 3], [2, 0]], "attention_mask": [[1, 1], [1, 0]]}
    assert tokenizer("")["input_ids"] == []


def test_accents_stay_in_one_spelling() -> None:
    tokenizer = word_tokenizer(["Sch\u00f6n", "scho\u0308n", "schon schon"])
    assert tokens(tokenizer, "SCH\u00d6N Scho\u0308n schon") == ["sch\u00f6n", "sch\u00f6n", "schon"]


def test_a_saved_tokenizer_is_the_same(tmp_path: Path) -> None:
    tokenizer = word_tokenizer(TEXTS)
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again("The dog, unheard") == tokenizer("The dog, unheard")
    assert again.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()
    assert (again.pad_token_id, again.padding_side) == (0, "right")


def test_the_published_minimum_holds_in_large_sets() -> None:
    assert [minimum_frequency(count) for count in (1, 1500, 19_999, 20_000, 10**6)] == [2, 2, 2, 5, 5]
    texts = ["five"] * 5 + ["four"] * 4
    assert "four" in word_tokenizer(texts).get_vocab()
    many = word_tokenizer(texts + ["filler"] * 20_000).get_vocab()
    assert "five" in many
    assert "four" not in many


def test_a_vocabulary_without_words_is_refused() -> None:
    message = "no word occurs 2 times in the 2 training texts; train on more documents, or choose a pretrained encoder"
    with pytest.raises(InputError, match=message):
        word_tokenizer(["one", "two"])


GLOVE = "the 0.5 -1 2\n. . . 9 9 9\nDog 7 7 7\ndog 1e-3 0 .25\nthe 8 8 8\n\u00e9t\u00e9 1 2 3\n"


@pytest.mark.parametrize("header", ["", "6 3\n"])
def test_vectors_of_the_words_asked_for(tmp_path: Path, header: str) -> None:
    """The first vector of a word counts; phrases with spaces, as some tables have, are no words."""
    path = tmp_path / "vectors.txt"
    path.write_text(header + GLOVE, encoding="utf-8")
    places, vectors = read_word_vectors(path, ["[UNK]", "cat", "\u00e9t\u00e9", "dog", "the", "."])
    assert places.tolist() == [2, 3, 4]
    np.testing.assert_array_equal(vectors, np.float32([[1, 2, 3], [1e-3, 0, 0.25], [0.5, -1, 2]]))
    assert vectors.dtype == np.float32


def test_windows_line_ends_and_trailing_spaces(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_bytes(b"2 3\r\nthe 1 2 3 \r\ndog 4 5 6 \r\n")
    places, vectors = read_word_vectors(path, ["dog", "the"])
    assert (places.tolist(), vectors.tolist()) == ([0, 1], [[4, 5, 6], [1, 2, 3]])


@pytest.mark.parametrize(
    ("content", "line", "what"),
    [
        (b"the 1 2 3\ndog 1 2\n", 2, "2 numbers where the first vector has 3; give the unpacked text file"),
        (b"the 1 2 3\ndog 1 2 3 4\n", 2, "4 numbers where the first vector has 3; give the unpacked text file"),
        (b"the 1 2 3\ncat 1 2\n", 2, "2 numbers where the first vector has 3"),  # of a word not asked for, too
        (b"the 1 2 3\n\n", 2, "0 numbers where the first vector has 3"),
        (b"the 1 2 3\ndog 1 x 3\n", 2, "'x' is no number of a vector"),
        (b"the 1 2 3\ndog 1 nan 3\n", 2, "'nan' is no number of a vector"),
        (b"other 1 inf 3\n", 1, "'inf' is no number of a vector"),
        (b"PK\x03\x04\x14 \xff\xfe\x00\n", 1, "is no number of a vector"),  # the packed file
        (b"the\n", 1, "no word vector"),
        (b"{\n", 1, "no word vector"),
    ],
)
def test_bad_files_are_refused_with_the_line(tmp_path: Path, content: bytes, line: int, what: str) -> None:
    path = tmp_path / "vectors.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(f"{path}:{line}: ") + ".*" + re.escape(what)):
        read_word_vectors(path, ["the", "dog"])


def test_a_file_without_any_of_the_words_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("THE 1 2 3\n")
    with pytest.raises(InputError, match=r"no vector for any of the 2 words .* in lower case"):
        read_word_vectors(path, ["the", "dog"])
    path.write_text("")
    with pytest.raises(InputError, match="no vector for any"):
        read_word_vectors(path, ["the", "dog"])
    with pytest.raises(InputError, match=r"missing\.txt: cannot be read: No such file"):
        read_word_vectors(tmp_path / "missing.txt", ["the"])
