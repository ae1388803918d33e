"""CTranslate2 as its users run it on a file: text on stdin, translations on stdout.

It imports nothing else of this project, whose own command is measured beside it.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import ctranslate2
import sentencepiece


def main() -> None:
    """`python -m bench.systems.files.peer_translate MODEL TOKENIZER --workers N --threads N
    --beam N --batch-type TYPE --batch-size N`"""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("tokenizer")
    parser.add_argument("--batch-type", choices=("examples", "tokens"), required=True)
    for name in ("--workers", "--threads", "--beam", "--batch-size"):
        parser.add_argument(name, type=int, required=True)
    options = parser.parse_args()
    translator, pieces = load(options.model, options.tokenizer, options.workers, options.threads)
    content = sys.stdin.buffer.read().decode()
    lines = content.removesuffix("\n").split("\n")
    batches = (options.batch_type, options.batch_size)
    for line in translate(translator, pieces, lines, options.beam, batches):
        print(line.replace("\n", " "))


def load(model: str, tokenizer: str, workers: int, threads: int) -> tuple[Any, Any]:
    """The translator and the tokenizer."""
    translator = ctranslate2.Translator(model, inter_threads=workers, intra_threads=threads)
    return translator, sentencepiece.SentencePieceProcessor(model_file=tokenizer)


def translate(
    translator: Any, pieces: Any, lines: list[str], beam_size: int, batches: tuple[str, int]
) -> list[str]:
    """All lines in one call, which sorts them by length and shares the `batches`, of a type and a
    size, out."""
    sources = [[*tokens, "</s>"] for tokens in pieces.encode(lines, out_type=str)]
    kind, size = batches
    results = translator.translate_batch(
        sources, max_batch_size=size, batch_type=kind, beam_size=beam_size
    )
    decoded: list[str] = pieces.decode([result.hypotheses[0] for result in results])
    return decoded


if __name__ == "__main__":
    main()
