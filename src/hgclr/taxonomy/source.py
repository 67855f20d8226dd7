"""A label file's text, and errors that say where in it they happened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hgclr.errors import InputError

__all__ = ["Source", "at_line"]


def at_line(line: int | None) -> str:
    """Return ``" (line 3)"``, or nothing where there are no lines."""
    return "" if line is None else f" (line {line})"


@dataclass(frozen=True)
class Source:
    """The text of a label file.

    Attributes:
        text: all of it, with ``\\n`` as the end of a line.
        path: the file, or None for text that is in no file.
    """

    text: str
    path: Path | None = None

    @classmethod
    def load(cls, path: str | Path) -> Source:
        """Read a UTF-8 file, with or without byte order mark, with either kind of line end.

        Raises:
            InputError: if the file cannot be read or is not UTF-8.
        """
        path = Path(path)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise InputError("there is no such file", path=path, remedy="check the path of the label file") from None
        except OSError as error:
            raise InputError(f"the label file cannot be read: {error.strerror}", path=path) from error
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            # error.object is what was decoded: the data after the byte order mark, which holds no line end.
            line = error.object.count(b"\n", 0, error.start) + 1
            byte = error.object[error.start]
            raise InputError(
                f"not UTF-8: byte 0x{byte:02x}", path=path, line=line, remedy="save the file as UTF-8"
            ) from None
        return cls(text.replace("\r\n", "\n"), path)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the number and the text of each line that is not blank."""
        for number, line in enumerate(self.text.split("\n"), start=1):
            if line.strip():
                yield number, line

    def error(self, what: str, line: int | None = None, remedy: str | None = None) -> InputError:
        """Return an error that names this file."""
        return InputError(what, path=self.path, line=line, remedy=remedy)
