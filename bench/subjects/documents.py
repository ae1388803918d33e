"""Documents made of given sentences, as people write them: a Word report, and subtitles."""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Iterator, Sequence
from io import BytesIO
from xml.sax.saxutils import escape

WORDS_A_PAGE = 400
_WORDS_A_PARAGRAPH = 80
_STYLED_EVERY = 5
"""One in so many paragraphs has a bold word, so that its sentence needs word links."""
_WORDS_A_CUE, _SECONDS_A_CUE = 8, 2
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
_PARTS = {
    "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships'
    f'+xml"/><Override PartName="/word/document.xml" ContentType="{_TYPE}"/></Types>',
    "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r1" '
    f'Type="{_OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>',
}


def report_of(sentences: Sequence[str], pages: int) -> bytes:
    """A Word file with this many pages of WORDS_A_PAGE words, in paragraphs; every fifth has a bold
    word. Sentences are repeated if there are too few."""
    written = []
    for number, paragraph in enumerate(_paragraphs(sentences, pages * WORDS_A_PAGE)):
        runs = [(" ".join(paragraph), False)]
        if number % _STYLED_EVERY == 0:
            before, word, behind = _middle(" ".join(paragraph))
            runs = [(before, False), (word, True), (behind, False)]
        written.append(f"<w:p>{''.join(_run(*run) for run in runs)}</w:p>")
    document = f'<w:document xmlns:w="{_WORD}"><w:body>{"".join(written)}</w:body></w:document>'
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in {**_PARTS, "word/document.xml": document}.items():
            file.writestr(name, content)
    return out.getvalue()


def subtitles_of(sentences: Sequence[str], cues: int) -> bytes:
    """This many cues in SRT, of at most eight words each. Long sentences run over several cues."""
    parts = itertools.chain.from_iterable(
        _cues(sentence.split()) for sentence in itertools.cycle(sentences)
    )
    written = []
    for number, words in enumerate(itertools.islice(parts, cues)):
        begin, end = (_clock((number + after) * _SECONDS_A_CUE) for after in (0, 1))
        written.append(f"{number + 1}\n{begin} --> {end}\n{' '.join(words)}\n")
    return "\n".join(written).encode()


def _paragraphs(sentences: Sequence[str], words: int) -> Iterator[list[str]]:
    """Paragraphs with this many words in total."""
    paragraph, long, total = list[str](), 0, 0
    for sentence in itertools.cycle(sentences):
        paragraph.append(sentence)
        long += len(sentence.split())
        if long >= _WORDS_A_PARAGRAPH:
            yield paragraph
            total += long
            paragraph, long = [], 0
            if total >= words:
                return


def _middle(text: str) -> tuple[str, str, str]:
    """The text before its middle word, the word, and the text after it."""
    words = text.split(" ")
    place = len(words) // 2
    return " ".join(words[:place]) + " ", words[place], " " + " ".join(words[place + 1 :])


def _run(text: str, bold: bool) -> str:
    style = "<w:rPr><w:b/></w:rPr>" if bold else ""
    return f'<w:r>{style}<w:t xml:space="preserve">{escape(text)}</w:t></w:r>'


def _cues(words: Sequence[str]) -> Iterator[Sequence[str]]:
    return (words[at : at + _WORDS_A_CUE] for at in range(0, len(words), _WORDS_A_CUE))


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02},000"
