"""Reads the cues of SRT, WebVTT, ASS and SBV, and writes the file with other words."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from serving.documents.raw.encoding import decoded
from serving.documents.subtitles.division import divided, wrapped
from serving.documents.unit import FileInUnits, Format, Translated, Unit, WrittenFile, check_lengths

_CLOCK = r"(?:(\d+):)?(\d\d?):(\d\d?)[,.](\d+)"
_ARROW = re.compile(rf"[ \t]*{_CLOCK}[ \t]*-->[ \t]*{_CLOCK}[^\n]*\n")
_COMMA = re.compile(rf"[ \t]*{_CLOCK},{_CLOCK}[ \t]*\n")
_NUMBER = re.compile(r"[ \t]*\d+[ \t]*\Z")
_NAME = r"[^\W\d_a-zß-öø-ÿ](?:[^\W_a-zß-öø-ÿ]|[ .'\u2019-]){1,24}:[ \t]+"
_SPEAKER = re.compile(rf"[ \t]*(?:<[^>]*>|\{{[^}}]*\}})*[ \t]*(?:[-–—][ \t]*(?:{_NAME})?|{_NAME})")
_SOUND = re.compile(r"\[[^\[\]]+\]|\([^()]+\)")
"""A sound, not speech, in a cue or on a line of its own."""
_TAGS = r"(?:<[^>]*>|\{[^}]*\})*"
_LINE_OF_SOUND = re.compile(rf"\s*{_TAGS}(?P<sound>{_SOUND.pattern}){_TAGS}\s*")
_POSITION = re.compile(r"\\(?:an?\d|pos\()")
_ENDED = re.compile(r"""[.!?…。\uff01\uff1f♪:)\]]["'”’»“]*(?:<[^>]*>|\{[^}]*\})*\s*\Z""")
_TIME = re.compile(r"<((?:\d+:)?\d\d:\d\d\.\d{3})>")
_TIME_IN_HTML = re.compile(r'<wbr data-time="([\d:.]+)">')
_CLASS = re.compile(r"<([a-z]+)(\.[^\s<>\"]+)")
_CLASS_IN_HTML = re.compile(r'<([a-z]+) data-class="([^\s<>"]+)"')
_LONGEST_GAP_S = 3.0
_MOST_CUES = 6
_MOST_CHARACTERS = 600


@dataclass(frozen=True)
class Cue:
    """The words of one speaker in a cue."""

    begin: int
    end: int
    """Span of the words in the file, line breaks included."""
    words: str
    """The words without line breaks."""
    start_s: float
    stop_s: float
    begins: bool = False
    """Whether the cue begins a new sentence: it names a speaker."""
    alone: bool = False


@dataclass(frozen=True)
class _Kind:
    cues: Callable[[str], Iterator[Cue]]
    format: Format
    line_break: str
    read: Callable[[str], str] = str
    """Reads words as their format writes them; `written` does the opposite."""
    written: Callable[[str], str] = str


def read_srt(content: bytes) -> FileInUnits:
    """Read SubRip: tags of HTML and `{\an8}`, nothing escaped."""
    return _read(content, _Kind(functools.partial(_timed, timing=_ARROW), "text", "\n"))


def read_vtt(content: bytes) -> FileInUnits:
    """Read WebVTT: tags, with `&` escaped; notes, styles and settings stay."""
    # A note or a style may stand behind a cue without words.
    timed = functools.partial(_timed, timing=_ARROW, empty_first=False)
    return _read(content, _Kind(timed, "html", "\n", _as_html, _as_vtt))


def read_sbv(content: bytes) -> FileInUnits:
    """Read YouTube's format."""
    return _read(content, _Kind(functools.partial(_timed, timing=_COMMA), "text", "\n"))


def read_ass(content: bytes) -> FileInUnits:
    """Read Advanced SubStation Alpha: the text of its dialogues."""
    return _read(content, _Kind(_dialogues, "text", r"\N"))


