"""BLEU, chrF and TER of translations, with the signatures that make the figures comparable."""

from __future__ import annotations

from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER


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
    """Tokens (13a) of the translations over those of the references."""


@dataclass(frozen=True)
class EditRate:
    """Corpus score of translations against one reference each; it takes longer than the others."""

    ter: float
    """Edits for each 100 words of the reference, shifts included, less is better (Snover et al.
    2006); case and punctuation as sacreBLEU's defaults treat them."""
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
