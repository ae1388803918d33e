"""CTranslate2 as its users run it on a file: text on stdin, translations on stdout.

Imports nothing else of this project, whose own command is measured beside it.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import ctranslate2
import sentencepiece

_BATCH = 32


def main() -> None:
    """`python -m bench.peer_translate MODEL TOKENIZER --workers N --threads N --beam N`"""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("tokenizer")
    for name in ("--workers", "--threads", "--beam"):
        parser.add_argument(name, type=int, required=True)
    options = parser.parse_args()
    translator, pieces = load(options.model, options.tokenizer, options.workers, options.threads)
    content = sys.stdin.buffer.read().decode()
    lines = translate(translator, pieces, content.removesuffix("\n").split("\n"), options.beam)
    for line in lines:
        print(line.replace("\n", " "))


def load(model: str, tokenizer: str, workers: int, threads: int) -> tuple[Any, Any]:
    """The translator and the tokenizer."""
    translator = ctranslate2.Translator(model, inter_threads=workers, intra_threads=threads)
    return translator, sentencepiece.SentencePieceProcessor(model_file=tokenizer)


def translate(translator: Any, pieces: Any, lines: list[str], beam_size: int) -> list[str]:
    """All lines in one call, which sorts them by length and shares the batches out."""
    sources = [[*tokens, "</s>"] for tokens in pieces.encode(lines, out_type=str)]
    results = translator.translate_batch(sources, max_batch_size=_BATCH, beam_size=beam_size)
    decoded: list[str] = pieces.decode([result.hypotheses[0] for result in results])
    return decoded


if __name__ == "__main__":
    main()