def _read(content: bytes, kind: _Kind) -> FileInUnits:
    source = decoded(content)
    end = next((end for end in ("\r\n", "\n", "\r") if end in source.text), "\n")
    text = source.text.replace(end, "\n")
    groups = list(_groups(list(kind.cues(text))))
    units = [
        Unit(kind.read(" ".join(cue.words for cue in group)), kind.format, links=len(group) > 1)
        for group in groups
    ]
    check_lengths(units)

    def written(translations: Sequence[Translated], *, beside: bool) -> WrittenFile:
        found: list[tuple[Cue, str]] = []
        for group, unit, given in zip(groups, units, translations, strict=True):
            found += _lines(group, unit, given, kind, text)
        return source.encoded(_with(text, found, kind, beside=beside).replace("\n", end))

    return FileInUnits(
        units,
        functools.partial(written, beside=False),
        functools.partial(written, beside=True),
    )


def _as_html(words: str) -> str:
    """Words of WebVTT as HTML: its own tags, for times and classes, are converted."""
    return _CLASS.sub(r'<\1 data-class="\2"', _TIME.sub(r'<wbr data-time="\1">', words))


def _as_vtt(words: str) -> str:
    return _CLASS_IN_HTML.sub(r"<\1\2", _TIME_IN_HTML.sub(r"<\1>", words))


def _lines(
    group: Sequence[Cue], unit: Unit, given: Translated, kind: _Kind, text: str
) -> Iterator[tuple[Cue, str]]:
    if given.text == unit.text:
        yield from ((cue, text[cue.begin : cue.end]) for cue in group)
        return
    seconds = [max(cue.stop_s - cue.start_s, 0.1) for cue in group]
    source = [kind.read(cue.words) for cue in group]
    for cue, words in zip(group, divided(given, source, seconds), strict=True):
        yield cue, kind.line_break.join(wrapped(_own_times(kind.written(words), text, cue)))


def _own_times(words: str, text: str, cue: Cue) -> str:
    """The words without the times of words from another cue, because times are only valid within
    their own cue."""
    return _TIME.sub(lambda time: time[0] if time[0] in text[cue.begin : cue.end] else "", words)


def _with(text: str, found: Sequence[tuple[Cue, str]], kind: _Kind, *, beside: bool) -> str:
    """The file with other words; with `beside`, the old words stay as well."""
    written, done = [], 0
    for cue, words in found:
        written.append(text[done : cue.begin])
        source = text[cue.begin : cue.end]
        dash = _SPEAKER.fullmatch(text, text.rfind("\n", 0, cue.begin) + 1, cue.begin)
        both = source + kind.line_break + (dash[0] if dash else "") + words
        written.append(both if beside and words != source else words)
        done = cue.end
    return "".join([*written, text[done:]])


def _timed(text: str, timing: re.Pattern[str], *, empty_first: bool = True) -> Iterator[Cue]:
    """Cues after lines with their times; a cue ends at an empty line or before the next one. With
    `empty_first` its words may begin behind empty lines."""
    times = list(timing.finditer(text))
    for index, match in enumerate(times):
        end = times[index + 1].start() if index + 1 < len(times) else len(text)
        block = text[match.end() : end]
        # A cue without a blank line after it is followed by the number of the next one.
        lines = block.split("\n")
        if index + 1 < len(times) and len(lines) > 1 and _NUMBER.match(lines[-2]):
            lines = lines[:-2]
        clock = match.groups()
        seconds = _seconds(clock[:4]), _seconds(clock[4:])
        for first, paragraph in _paragraphs(lines, empty_first=empty_first):
            begin = match.end() + sum(len(line) + 1 for line in lines[:first])
            yield from _spoken(paragraph, begin, "\n", seconds)


def _paragraphs(lines: Sequence[str], *, empty_first: bool) -> Iterator[tuple[int, list[str]]]:
    """The lines of a cue between those with nothing but blanks, which keep their places, and the
    index of the first of each. Such a line may also stand before the number of the next cue."""
    paragraph: list[str] = []
    begun = not empty_first
    for index, line in enumerate(lines):
        if line.strip():
            paragraph.append(line)
            begun = True
            continue
        if paragraph:
            yield index - len(paragraph), paragraph
            paragraph = []
        if begun and not line:
            return
    if paragraph:
        yield len(lines) - len(paragraph), paragraph


