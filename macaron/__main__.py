"""The command `macaron`: its verbs are those of the packages, each of which parses its own."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from dataclasses import dataclass

from serving.errors import install_command

_OURS = frozenset({"macaron", "serving", "training", "export", "bench"})
"""Modules whose absence means a broken installation that no extra repairs."""


@dataclass(frozen=True)
class VerbGroup:
    """Verbs with the same dependencies."""

    extra: str
    """The extra of the package that installs the dependencies."""
    run: Callable[[list[str], str], int]
    """Takes the arguments from the verb on, and the name of the command; returns the exit
    status."""
    verbs: dict[str, str]
    """Short descriptions of the verbs."""


def _serve(words: list[str], prog: str) -> int:
    from macaron.serve import main

    return main(words[1:], f"{prog} {words[0]}")


def _pull(words: list[str], prog: str) -> int:
    from macaron.models import main_pull

    return main_pull(words[1:], f"{prog} {words[0]}")


def _models(words: list[str], prog: str) -> int:
    from macaron.models import main_models

    return main_models(words[1:], f"{prog} {words[0]}")


def _doctor(words: list[str], prog: str) -> int:
    from macaron.doctor import main

    return main(words[1:], f"{prog} {words[0]}")


def _serving(words: list[str], prog: str) -> int:
    from serving.__main__ import main

    return main(words, prog)


def _training(words: list[str], prog: str) -> int:
    from training.__main__ import main

    return main(words, prog)


def _export(words: list[str], prog: str) -> int:
    from export.__main__ import main

    return main(words[1:], f"{prog} {words[0]}")


def _bench(words: list[str], prog: str) -> int:
    from bench.__main__ import main

    return main(words[1:], f"{prog} {words[0]}")


GROUPS = (
    VerbGroup("serve", _serve, {"serve": "serve bundles over HTTP, with a page to try them"}),
    VerbGroup("serve", _pull, {"pull": "have a model in the cache, by its name on a hub"}),
    VerbGroup("serve", _models, {"models": "list the models in the cache, or remove some (rm)"}),
    VerbGroup(
        "serve",
        _doctor,
        {"doctor": "what this machine has for Macaron, a trial, and what to do about the rest"},
    ),
    VerbGroup(
        "serve",
        _serving,
        {
            "translate": "translate lines of text",
            "score": "log-probability of given translations",
            "generate": "continue lines of text with a language model",
            "embed": "vectors of lines of text, by an encoder",
            "classify": "classes of lines of text, by an encoder",
        },
    ),
    VerbGroup(
        "serve,documents",
        _serving,
        {"translate-file": "translate whole files, each into one of its kind"},
    ),
    VerbGroup(
        "bulk",
        _serving,
        {"bulk": "translate or score whole files, text, JSONL or Parquet, with Ray Data"},
    ),
    VerbGroup(
        "train",
        _training,
        {
            "train": "train a recipe, or resume it",
            "finetune": "fit a pre-trained encoder to labelled text",
            "tokenizer": "clean a recipe's text and make its vocabulary, no more",
            "data": "what a recipe would train on: pairs, shares, lengths, what was dropped",
            "evaluate": "BLEU and chrF, perplexity, or metrics of labels, of a checkpoint",
            "compare": "scores of several systems with a paired bootstrap",
            "average": "average the last or best checkpoints of a run",
            "prune": "a run with fewer layers out of a trained one",
            "report": "curves of runs as an HTML page and a picture",
            "pairs": "a table of texts that mean the same, to fit an embedder to",
            "scale": "depth and width of a joint model for a larger budget",
        },
    ),
    VerbGroup(
        "train,bulk",
        _training,
        {
            "distill": "a teacher's translations of parallel text, for a student",
            "backtranslate": "parallel text of text in one language",
        },
    ),
    VerbGroup(
        "train,serve",
        _training,
        {"vectors": "an embedder's vectors of texts, for another embedder to learn from"},
    ),
    VerbGroup(
        "export",
        _export,
        {"export": "bundle, engine, checkpoint, ...: make, check and take back bundles"},
    ),
    VerbGroup(
        "bench",
        _bench,
        {"bench": "engine, server, translate, ...: measure beside PyTorch and CTranslate2"},
    ),
)


def main(arguments: list[str] | None = None, prog: str = "macaron") -> int:
    """Run one verb; returns the exit status, 2 for an unknown verb."""
    words = sys.argv[1:] if arguments is None else arguments
    if not words or words[0] in ("-h", "--help"):
        print(_help(prog), file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    verb = words[0]
    group = next((group for group in GROUPS if verb in group.verbs), None)
    if group is None:
        print(f"{prog}: error: {_unknown(verb)}; see {prog} --help", file=sys.stderr)
        return 2
    try:
        return group.run(words, prog)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing in _OURS:
            raise
        print(
            f"{prog} {verb}: error: the Python package {missing!r} is not installed; install what "
            f"it needs with: {install_command(group.extra)}",
            file=sys.stderr,
        )
        return 1


def _unknown(verb: str) -> str:
    known = [name for group in GROUPS for name in group.verbs]
    near = difflib.get_close_matches(verb, known, n=1, cutoff=0.5)
    return f"no verb {verb!r}; " + (
        f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    )


def _help(prog: str) -> str:
    lines = [
        f"usage: {prog} VERB ...",
        "",
        "Train fast Transformer variants, export them to ONNX and serve them.",
    ]
    extra = None
    for group in GROUPS:
        if group.extra != extra:
            extra = group.extra
            lines += ["", f"with macaron[{extra}] ({install_command(extra)}):"]
        lines += [f"  {name:<10} {about}" for name, about in group.verbs.items()]
    return "\n".join([*lines, "", f"`{prog} VERB --help` shows the options."])


if __name__ == "__main__":
    sys.exit(main(prog=f"python -m {__package__}"))
