"""WikiText's tokenisation undone, so that a model learns text as people write it."""

from __future__ import annotations

import re
from itertools import groupby

_JOINED = {" @-@ ": "-", " @,@ ": ",", " @.@ ": "."}
_HEADING = re.compile(r"^(=(?: =)*) (.*?) (?:=(?: =)*)$")
_SENTENCE_START = re.compile(r"(?<= [.?!]) (?=[A-Z\"'(])")
"""The space before a sentence: WikiText puts spaces around punctuation, so an abbreviation does not
look like an end."""
_RULES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r" ([,.;:!?%)\]}])(?= |$|[,.;:!?)\]}\"'])", r"\1"),
        (r"([(\[{]) ", r"\1"),
        (r'(^|[ (\[])" ([^"]*?) ?"(?=$|[ ,.;:!?)\]])', r'\1"\2"'),
        (r"(^|[ (\[])' ([^']*?) '(?=$|[ ,.;:!?)\]])", r"\1'\2'"),
        (r" (n't|'(?:s|re|ve|ll|d|m))(?=$|[ ,.;:!?)\]\"])", r"\1"),
        (r"s ' ", r"s' "),
        (r"([$£€]) (?=\d)", r"\1"),
        (r" ° ", "°"),
        (r"(\d) – (?=\d)", r"\1–"),
    )
]


def detokenise(line: str) -> str:
    """A line of WikiText as plain text: without the spaces that its tokeniser put around
    punctuation."""
    text = line.strip()
    for tokenised, plain in _JOINED.items():
        text = text.replace(tokenised, plain)
    heading = _HEADING.match(text)
    if heading:
        marks = heading[1].replace(" ", "")
        return f"{marks} {detokenise(heading[2])} {marks}"
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


def clean_wikitext(lines: list[str]) -> tuple[list[str], dict[str, int]]:
    """Detokenised text without `<unk>`, and the numbers of empty lines and of sentences with
    `<unk>`.

    A line with `<unk>` becomes the runs of sentences between those that contain it. Nearly every
    paragraph of WikiText-2 contains one: dropping whole lines would leave a seventh of its words,
    dropping sentences leaves half.
    """
    kept: list[str] = []
    dropped = {"empty": 0, "<unk>": 0}
    for line in lines:
        if not line.strip():
            dropped["empty"] += 1
            continue
        sentences = _SENTENCE_START.split(line.strip())
        for unknown, run in groupby(sentences, key=lambda sentence: "<unk>" in sentence.split()):
            if unknown:
                dropped["<unk>"] += len(list(run))
            else:
                kept.append(detokenise(" ".join(run)))
    return kept, dropped
