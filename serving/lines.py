"""Splits UTF-8 text into lines, for files and for stdin."""

from __future__ import annotations


class LineEncodingError(ValueError):
    """A line that is not UTF-8; `number` counts from 1, `start` is the first bad byte's offset."""

    def __init__(self, number: int, start: int, byte: int, reason: str) -> None:
        super().__init__(f"line {number} is not UTF-8 (byte 0x{byte:02x} at {start})")
        self.number, self.start, self.reason = number, start, reason


def one_line(text: str) -> str:
    """A text as one line of a file: without line ends, which pieces of single bytes may spell."""
    return " ".join(text.splitlines())


def decode_lines(content: bytes) -> list[str]:
    """Yield lines without their ends. Only a newline ends a line; a carriage return before it is
    dropped.

    Raises LineEncodingError for the first line that is not UTF-8.
    """
    lines = content.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return [decode_line(line, number) for number, line in enumerate(lines, 1)]


def decode_line(line: bytes, number: int) -> str:
    """A line without its end. `number` counts from 1. Raises LineEncodingError."""
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        start = error.start
        raise LineEncodingError(number, start, line[start], error.reason) from error
