"""Making word lists; `serving.bundle.words` reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from serving.bundle.words import EOS, UNK
from training.errors import ConfigError
from training.runs.checkpoint import write_atomically


def write_vocabulary(texts: Iterable[str], path: Path) -> None:
    """Write all words of the texts, frequent ones first, with `<unk>` and `<eos>`.

    Raises ConfigError if there are fewer than two other words.
    """
    counts = Counter(word for text in texts for word in text.split())
    words = sorted(counts.keys() - {UNK, EOS}, key=lambda word: (-counts[word], word))
    if len(words) < 2:
        raise ConfigError(f"a vocabulary needs two words at least, the text has {len(words)}")
    # Other vocabularies have padding and bos here: so the two words whose loss matters least.
    types = [words.pop(), UNK, words.pop(), EOS, *words]
    write_atomically(path, "".join(f"{type_}\n" for type_ in types).encode())