def _dialogues(text: str) -> Iterator[Cue]:
    fields = ["layer", "start", "end", "style", "name", "ml", "mr", "mv", "effect", "text"]
    for match in re.finditer(r"(Format|Dialogue):[ \t]*([^\n]*)", text):
        if match[1] == "Format":
            names = [name.strip().lower() for name in match[2].split(",")]
            fields = names if names[-1] == "text" else fields
            continue
        values = match[2].split(",", len(fields) - 1)
        if len(values) < len(fields) or re.search(r"\\p[1-9]", values[-1]):
            continue  # damaged, or a drawing
        named = dict(zip(fields, values, strict=True))
        clocks = [re.fullmatch(_CLOCK, named.get(name, "").strip()) for name in ("start", "end")]
        if not (clocks[0] and clocks[1]):
            continue
        lines = re.split(r"\\[Nn]", values[-1])
        begin = match.end() - len(values[-1])
        yield from _spoken(
            lines, begin, r"\N", (_seconds(clocks[0].groups()), _seconds(clocks[1].groups()))
        )


def _spoken(
    lines: Sequence[str], begin: int, line_break: str, times: tuple[float, float]
) -> Iterator[Cue]:
    """Join the lines of a cue to one text for each speaker. A speaker's text begins with a dash,
    which is not part of it. A sound on a line of its own is a text, too."""
    place, start, said, named = begin, begin, list[str](), False
    for line in lines:
        sound = _LINE_OF_SOUND.fullmatch(line) if len(lines) > 1 else None
        if sound and line.count("<") == 2 * line.count("</"):  # no tag continues after the line
            if said:
                yield _cue(start, place - len(line_break), said, times, named=named)
                said = []
            first, last = sound.span("sound")
            yield _cue(place + first, place + last, [sound["sound"]], times, named=False)
            place += len(line) + len(line_break)
            continue
        dash = _SPEAKER.match(line)
        if dash and said:
            yield _cue(start, place - len(line_break), said, times, named=named)
            said = []
        if not said:
            named = dash is not None
            cut = len(dash[0]) if dash and "<" not in dash[0] and "{" not in dash[0] else 0
            start, line_text = place + cut, line[cut:]
        else:
            line_text = line
        said.append(line_text.strip())
        place += len(line) + len(line_break)
    if said:
        yield _cue(start, place - len(line_break), said, times, named=named)


def _cue(
    begin: int, end: int, said: Sequence[str], times: tuple[float, float], *, named: bool
) -> Cue:
    """A cue. Brackets around a sound are not part of its text; other rules keep their content."""
    words = " ".join(said)
    if _SOUND.fullmatch(words) and len(words) == end - begin:
        return Cue(begin + 1, end - 1, words[1:-1], *times, alone=True)
    return Cue(begin, end, words, *times, begins=named)


def _groups(cues: Sequence[Cue]) -> Iterator[list[Cue]]:
    """Groups of cues with letters: a group holds the cues that a sentence runs over."""
    group: list[Cue] = []
    for cue in cues:
        if not any(map(str.isalpha, cue.words)):
            continue
        if group and (
            (_ENDED.search(group[-1].words) and not _goes_on(group[-1].words, cue.words))
            or group[-1].alone
            or cue.alone
            or cue.begins
            or bool(_POSITION.search(cue.words)) != bool(_POSITION.search(group[-1].words))
            or not 0 <= cue.start_s - group[-1].stop_s + 0.05 <= _LONGEST_GAP_S
            or len(group) == _MOST_CUES
            or sum(len(other.words) for other in group) + len(cue.words) > _MOST_CHARACTERS
        ):
            yield group
            group = []
        group.append(cue)
    if group:
        yield group


def _goes_on(before: str, words: str) -> bool:
    """Whether an ellipsis or a bracket is followed by a small letter."""
    first = re.sub(r"<[^>]*>|\{[^}]*\}|\W", "", words)[:1]
    return first.islower() and before.rstrip().endswith(("...", "…", ")", "]"))


def _seconds(clock: Sequence[str | None]) -> float:
    hours, minutes, seconds, part = (piece or "0" for piece in clock)
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds) + float(f"0.{part}")
