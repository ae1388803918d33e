"""Options of the verbs that measure how good outputs are."""

from __future__ import annotations

from pathlib import Path

from bench.arguments.options import BUSY, Verbs, add_texts, add_threads


def add_quality(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "quality", help="BLEU, chrF and their spread over seeds of several trained systems"
    )
    parser.add_argument(
        "--system",
        action="append",
        required=True,
        metavar="NAME=RUN,...",
        help="a system and its runs, one a seed, or files of their translations; the first system "
        "is the baseline",
    )
    parser.add_argument("--source", type=Path, required=True, metavar="FILE")
    parser.add_argument("--reference", type=Path, required=True, metavar="FILE")
    parser.add_argument("--beam-size", type=int, default=5, metavar="N", help="default 5")
    add_threads(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the whole record there")


def add_bundles(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "bundles", help="speed, size and quality of several translation bundles on one text"
    )
    parser.add_argument(
        "--system",
        action="append",
        required=True,
        metavar="NAME=BUNDLE",
        help="the first one is the baseline",
    )
    parser.add_argument("--source", type=Path, required=True, metavar="FILE")
    parser.add_argument("--reference", type=Path, required=True, metavar="FILE")
    parser.add_argument("--batch", default="1,32", metavar="N,...", help="default 1,32")
    parser.add_argument("--beam-size", type=int, default=5, metavar="N", help="default 5")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="default 5")
    add_threads(parser)
    parser.add_argument("--busy", action="store_true", help=BUSY)
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE.png",
        help="a picture of quality against speed at the largest batch",
    )


def add_verification(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "verification",
        help="faults of translations that are found and repaired by their sources",
        description="Translates sentences with figures, letters of other alphabets, codes or tags, "
        "with and without `verify`.",
    )
    parser.add_argument("bundle", type=Path)
    add_texts(parser)
    parser.add_argument(
        "--sentences", type=int, default=500, metavar="N", help="of either sort (default 500)"
    )
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="default 3")
    parser.add_argument(
        "--minutes", type=int, default=60, metavar="N", help="end then, of either sort (default 60)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="draws the sentences (default 1)"
    )
    add_threads(parser)
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the changed translations there"
    )


def add_terms(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "terms",
        help="how often the terms of a glossary are used where they belong",
        description="Translates sentences from templates with a glossary of 300 terms, without it, "
        "by a search that is held to them, by marks and by attention.",
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--languages", required=True, metavar="SOURCE-TARGET", help="de-en, en-de")
    parser.add_argument("--sentences", type=int, default=200, metavar="N", help="default 200")
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="draws the terms (default 1)"
    )
    add_threads(parser)


def add_dictionary(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "dictionary",
        help="whether rare words, names, numbers and dates come out right",
        description="Translates the lines of a dictionary and counts, by kind, those whose first "
        "translation is one of the table's; in sentences (kind `carrier`) the names and numbers "
        "that are kept or translated as they should be.",
    )
    parser.add_argument("--system", action="append", required=True, metavar="NAME=BUNDLE")
    parser.add_argument("--languages", required=True, metavar="de-en", help="source and target")
    parser.add_argument(
        "--lines",
        type=Path,
        action="append",
        required=True,
        help="TSV of a text, its translation, a kind and, for lines of one direction only, that "
        "direction (de>en); English is on the right",
    )
    parser.add_argument(
        "--names",
        type=Path,
        action="append",
        default=[],
        help="tables like --lines; their names are also searched for in sentences",
    )
    add_threads(parser)


def add_estimation(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "estimation",
        help="how well the probability of a translation separates good ones from poor ones",
        description="Translates texts with a calibrated bundle, and compares the probabilities "
        "with sentence chrF2; scores references, and references made wrong, as given translations. "
        "With --read it compares them with the marks of a reader.",
    )
    parser.add_argument("bundle", type=Path)
    add_texts(parser, required=False)
    parser.add_argument(
        "--name", action="append", default=[], metavar="NAME", help="of each text, in the table"
    )
    parser.add_argument(
        "--read",
        type=Path,
        metavar="FILE",
        help="translations that were read, such as docs/hand-read.tsv, in place of texts",
    )
    parser.add_argument(
        "--sentences", type=int, default=1000, metavar="N", help="of each text (default 1000)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="draws the sentences (default 1)"
    )
    add_threads(parser)


def add_similarity(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "similarity",
        help="quality of the vectors of embedding models",
        description="Looks for each text's partner among at most 2,000, both ways (accuracy), and "
        "compares cosines with the scores of people (Spearman's correlation).",
    )
    parser.add_argument("--system", action="append", required=True, metavar="NAME=BUNDLE")
    parser.add_argument(
        "--pairs",
        action="append",
        default=[],
        metavar="NAME=TABLE",
        help="two texts of the same meaning per line; TSV, CSV or JSON lines",
    )
    parser.add_argument(
        "--scores",
        action="append",
        default=[],
        metavar="NAME=TABLE",
        help="two texts and a score per line",
    )
    add_threads(parser)


def add_perplexity(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "perplexity",
        help="how well language models predict text, in bits per byte",
        description="Scores each line of texts on its own: bits per byte, which compare models of "
        "any tokenizer, and the perplexity per token.",
    )
    parser.add_argument("--system", action="append", required=True, metavar="NAME=BUNDLE")
    for option, help in (
        ("--text", "lines of text, plain or compressed"),
        ("--wikitext", "WikiText as published, cleaned as for training"),
    ):
        parser.add_argument(option, action="append", default=[], metavar="NAME=FILE", help=help)
    add_threads(parser)
