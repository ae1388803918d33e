"""Make bundles of checkpoints, also of others', checkpoints of bundles, and engines of bundles for
CUDA, give bundles phrases and dictionaries, calibrate and verify; `--help` imports no torch."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from serving.hub.cache import AUTO

_PROG = f"python -m {__package__}"


def main(arguments: list[str] | None = None, prog: str = _PROG) -> int:
    """Run one verb; returns the exit status."""
    options = _parser(prog).parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger(__package__).setLevel(logging.INFO)
    from export import commands
    from export.errors import ExportError
    from serving.errors import ServingError
    from training.errors import TrainingError

    try:
        return int(commands.VERBS[options.verb](options))
    except (ExportError, ServingError, TrainingError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _parser(prog: str = _PROG) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)

    bundle = verbs.add_parser("bundle", help="export a checkpoint, compared with it")
    bundle.add_argument("checkpoint", type=Path, help="a run or checkpoint folder")
    bundle.add_argument("out", type=Path, help="the bundle's folder; its last part is its name")
    _add_form(bundle, "fp32 or int8 (default)", "int8")
    bundle.add_argument(
        "--shortlist",
        action="store_true",
        help="translation, cpu: learn shortlists of target pieces from the run's training text",
    )
    _add_texts(bundle)

    _add_import(verbs.add_parser("import", help="make a bundle of another project's checkpoint"))
    _add_engine(
        verbs.add_parser("engine", help="build TensorRT engines of a bundle for cuda, beside it")
    )

    calibrate = verbs.add_parser(
        "calibrate", help="fit the probability that a translation is good, by its score"
    )
    calibrate.add_argument("bundle", type=Path, help="whose manifest gets the curve")
    calibrate.add_argument("--source", type=Path, required=True, help="text, plain or .gz")
    calibrate.add_argument("--reference", type=Path, required=True, help="its translation")
    calibrate.add_argument(
        "--from",
        dest="source_language",
        metavar="CODE",
        help="language of the source, for a bundle of several directions",
    )
    calibrate.add_argument("--to", dest="target_language", metavar="CODE", help="of the reference")
    calibrate.add_argument("--data", help="name of the text (default: the source's file name)")

    _add_list(
        verbs.add_parser("phrases", help="give a bundle set phrases, whose translations are known"),
        "a phrase in each language",
    )
    _add_list(
        verbs.add_parser(
            "dictionary", help="give a bundle translations of words that its model does not know"
        ),
        "words of one meaning in each language",
    )

    checkpoint = verbs.add_parser(
        "checkpoint", help="make a run of a bundle's weights, for training to start from"
    )
    checkpoint.add_argument(
        "bundle", type=Path, help="a bundle of this project for the CPU, fp32 or int8"
    )
    checkpoint.add_argument("out", type=Path, help="the folder of a run")
    checkpoint.add_argument("--force", action="store_true", help="replace an existing folder")

    verify = verbs.add_parser("verify", help="check a bundle's hashes and load it")
    verify.add_argument("bundle", type=Path)
    return parser


def _add_list(verb: argparse.ArgumentParser, lines: str) -> None:
    """Add the arguments that say which bundle gets which list. Its lines have `lines`."""
    verb.add_argument("bundle", type=Path, help="a bundle that translates")
    verb.add_argument("file", type=Path, help=f"text with tabs: on each line {lines}")
    verb.add_argument(
        "--languages", required=True, metavar="CODES", help="those of the columns: de,en,fr"
    )


def _add_engine(engine: argparse.ArgumentParser) -> None:
    """Add the arguments that say which engines are built, and from which bundle."""
    engine.add_argument("bundle", type=Path, help="a bundle that was exported with --target cuda")
    engine.add_argument("out", type=Path, help="the bundle with engines; its last part is its name")
    engine.add_argument(
        "--profile",
        metavar="KEY=VALUE,...",
        help="sizes to build for: the largest rows, source and beam, or the usual and the largest "
        "(rows=8:32), and the capacities of caches (capacity=64,128,256); default: all that the "
        "bundle and the service allow",
    )
    engine.add_argument(
        "--library",
        choices=("tensorrt", "tensorrt_rtx"),
        help="library that builds and runs them (default: the first installed one)",
    )
    engine.add_argument(
        "--timing-cache",
        type=Path,
        metavar="FILE",
        help="tensorrt's timings, for later builds (default: in the user's cache folder)",
    )
    engine.add_argument("--force", action="store_true", help="replace an existing bundle")


def _add_form(bundle: argparse.ArgumentParser, precisions: str, default: str) -> None:
    """Add the options of a bundle's form: its precision, the machine it is for, and its graphs."""
    bundle.add_argument(
        "--precision",
        default=default,
        help=f"cpu: {precisions}; cuda: fp32, fp16, bf16 or w8a16",
    )
    bundle.add_argument(
        "--activations",
        choices=("row", "row16", "static"),
        help="int8: static scales from the text to compare on (default), one for each row, or that "
        "with activations of 16 bits, which loses least",
    )
    bundle.add_argument("--target", default="cpu", help="cpu (default) or cuda")
    bundle.add_argument(
        "--priority",
        type=int,
        default=0,
        metavar="N",
        help="the highest is used if several models serve a language pair or task (default 0)",
    )
    bundle.add_argument("--force", action="store_true", help="replace an existing bundle")


