"""Commands that train models and evaluate the results; `--help` imports no torch."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

_Verbs = argparse._SubParsersAction  # argparse has no public name for it

_PROG = f"python -m {__package__}"


def main(arguments: list[str] | None = None, prog: str = _PROG) -> int:
    """Run one verb; returns the exit status."""
    options = _parse(arguments, prog)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    from serving.errors import ServingError
    from training import commands
    from training.errors import TrainingError

    try:
        return int(getattr(commands, options.verb)(options))
    except (ServingError, TrainingError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command resumes training", file=sys.stderr)
        return 130


def _parse(arguments: list[str] | None, prog: str = _PROG) -> argparse.Namespace:
    """Read the command line; overrides may stand before and after options."""
    parser = _parser(prog)
    options, rest = parser.parse_known_args(arguments)
    flags = [word for word in rest if word.startswith("-")]
    if rest and (flags or not hasattr(options, "overrides")):
        parser.error(f"unrecognized arguments: {' '.join(flags or rest)}")
    if rest:  # argparse gives a list of positionals one place only
        options.overrides += rest
    return options


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    _add_train(verbs)
    _add_finetune(verbs)
    _add_tokenizer(verbs)
    _add_data(verbs)
    _add_evaluate(verbs)
    _add_compare(verbs)
    _add_average(verbs)
    _add_prune(verbs)
    _add_report(verbs)
    _add_scale(verbs)
    _add_distill(verbs)
    _add_backtranslate(verbs)
    _add_pairs(verbs)
    _add_vectors(verbs)
    return parser


def _add_train(verbs: _Verbs) -> None:
    parser = verbs.add_parser("train", help="train a recipe, or resume it")
    parser.add_argument("recipe", help="a name under training/recipes, or a YAML file")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="for example loop.seed=2")
    parser.add_argument("--run", type=Path, help="run folder (default runs/RECIPE)")
    parser.add_argument(
        "--stop-after", type=_positive, metavar="STEP", help="save and stop there; resume later"
    )
    parser.add_argument(
        "--processes",
        type=_positive,
        default=1,
        metavar="N",
        help="train in N processes on this machine, each with that many threads; torchrun "
        "starts them on several machines",
    )
    _add_threads(parser)


def _add_finetune(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "finetune",
        help="fit a pre-trained encoder to labelled text, as one JSON",
        description="Each learning rate is tried with each number of epochs, batch size and seed; "
        "the run folder gets the best on the validation lines.",
    )
    parser.add_argument("base", type=Path, metavar="RUN", help="a run or checkpoint folder")
    parser.add_argument(
        "task",
        type=Path,
        metavar="TASK",
        help="a table of texts and labels (.tsv, .csv, .jsonl, also .gz or .zst), or a folder with "
        "train.* and dev.*",
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as optim.clip_norm=0")
    parser.add_argument(
        "--dev", type=Path, metavar="FILE", help="validation lines (default: a tenth of the table)"
    )
    parser.add_argument(
        "--kind",
        help="single (a class of a text), pair (a class of two), regression (a score of one or "
        "two) or contrastive (vectors of similar texts); default: by the labels",
    )
    parser.add_argument(
        "--columns",
        metavar="NAME,...",
        help="names or numbers: text or both texts, then the label (default: by their content)",
    )
    parser.add_argument(
        "--metric", help="accuracy, f1, matthews, pearson or spearman: chooses the best trial"
    )
    for name, default, kind in (
        ("--lr", "5e-5", "learning rates"),
        ("--epochs", "3", "epochs"),
        ("--batch", "32", "lines of a batch"),
        ("--seeds", "1", "seeds"),
    ):
        parser.add_argument(
            name, default=default, metavar="N,...", help=f"{kind} to try (default {default})"
        )
    parser.add_argument("--run", type=Path, help="run folder (default runs/RUN-TASK)")
    _add_threads(parser)


def _add_tokenizer(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "tokenizer", help="clean a recipe's text and make its vocabulary, without training"
    )
    parser.add_argument("recipe")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_argument("--run", type=Path, help="run folder (default runs/RECIPE)")


def _add_data(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "data", help="prepare a recipe's text without training and report on it: pairs, shares, "
        "lengths, dropped lines"
    )  # fmt: skip
    parser.add_argument("recipe")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_argument("--run", type=Path, help="run folder (default runs/RECIPE)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")


def _add_evaluate(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "evaluate",
        help="BLEU and chrF, perplexity, or an encoder's metrics on a test set, as one JSON",
    )
    parser.add_argument("checkpoint", type=Path, help="a run or checkpoint folder")
    parser.add_argument(
        "source",
        type=Path,
        help="source text, the text of a language model, or an encoder's table of labelled text",
    )
    parser.add_argument("reference", type=Path, nargs="?", help="of translation models only")
    parser.add_argument(
        "--protocol",
        choices=("bptt", "sliding", "rolling"),
        help="perplexity of a language model: bptt (20 columns cut every 70 tokens, as papers do), "
        "sliding (each token after half a window at least), rolling (lm-eval's, by document)",
    )
    parser.add_argument(
        "--window",
        type=_positive,
        metavar="TOKENS",
        help="tokens read at once (bptt: 70, else as in training)",
    )
    parser.add_argument("--beam-size", type=int, default=5, help="1 is greedy (default 5)")
    _add_languages(parser)
    parser.add_argument("--output", type=Path, help="write the translations there")
    parser.add_argument("--force", action="store_true", help="replace an existing --output")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument(
        "--analysis",
        metavar="NAME,...",
        help="also any of length (scores by source length), position (matched words by place in "
        "the sentence), frequency (F1 of words by their count in the training text)",
    )
    parser.add_argument(
        "--bleu",
        metavar="NAME,...",
        help="also BLEU as in papers: multi_bleu (of tokens, unsmoothed), multi_bleu_lc "
        "(in small letters), compound_split (hyphenated words as three tokens)",
    )
    parser.add_argument(
        "--tokenized",
        action="store_true",
        help="for --bleu: tokens are separated by spaces (default: mteval-v13a's tokens)",
    )
    parser.add_argument(
        "--domains",
        type=Path,
        metavar="FILE",
        help="also scores by domain; FILE names the domain of each line",
    )
    _add_threads(parser)


def _add_compare(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "compare",
        help="scores of several systems' translations with a paired bootstrap, as one JSON",
        description="The first OUTPUT is the system that the others are compared with; "
        "`evaluate --output` writes such a file.",
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("outputs", nargs="+", type=Path, metavar="OUTPUT", help="two or more")
    parser.add_argument(
        "--page", type=Path, metavar="FILE.html", help="also the worst sentences side by side"
    )
    parser.add_argument("--worst", type=_positive, default=50, help="how many (default 50)")
    parser.add_argument("--force", action="store_true", help="replace an existing --page")


def _add_average(verbs: _Verbs) -> None:
    parser = verbs.add_parser("average", help="average the last or best checkpoints of a run")
    parser.add_argument("run", type=Path)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--last", type=_positive, default=5, help="how many (default 5)")
    chosen.add_argument(
        "--best", type=_positive, metavar="N", help="the best N instead of the last"
    )
    parser.add_argument("--force", action="store_true", help="replace an existing average")


def _add_prune(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "prune",
        help="a run with fewer layers from a trained one, as one JSON",
        description="Layers are counted from 0; a side that no option names keeps all layers.",
    )
    parser.add_argument("run", type=Path, help="a run or checkpoint folder")
    parser.add_argument("out", type=Path, help="the new run folder")
    for side in ("encoder", "decoder"):
        parser.add_argument(
            f"--{side}-layers", type=_positive, metavar="N", help="number of layers to keep"
        )
        parser.add_argument(
            f"--keep-{side}", type=_numbers, metavar="0,2,4", help="the layers to keep instead"
        )
    parser.add_argument(
        "--method",
        choices=("every_other", "search", "learnt"),
        default="every_other",
        help="how the layers are chosen: every_other (default), search (lowest validation loss of "
        "all combinations), learnt (by rates of model.learns_layerdrop)",
    )
    parser.add_argument(
        "--sentences", type=_positive, default=200, help="validation pairs of a search (200)"
    )
    parser.add_argument("--force", action="store_true", help="replace an existing OUT")
    _add_threads(parser)


def _add_report(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "report", help="loss, BLEU, learning rate and speed of runs as an HTML page and a picture"
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE.html",
        help="the page, with a .png of that name beside it (default report.html in the first run, "
        "which is replaced)",
    )
    parser.add_argument("--force", action="store_true", help="replace an existing --output")


def _add_scale(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "scale",
        help="depth and width of a joint model for a larger budget, as one JSON",
        description="Li et al. 2020, equations 8 to 11: from the validation losses of a base "
        "model, of one with one more layer, and of one whose ffn_dim is larger by model_dim.",
    )
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="base, deeper, wider")
    parser.add_argument("--depth", type=_positive, help="instead of runs: joint layers of the base")
    parser.add_argument("--width", type=float, help="ffn_dim / model_dim of the base")
    for name in ("base", "deeper", "wider"):
        parser.add_argument(f"--{name}-loss", type=float, metavar="NATS", help="lowest, validation")
    parser.add_argument("--beta", type=float, default=2.0, help="parameters to grow by (default 2)")


def _add_distill(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "distill", help="a teacher's translations of parallel text, for a student to learn from"
    )
    _add_teacher(parser)
    parser.add_argument("source", type=Path, help="text, plain or .gz")
    parser.add_argument("reference", type=Path, help="its translation, line by line")
    _add_made(parser)
    parser.add_argument(
        "--n-best",
        type=_positive,
        default=8,
        metavar="N",
        help="translations of each line to choose from (default 8); 1 is the teacher's best",
    )
    parser.add_argument(
        "--metric", default="chrf", help="metric of the nearest translation: chrf (default) or bleu"
    )


def _add_backtranslate(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "backtranslate", help="parallel text from text in one language, for the other direction"
    )
    _add_teacher(parser)
    parser.add_argument("text", type=Path, help="in the teacher's source language, plain or .gz")
    _add_made(parser)


def _add_pairs(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "pairs", help="a table of texts with the same meaning, from a translation recipe's text, "
        "to fit sentence embeddings to"
    )  # fmt: skip
    parser.add_argument("recipe", help="a name under training/recipes, or a YAML file")
    parser.add_argument("out", type=Path, help="the table, .tsv or .tsv.gz")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_argument(
        "--leave-out",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="test text that must not be in the table; may be given several times",
    )
    parser.add_argument(
        "--texts-of",
        nargs=2,
        metavar=("LANGUAGE", "FILE"),
        help="also write the table's texts in a language, each once, for `vectors`",
    )
    parser.add_argument("--force", action="store_true", help="replace the files")


def _add_vectors(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "vectors", help="an embedder's vectors of texts, for another embedder to learn from"
    )
    parser.add_argument("teacher", help="a bundle for `encode`, or a model name")
    parser.add_argument("texts", nargs="+", type=Path, help="files of lines, plain, .gz or .zst")
    parser.add_argument("out", type=Path, help="the file, .npz")
    narrow = parser.add_mutually_exclusive_group()
    narrow.add_argument(
        "--width", type=_positive, help="width of the vectors; default: the teacher's"
    )
    narrow.add_argument(
        "--like", metavar="BUNDLE", help="the student that training begins with, whose width and "
        "directions the vectors get"
    )  # fmt: skip
    parser.add_argument("--threads", type=_positive, help="default: one per processor")
    parser.add_argument("--force", action="store_true", help="replace the file")


def _add_teacher(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("teacher", type=Path, help="a bundle, a run or a checkpoint")


def _add_made(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, help="files are named OUT.<language>")
    _add_languages(parser)
    parser.add_argument("--workers", type=_positive, help="processes; default: one per processor")
    parser.add_argument("--address", help="address of a Ray cluster; default: this machine only")
    parser.add_argument("--force", action="store_true", help="replace the files")


def _add_languages(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="source_language",
        metavar="CODE",
        help="language of the source, for a model of several directions",
    )
    parser.add_argument("--to", dest="target_language", metavar="CODE", help="of the target")


def _add_threads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--threads", type=_positive, help="CPU threads (equal results need the same number)"
    )


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"must be a number >= 1, got {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
