"""The choice of the language that is filled in, in a file with several languages."""

from __future__ import annotations

from collections.abc import Sequence

from serving.errors import DocumentError


def is_same(first: str, second: str) -> bool:
    """Whether two codes name the same language, whatever its region."""
    return _base(first) == _base(second)


def language_to_fill(languages: Sequence[str], main: str, target: str) -> str:
    """The target language as a file with these languages writes it. Without a target, it is the
    only language beside the main one. Raises DocumentError if there is none, or several."""
    others = {language: None for language in languages if language and not is_same(language, main)}
    if target:
        exact = [language for language in others if language.lower() == target.lower()]
        return next(iter([*exact, *(o for o in others if is_same(o, target))]), target)
    if len({_base(other) for other in others}) != 1:
        raise DocumentError(
            "the file must have one language beside that of the source where none is asked for, "
            f"got {', '.join(others) or 'none'}; name the target language"
        )
    return next(iter(others))


def _base(language: str) -> str:
    return language.lower().replace("_", "-").partition("-")[0]
