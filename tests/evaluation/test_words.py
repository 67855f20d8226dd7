"""Words from tokens: as they are written, whatever the tokenizer, with places in the text that are right."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from hgclr.evaluation.relevance import Word, find_words

TEXT = "Ice, ice-cold: naïve don't 2.5 mg"


def byte_level(*merges: tuple[str, str], trim: bool) -> Tokenizer:
    """A byte-level BPE as RoBERTa has it; without ``trim`` a token's span holds the space before it."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*alphabet, *("".join(pair) for pair in merges), "<s>", "</s>"]
    ids = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(ids, list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=trim)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", ids["</s>"]), ("<s>", ids["<s>"]), trim_offsets=trim, add_prefix_space=False
    )
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return tokenizer


def word_pieces() -> Tokenizer:
    """BERT's way of cutting; every single character is a piece, and a few words are."""
    letters = [chr(code) for code in range(33, 127)] + ["ï", "é", "你", "好"]
    pieces = ["[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{letter}" for letter in letters), "ice", "##ice"]
    tokenizer = Tokenizer(models.WordPiece({piece: n for n, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return tokenizer


def metaspace() -> Tokenizer:
    """SentencePiece's way: a space is the first sign of the next word, here as a token of its own."""
    letters = sorted(set("▁" + TEXT + "你好吗🙂a\u0301"))
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), *((letter, -1.0) for letter in letters)], unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer


TOKENIZERS = {
    "word pieces": word_pieces(),
    "byte-level": byte_level(("i", "c"), ("ic", "e"), ("Ġ", "i"), trim=True),
    "byte-level with spaces": byte_level(("i", "c"), ("Ġ", "ic"), trim=False),
    "metaspace": metaspace(),
}


def words_of(tokenizer: Tokenizer, text: str) -> tuple[list[str], list[int]]:
    encoding = tokenizer.encode(text)
    spans = [None if s else span for span, s in zip(encoding.offsets, encoding.special_tokens_mask, strict=True)]
    words, word_of = find_words(text, spans)
    assert [number == -1 for number in word_of] == [span is None for span in spans]
    return [text[word.start : word.stop] for word in words], word_of


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_words_are_those_that_are_written_whatever_the_tokenizer(name: str) -> None:
    words, word_of = words_of(TOKENIZERS[name], TEXT)
    assert words == ["Ice", ",", "ice", "-", "cold", ":", "naïve", "don't", "2", ".", "5", "mg"]
    assert sorted(set(word_of) - {-1}) == list(range(len(words)))


@pytest.mark.parametrize("name", ["byte-level", "byte-level with spaces"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ice 🙂🙂 ice", ["ice", "🙂", "🙂", "ice"]),
        ("a👩\u200d🔬b", ["a", "👩\u200d🔬", "b"]),
        ("👍🏽!", ["👍🏽", "!"]),
        ("🇫🇷 🇩🇪", ["🇫🇷", "🇩🇪"]),
        ("cafe\u0301s", ["cafe\u0301s"]),
        ("co\u00adop", ["co\u00adop"]),
        ("你好", ["你", "好"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("'tis 'twas' l’eau", ["'", "tis", "'", "twas", "'", "l’eau"]),
        ("  ice \n ice\t", ["ice", "ice"]),
    ],
)
def test_signs_of_several_characters_and_characters_of_several_bytes(name: str, text: str, expected: list[str]) -> None:
    assert words_of(TOKENIZERS[name], text)[0] == expected


def test_tokens_of_scripts_without_spaces_stand_for_themselves() -> None:
    assert words_of(TOKENIZERS["word pieces"], "ice你好")[0] == ["ice", "你", "好"]
    assert words_of(TOKENIZERS["metaspace"], "你好吗")[0] == ["你", "好", "吗"]
    spans = [(0, 2), (2, 3)]
    assert find_words("你好吗", spans) == ([Word(0, 2), Word(2, 3)], [0, 1])


def test_repeated_words_have_places_of_their_own() -> None:
    text = "ice ice Ice"
    encoding = TOKENIZERS["word pieces"].encode(text)
    words, _ = find_words(text, [None, *encoding.offsets[1:-1], None])
    assert words == [Word(0, 3), Word(4, 7), Word(8, 11)]


def test_a_space_belongs_to_the_word_after_it() -> None:
    # <s>, "a", a space, a space, "b", a space, </s>
    words, word_of = find_words("a  b ", [None, (0, 1), (1, 2), (2, 3), (3, 4), (4, 5), None])
    assert words == [Word(0, 1), Word(3, 4)]
    assert word_of == [-1, 0, 1, 1, 1, 1, -1]
    assert find_words("  ", [None, (0, 1), (1, 2), None]) == ([], [-1, -1, -1, -1])


@settings(deadline=None, derandomize=True, max_examples=200)
@given(text=st.text(max_size=30), name=st.sampled_from(sorted(TOKENIZERS)))
def test_words_are_in_order_apart_and_hold_all_that_tokens_cover(text: str, name: str) -> None:
    encoding = TOKENIZERS[name].encode(text)
    spans = [None if s else span for span, s in zip(encoding.offsets, encoding.special_tokens_mask, strict=True)]
    words, word_of = find_words(text, spans)
    for word in words:
        assert word.start < word.stop
        assert text[word.start : word.stop] == text[word.start : word.stop].strip()
    assert all(one.stop <= other.start for one, other in pairwise(words))
    covered = {place for span in spans if span for place in range(*span) if not text[place].isspace()}
    assert covered <= {place for word in words for place in range(word.start, word.stop)}
    for span, number in zip(spans, word_of, strict=True):
        if span is not None and text[slice(*span)].strip():
            inside = text[slice(*span)].strip()
            assert inside in text[words[number].start : words[number].stop]
