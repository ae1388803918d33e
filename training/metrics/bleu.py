"""BLEU, chrF and TER of translations, with the signatures that make figures comparable."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

PAPER_BLEU = {
    "multi_bleu": "BLEU as multi-bleu.perl computes it: of tokens, unsmoothed",
    "multi_bleu_lc": "the same in small letters (multi-bleu.perl -lc)",
    "compound_split": "the same with hyphenated words as three tokens (get_ende_bleu.sh)",
}
"""Variants of BLEU in published tables, beside sacreBLEU's."""
_HYPHEN = re.compile(r"(\S)-(?=\S)")


@dataclass(frozen=True)
class CorpusScores:
    """Corpus scores of translations against one reference each."""

    bleu: float
    """sacreBLEU with the 13a tokenizer, cased, on detokenised text (Post 2018), 0 to 100."""
    bleu_signature: str
    chrf: float
    """chrF2 (Popović 2015), 0 to 100."""
    chrf_signature: str
    length_ratio: float
    """Number of tokens (13a) of the translations divided by that of the references."""


@dataclass(frozen=True)
class EditRate:
    """TER of translations against one reference each; slower than the other scores."""

    ter: float
    """Edits per 100 reference words, shifts included; lower is better (Snover et al. 2006). Case
    and punctuation follow sacreBLEU's defaults."""
    ter_signature: str


def measure_edit_rate(translations: list[str], references: list[str]) -> EditRate:
    """Score detokenised translations against references in the same order."""
    metric = TER()
    score = metric.corpus_score(translations, [references])
    return EditRate(ter=score.score, ter_signature=str(metric.get_signature()))


def measure_quality(translations: list[str], references: list[str]) -> CorpusScores:
    """Score detokenised translations against references in the same order."""
    bleu, chrf = BLEU(), CHRF()
    score = bleu.corpus_score(translations, [references])
    return CorpusScores(
        bleu=score.score,
        bleu_signature=str(bleu.get_signature()),
        chrf=chrf.corpus_score(translations, [references]).score,
        chrf_signature=str(chrf.get_signature()),
        length_ratio=score.sys_len / max(1, score.ref_len),
    )


def measure_paper_bleu(
    names: Collection[str], translations: list[str], references: list[str], *, tokenized: bool
) -> dict[str, float | str]:
    """The named figures of `PAPER_BLEU`, each with its signature.

    Tokens follow mteval-v13a, which differs a little from the Moses tokenizer of the papers;
    `tokenized` texts are split at spaces.
    """
    values: dict[str, float | str] = {}
    tokenize = Tokenizer13a()
    if not tokenized:
        translations, references = ([*map(tokenize, text)] for text in (translations, references))
    for name in names:
        sides = [translations, references]
        if name == "compound_split":
            sides = [[_HYPHEN.sub(r"\1 ##AT##-##AT## ", line) for line in side] for side in sides]
        metric = BLEU(
            tokenize="none", lowercase=name == "multi_bleu_lc", smooth_method="none", force=True
        )
        values[name] = metric.corpus_score(sides[0], [sides[1]]).score
        tokens = "own" if tokenized else "13a"
        values[f"{name}_signature"] = f"{metric.get_signature()}|tokens:{tokens}"
    return values
