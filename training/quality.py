"""BLEU and chrF of translations, with the signatures that make the figures comparable."""

from __future__ import annotations

from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF


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
