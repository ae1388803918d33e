"""A stretch of text between two boundaries, with the markup inside it.

Its text is what a reader sees. Sentences of it are translated; the rest stays as it was written.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from serving.text.alignment import Span


@dataclass
class Inline:
    """Markup inside a passage: an element with its content, or a single thing without any."""

    begin: int
    end: int
    """In the passage's text."""
    opening: str
    closing: str = ""
    children: list[Inline] = field(default_factory=list)
    masked: bool = False
    """A word, `text[begin:end]`, stands for the thing, so that models read a whole sentence."""


@dataclass
class Passage:
    """Text between two boundaries."""

    source: str
    """The request's text."""
    text: str
    """What a reader sees, with words in place of things that are kept."""
    origins: list[Span]
    """Where in `source` each character of `text` was; those of one thing were in one place."""
    inlines: list[Inline]
    escaped: bool
    """Whether translations are escaped for HTML."""
    sentences: list[Span] = field(default_factory=list)
    """What is translated."""

    def origin(self, span: Span) -> Span:
        """Where in `source` a part of the text was that is not empty."""
        return self.origins[span[0]][0], self.origins[span[1] - 1][1]

    def written(self, index: int) -> str:
        """A character as it was written; a thing is written at its first character."""
        origin = self.origins[index]
        if index and self.origins[index - 1] == origin:
            return ""
        return self.source[slice(*origin)]
