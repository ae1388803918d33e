"""Translate, score, continue, embed or classify text: lines on stdin, results on stdout."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

_BUNDLE = "a bundle's folder, or a model's name, such as OWNER/NAME of a hub"
_PROG = f"python -m {__package__}"


def main(arguments: list[str] | None = None, prog: str = _PROG) -> int:
    """Run one verb; returns the exit status."""
    options = _parser(prog).parse_args(arguments)
    try:
        return _run(options)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader has closed the pipe, as with `| head`
        sys.stderr.close()
        return 0


def _run(options: argparse.Namespace) -> int:
    from serving.threads import keep_numpy_single

    keep_numpy_single()
    from serving import commands
    from serving.errors import ServingError

    try:
        return int(getattr(commands, options.verb.replace("-", "_"))(options))
    except ServingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parser(prog: str = _PROG) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)

    translate = verbs.add_parser("translate", help="translate each line")
    _common(translate)
    _of_translation(translate)
    translate.add_argument(
        "--stream",
        action="store_true",
        help="translate each line as it arrives, on a pipe that stays open; slower for whole files",
    )

    _of_files(verbs.add_parser("translate-file", help="translate files: text, office, subtitles"))

    _of_bulk(
        verbs.add_parser(
            "bulk",
            help="translate or score every row of a text, a table or JSONL, with Ray Data",
        )
    )

    score = verbs.add_parser(
        "score",
        help="log-probabilities of given translations, one per line: source TAB translation",
    )
    _common(score)
    _languages(score)

    generate = verbs.add_parser("generate", help="continue each line with a language model")
    _common(generate)
    generate.add_argument("--seed", type=int, help="the same seed gives the same text")
    generate.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a generation option, for example temperature=0; may be repeated",
    )
    _of_encoders(
        verbs.add_parser("embed", help="print the vector of each line, by an encoder"),
        verbs.add_parser("classify", help="print the class of each line, by an encoder"),
    )
    return parser


def _of_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", help=_BUNDLE)
    parser.add_argument("input", help="a file, a folder, or a pattern between quotes")
    parser.add_argument("output", type=Path, help="a file, or a folder")
    _languages(parser)
    parser.add_argument(
        "--threads", type=int, help="number of threads; default: the available processors"
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a search option, for example beam_size=1; may be repeated",
    )
    parser.add_argument(
        "--glossary",
        type=Path,
        metavar="FILE",
        help="terms, one per line: SOURCE TERM, a tab, TARGET TERM",
    )
    parser.add_argument(
        "--memory", type=Path, metavar="FILE", help="TMX file; sentences in it are not decoded"
    )
    parser.add_argument(
        "--memory-threshold",
        type=float,
        default=75,
        metavar="PERCENT",
        help="smallest similarity of a sentence in the memory (default %(default)s)",
    )
    parser.add_argument(
        "--memory-fuzzy",
        choices=("given", "prefix"),
        default="given",
        help="for a sentence that is only similar to one in the memory: use that one's "
        "translation, or begin the translation like it (default %(default)s)",
    )
    parser.add_argument(
        "--bilingual", action="store_true", help="keep the source beside its translation"
    )
    parser.add_argument(
        "--retranslate",
        action="store_true",
        help="translate texts that already have a translation again (PO, XLIFF, .xcstrings, TMX)",
    )
    parser.add_argument(
        "--columns",
        default="",
        metavar="NAMES",
        help="columns to translate of CSV, TSV, JSON Lines: names or numbers from 1, with commas",
    )
    parser.add_argument("--force", action="store_true", help="replace the output")


def _of_bulk(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", help=_BUNDLE)
    parser.add_argument("input", type=Path, help="input file; its suffix decides the format")
    parser.add_argument("output", type=Path, help="output file, of the same kind")
    _of_translation(parser)
    parser.add_argument(
        "--column", default="text", help="column with the text, for JSONL and tables (default text)"
    )
    parser.add_argument(
        "--into", help="member or column for the results (default translation, or score)"
    )
    parser.add_argument(
        "--n-best",
        type=int,
        default=0,
        metavar="N",
        help="write a list of this many translations per row",
    )
    parser.add_argument(
        "--score",
        action="store_true",
        help="score given translations; lines of text: source TAB translation",
    )
    parser.add_argument(
        "--target-column", help="column with the translations to score (default translation)"
    )
    parser.add_argument(
        "--workers", type=int, help="number of processes; default: one per processor"
    )
    parser.add_argument(
        "--threads-per-worker",
        type=int,
        default=1,
        help="number of threads of each process (default 1)",
    )
    parser.add_argument("--address", help="address of a Ray cluster; default: only this machine")
    parser.add_argument("--force", action="store_true", help="replace the output")


def _of_encoders(embed: argparse.ArgumentParser, classify: argparse.ArgumentParser) -> None:
    for verb in (embed, classify):
        _common(verb)
        verb.add_argument(
            "--truncate", action="store_true", help="cut off the end of a line that is too long"
        )
    classify.add_argument(
        "--pairs", action="store_true", help="each line has two texts, separated by a tab"
    )


def _languages(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="source_language",
        metavar="CODE",
        help="language of the source, for a bundle of several directions",
    )
    parser.add_argument(
        "--to", dest="target_language", metavar="CODE", help="language of the target"
    )
    parser.add_argument(
        "--zero-shot",
        action="store_true",
        help="allow a pair of the bundle's languages that it was not trained on",
    )


def _of_translation(parser: argparse.ArgumentParser) -> None:
    _languages(parser)
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a search option, for example beam_size=1; may be repeated",
    )
    parser.add_argument(
        "--target-prefix", default="", help="text with which each translation begins"
    )
    parser.add_argument(
        "--no-split",
        dest="split",
        action="store_false",
        help="treat each line as one sentence, even if it seems to contain several",
    )
    parser.add_argument(
        "--format",
        choices=("text", "html", "markdown", "xml"),
        default="text",
        help="format of the lines (default text)",
    )


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", help=_BUNDLE)
    parser.add_argument(
        "--threads", type=int, help="number of threads; default: the available processors"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object per line, with scores"
    )


if __name__ == "__main__":
    sys.exit(main())
