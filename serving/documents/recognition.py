"""Which kind a file is: its content says more than its name, which people get wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from serving.documents import plain
from serving.documents.subtitles import cues
from serving.documents.unit import FileFormat
from serving.errors import DocumentError

TEXT = FileFormat("txt", (".txt", ".text"), plain.read_text)
MARKDOWN = FileFormat("markdown", (".md", ".markdown"), plain.read_markdown)
HTML = FileFormat("html", (".html", ".htm", ".xhtml"), plain.read_html)
SRT = FileFormat("srt", (".srt",), cues.read_srt)
VTT = FileFormat("vtt", (".vtt",), cues.read_vtt)
ASS = FileFormat("ass", (".ass", ".ssa"), cues.read_ass)
SBV = FileFormat("sbv", (".sbv",), cues.read_sbv)

FORMATS = (TEXT, MARKDOWN, HTML, SRT, VTT, ASS, SBV)
_BY_CONTENT = (
    (VTT, re.compile(r"\s*WEBVTT(?:\s|$)")),
    (ASS, re.compile(r"\s*\[Script Info\]", re.IGNORECASE)),
    (SRT, re.compile(r"\s*\d+\s*\n\s*\d+:\d\d:\d\d[,.]\d+\s*-->")),
    (SBV, re.compile(r"\s*\d+:\d\d:\d\d\.\d{3},\d+:\d\d:\d\d\.\d{3}\s*\n")),
    (HTML, re.compile(r"\s*(?:<\?xml[^>]*>\s*)?(?:<!doctype html|<html[\s>])", re.IGNORECASE)),
)


def recognised(content: bytes, name: str) -> FileFormat:
    """The format of a file; raises DocumentError where there is none."""
    start = content[:4096].decode("utf-8-sig", "replace").replace("\r\n", "\n")
    for format, pattern in _BY_CONTENT:
        if pattern.match(start):
            return format
    suffix = PurePath(name).suffix.lower()
    for format in FORMATS:
        if suffix in format.suffixes:
            return format
    raise DocumentError(
        f"{name}: the file must be of a known kind ({', '.join(suffixes(FORMATS))}), got "
        f"{suffix or 'no suffix'}; save it as one of them"
    )


def suffixes(formats: Sequence[FileFormat]) -> list[str]:
    """How the names of such files end."""
    return [suffix for format in formats for suffix in format.suffixes]
