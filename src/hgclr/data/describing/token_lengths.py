"""Count the tokens that an encoder makes of texts; needs its tokenizer only, and no training stack."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hgclr.data.describing.surveying import TokenLengths
from hgclr.encoders import TEXTRCNN, encoder_load_error, resolve_encoder
from hgclr.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["token_lengths"]


def token_lengths(encoder: str) -> TokenLengths:
    """Return what counts the tokens of texts, the special ones included, however long the texts are.

    Args:
        encoder: a name or a folder, as `hgclr.encoders.resolve_encoder` takes it.

    Raises:
        InputError: if there is no such encoder, or it has no ``tokenizer.json``.
    """
    if encoder == TEXTRCNN:
        raise InputError(
            f"the tokens of {TEXTRCNN} are the words of a training set, and unknown before it is trained",
            remedy="leave out --encoder: lengths in words are close",
        )
    place = resolve_encoder(encoder)
    tokenizer = _read(Path(place)) if Path(place).is_dir() else _from_hub(place)
    # Published files carry a maximum length and a padding of their own.
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def count(texts: Sequence[str]) -> list[int]:
        return [len(encoding) for encoding in tokenizer.encode_batch_fast(list(texts))]

    return count


def _read(folder: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    file = folder / "tokenizer.json"
    if not file.is_file():
        raise InputError("no tokenizer.json in it", path=folder, remedy="give the folder of an encoder that has one")
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # what tokenizers raises is of no narrower class
        raise InputError(f"not a tokenizer: {error}", path=file, remedy="copy it again from its source") from error


def _from_hub(name: str) -> Tokenizer:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_pretrained(name)
    except Exception as error:  # as above
        raise encoder_load_error(name, error) from error
