"""The one door through which files reach transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hgclr.encoders import encoder_load_error, resolve_encoder
from hgclr.errors import refuse_broken
from hgclr.model_files import refuse_code

__all__ = ["load_from_encoder", "load_pretrained"]


def load_pretrained(kind: Any, source: str | Path, **arguments: Any) -> Any:
    """Call ``from_pretrained`` of a class of transformers, which never runs code that comes with the files.

    Args:
        kind: a class of transformers, such as ``AutoConfig``, or of ours.
        source: a folder, or a name on the model hub.
        arguments: what else ``from_pretrained`` takes.

    Raises:
        InputError: if a file of the folder asks for code.
        Exception: whatever transformers raises over files that it cannot use: see
            :func:`~hgclr.errors.refuse_broken`.
    """
    if Path(source).is_dir():
        refuse_code(Path(source))
    # Unless told, transformers asks on standard input whether to run it.
    return kind.from_pretrained(source, trust_remote_code=False, **arguments)


def load_from_encoder(kind: Any, encoder: str, **arguments: Any) -> Any:
    """Load the part ``kind`` of an encoder, named as for :func:`~hgclr.encoders.resolve_encoder`.

    Raises:
        InputError: if there is no such encoder, or it cannot be used.
    """
    source = resolve_encoder(encoder)
    with refuse_broken(lambda error: encoder_load_error(encoder, error)):
        return load_pretrained(kind, source, **arguments)