def _add_import(imported: argparse.ArgumentParser) -> None:
    """Add the arguments that say what is imported, and the facts that the checkpoint itself does
    not state."""
    imported.add_argument(
        "source",
        help="the checkpoint's folder, a GGUF file, or a model's name: OWNER/NAME[@REVISION] of a "
        "hub, firefox:FROM-TO, argos:FROM-TO, https://HOST/FILE#sha256=HASH",
    )
    imported.add_argument("out", type=Path, help="the bundle's folder; its last part is its name")
    smallest = "fp32, int8, or auto (default): the smallest of int8, int8 with activations of 16 "
    _add_form(imported, f"{smallest}bits and fp32 that loses little enough", AUTO)
    imported.add_argument(
        "--family", metavar="NAME", help="family of the checkpoint (default: by its config)"
    )
    imported.add_argument(
        "--from", dest="from_", metavar="CODE,...", help="languages that the model reads"
    )
    imported.add_argument("--to", metavar="CODE,...", help="languages that the model writes")
    imported.add_argument(
        "--licence", metavar="NAME", help="licence of the weights (default: that of their card)"
    )
    imported.add_argument(
        "--text",
        type=Path,
        metavar="FILE",
        help="text to compare on, to which int8 is fitted (default: built-in sentences, or a "
        "passage for language models, and a scale for each row)",
    )
    _add_pairs(imported, "source text with its translation to compare on, also by BLEU")
    imported.add_argument(
        "--task",
        type=Path,
        metavar="FILE",
        help="encoders: a table (.tsv, .csv, .jsonl) of two texts and their similarity or, for a "
        "classifier, a text or two and their label; the metric may change by half a point",
    )
    imported.add_argument(
        "--pooling",
        choices=("cls", "mean"),
        help="encoders: how a text's vector is made (default: as the folder says)",
    )
    imported.add_argument(
        "--attribution",
        default="",
        metavar="TEXT",
        help="encoders: origin and licence, for the manifest",
    )


def _add_texts(bundle: argparse.ArgumentParser) -> None:
    """Add the options that name the texts on which a bundle is compared and scored."""
    _add_pairs(bundle, "text to compare on (default: the run's validation pairs)")
    bundle.add_argument(
        "--text",
        type=Path,
        metavar="FILE",
        help="text to compare a language model on, or an encoder's table of labelled text "
        "(default: the run's validation text or lines)",
    )
    bundle.add_argument(
        "--test-text",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "FILE"),
        help="text on which a language model's perplexity is measured; may be repeated",
    )


def _add_pairs(bundle: argparse.ArgumentParser, dev: str) -> None:
    """Add the options for texts with their translations."""
    bundle.add_argument("--dev", nargs=2, metavar=("SOURCE", "REFERENCE"), help=dev)
    bundle.add_argument(
        "--test",
        nargs=3,
        action="append",
        default=[],
        metavar=("NAME", "SOURCE", "REFERENCE"),
        help="text whose BLEU and chrF go into the manifest; may be repeated",
    )
    bundle.add_argument(
        "--test-direction",
        nargs=5,
        action="append",
        default=[],
        metavar=("FROM", "TO", "NAME", "SOURCE", "REFERENCE"),
        help="the same for a model of several directions; may be repeated",
    )


if __name__ == "__main__":
    sys.exit(main())
