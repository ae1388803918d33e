"""Zip files from untrusted sources: read within limits, and written with some parts replaced."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Collection, Iterable, Mapping
from io import BytesIO

from serving.errors import DocumentError

MAX_PARTS = 20_000
MAX_PART_BYTES = 100_000_000
MAX_BYTES = 1_000_000_000
"""Largest total size of all parts, in bytes."""
MAX_RATIO = 200
"""Largest ratio of a part's size to its compressed size, for parts of more than MIN_RATIO_BYTES."""
MIN_RATIO_BYTES = 1_000_000
_ENCRYPTED = 0x1
_OUTSIDE = re.compile(r"\A[/\\]|\A[A-Za-z]:|(?:\A|[/\\])\.\.(?:[/\\]|\Z)|\\|\0")


class Archive:
    """The parts of a zip file. Parts that are zip files themselves are not opened."""

    def __init__(self, content: bytes) -> None:
        """Open a zip file. Raises DocumentError for a file that is broken, locked or larger than
        the limits, and for names that lead out of it."""
        try:
            self._file = zipfile.ZipFile(BytesIO(content))
        except (zipfile.BadZipFile, OSError, ValueError) as error:
            raise DocumentError(f"the file is a broken zip file: {error}") from error
        self._parts = self._file.infolist()
        self.names = [part.filename for part in self._parts]
        _check(self._parts)

    def read(self, name: str) -> bytes:
        """The content of a part. Raises DocumentError if it is missing or broken."""
        try:
            return self._file.read(name)
        except KeyError as error:
            raise DocumentError(f"the file has no part {name}; it is broken") from error
        except Exception as error:  # each method of compression has errors of its own
            raise DocumentError(f"the part {name} of the file is broken: {error}") from error

    def written(
        self, others: Mapping[str, Iterable[bytes]], without: Collection[str] = ()
    ) -> bytes:
        """Write the file with new contents, given in pieces, for parts of these names. The order
        stays, and all other parts stay to the byte."""
        out = BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.comment = self._file.comment
            for part in self._parts:
                if part.filename in without:
                    continue
                other = others.get(part.filename)
                with archive.open(_like(part), "w") as written:
                    for piece in [self.read(part.filename)] if other is None else other:
                        written.write(piece)
        return out.getvalue()


def _like(part: zipfile.ZipInfo) -> zipfile.ZipInfo:
    copy = zipfile.ZipInfo(part.filename, part.date_time)
    stored = part.compress_type == zipfile.ZIP_STORED
    copy.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    copy.external_attr, copy.create_system = part.external_attr, part.create_system
    copy.comment = part.comment
    return copy


def _check(parts: list[zipfile.ZipInfo]) -> None:
    """Check the sizes that the file declares; zipfile never reads more than these."""
    if len(parts) > MAX_PARTS:
        raise DocumentError(f"a zip file must have at most {MAX_PARTS} parts, got {len(parts)}")
    if len({part.filename for part in parts}) < len(parts):
        raise DocumentError("the file has two parts with the same name; it is broken")
    for part in parts:
        if _OUTSIDE.search(part.orig_filename):
            raise DocumentError(
                f"names of parts must stay within the file, got {part.orig_filename!r}"
            )
        if part.flag_bits & _ENCRYPTED:
            raise DocumentError("the file is locked with a password; remove it and try again")
        if part.file_size > MAX_PART_BYTES:
            raise DocumentError(
                f"parts of a zip file must have at most {MAX_PART_BYTES} bytes, got "
                f"{part.file_size} ({part.filename})"
            )
        if part.file_size > max(MIN_RATIO_BYTES, MAX_RATIO * part.compress_size):
            raise DocumentError(
                f"parts of a zip file may expand {MAX_RATIO} times, got {part.file_size} bytes of "
                f"{part.compress_size} ({part.filename})"
            )
    total = sum(part.file_size for part in parts)
    if total > MAX_BYTES:
        raise DocumentError(f"a zip file must hold at most {MAX_BYTES} bytes, got {total}")
