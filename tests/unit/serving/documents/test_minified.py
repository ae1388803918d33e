"""Office files whose media DeepL's clients have taken out before they send them, to put them back
afterwards (`DocumentMinifier` of its Node, .NET and PHP clients)."""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from pathlib import PurePath

import docx
import pptx
import pytest
from pptx.util import Inches

from tests.unit.serving.documents.fakes import parts, translated
from tests.unit.serving.documents.packages import zipped

PLACEHOLDER = b"DeepL Media Placeholder"
MEDIA = {".png", ".jpg", ".jpeg", ".emf", ".svg", ".gif", ".mp4", ".mp3", ".wav"}


def picture() -> bytes:
    """A PNG of one grey dot."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        whole = kind + data
        return struct.pack(">I", len(data)) + whole + struct.pack(">I", zlib.crc32(whole))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    data = zlib.compress(b"\x00\x80")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        chunk(*each) for each in ((b"IHDR", head), (b"IDAT", data), (b"IEND", b""))
    )


def report() -> bytes:
    document, out = docx.Document(), BytesIO()
    document.add_paragraph("ein Haus")
    document.add_picture(BytesIO(picture()))
    document.save(out)
    return out.getvalue()


def slides() -> bytes:
    presentation, out = pptx.Presentation(), BytesIO()
    slide = presentation.slides.add_slide(presentation.slide_layouts[5])
    assert slide.shapes.title is not None
    slide.shapes.title.text = "ein Haus"
    slide.shapes.add_picture(BytesIO(picture()), Inches(1), Inches(1))
    at = Inches(1)
    slide.shapes.add_movie(BytesIO(b"a film"), at, at, at, at, mime_type="video/mp4")
    presentation.save(out)
    return out.getvalue()


def is_media(name: str) -> bool:
    return PurePath(name).suffix.lower() in MEDIA


def minified(content: bytes) -> bytes:
    """As the clients do: the files in the order of their folders, media with words in them."""
    whole = parts(content)
    return zipped({name: PLACEHOLDER if is_media(name) else whole[name] for name in sorted(whole)})


def words(content: bytes, name: str) -> str:
    if name.endswith(".docx"):
        return docx.Document(BytesIO(content)).paragraphs[0].text
    title = pptx.Presentation(BytesIO(content)).slides[0].shapes.title
    assert title is not None
    return title.text


@pytest.mark.parametrize(
    ("name", "whole", "num_media"), [("a.docx", report(), 1), ("a.pptx", slides(), 3)]
)
def test_media_that_are_placeholders_stay_so_to_the_byte(
    name: str, whole: bytes, num_media: int
) -> None:
    source = minified(whole)
    result = parts(translated(source, name))
    media = [each for each in result if is_media(each) and "thumbnail" not in each]
    assert len(media) == num_media
    assert {result[each] for each in result if is_media(each)} == {PLACEHOLDER}
    assert list(result) == list(parts(source))
    assert words(translated(source, name), name) == "EIN HAUS"
    # With its media again it is what comes of the whole file.
    original = parts(whole)
    back = {each: original[each] if is_media(each) else result[each] for each in result}
    assert back == parts(translated(whole, name))
    assert words(zipped(back), name) == "EIN HAUS"
