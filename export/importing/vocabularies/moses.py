"""BPE codes beside a checkpoint whose texts were cut by subword-nmt or fastBPE, over Moses' tokens.
The vocabulary shows the other steps of preparation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from export.errors import ExportError
from export.importing.folder import find_pair
from serving.errors import install_command

_PAIR = ("source.codes", "target.codes")
_SHARED = ("bpecodes", "codes", "code")
_GOES_ON, _HYPHEN = "@@", "@-@"
_ESCAPED = ("&apos;", "&quot;", "&amp;", "&lt;", "&gt;", "&#124;", "&#91;", "&#93;")
_VERSION = "#version: 0.2"
"""The version line of subword-nmt's codes; fastBPE marks the end of a word as this version does."""


def is_cut_by_bpe(written: Iterable[str]) -> bool:
    """Whether a vocabulary has pieces that end within a word, as subword-nmt writes them."""
    return any(piece.endswith(_GOES_ON) for piece in written)


def find_codes(source: Path, places: Iterable[Path]) -> tuple[Path, Path]:
    """The codes of source and target in one of the folders; raises ExportError if there are
    none."""
    found = find_pair(places, _PAIR, _SHARED)
    if found is not None:
        return found
    raise ExportError(
        f"{source}: the vocabulary was cut by BPE (its pieces end with {_GOES_ON!r}), and no codes "
        f"are there; put them beside the weights as {_SHARED[0]}, or as {' and '.join(_PAIR)}"
    )


def read_codes(path: Path) -> str:
    """The merges in a file of subword-nmt or fastBPE, in subword-nmt's form. fastBPE writes no
    version, and a count after each merge. Raises ExportError if the file is neither."""
    try:
        lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    except (OSError, ValueError) as error:
        raise ExportError(f"{path}: cannot be read: {error}") from error
    versioned = lines[0].startswith("#version:")
    counted = not versioned and _is_counted(_parts(lines[0]))
    found = []
    first = 1 if versioned else 0
    for number, line in enumerate(lines[first:], first + 1):
        parts = _parts(line)
        if counted and not _is_counted(parts):
            raise ExportError(
                f"{path}: line {number} must be two pieces to merge and their count, as line 1 is, "
                f"got {line!r}"
            )
        if not counted and len(parts) != 2:
            raise ExportError(f"{path}: line {number} must be two pieces to merge, got {line!r}")
        found.append(" ".join(parts[:2]))
    version = lines[0].strip() if versioned else _VERSION if counted else "#version: 0.1"
    return "\n".join([version, *found]) + "\n"


def _parts(line: str) -> list[str]:
    """The parts of a line between spaces, as subword-nmt reads it: the line may end with spaces."""
    return line.strip("\r ").split(" ")


def _is_counted(parts: Sequence[str]) -> bool:
    return len(parts) == 3 and parts[2].isdigit()


def moses_rules(path: Path, language: str, written: Sequence[str]) -> bytes:
    """A bundle's file for the side of a language, by its codes and its vocabulary."""
    try:
        from serving.bundle.moses import MosesRules
    except ImportError as error:
        raise ExportError(
            f"{path}: reading texts by BPE codes needs sacremoses and subword-nmt: "
            f"{install_command('moses')} ({error})"
        ) from error
    rules = MosesRules(
        language=language,
        escape=any(sign in piece for piece in written for sign in _ESCAPED),
        hyphens=_HYPHEN in written,
        lowercase=all(piece == piece.lower() for piece in written),
        codes=read_codes(path),
    )
    return rules.to_bytes()
