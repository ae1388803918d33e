"""The verbs of `python -m bench`, one module for each task; the measurements themselves are
elsewhere."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from bench.commands import decoding, documents, encoding, evaluation, gate, rivals, training

VERBS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "engine": decoding.engine,
    "server": decoding.server,
    "start": decoding.start,
    "store": decoding.store,
    "translation-memory": decoding.translation_memory,
    "translate": decoding.translate,
    "profile": decoding.profile,
    "quality": evaluation.quality,
    "bundles": evaluation.bundles,
    "verification": evaluation.verification,
    "terms": evaluation.terms,
    "dictionary": evaluation.dictionary,
    "estimation": evaluation.estimation,
    "similarity": evaluation.similarity,
    "perplexity": evaluation.perplexity,
    "language": decoding.language,
    "attention": training.attention,
    "training": training.training,
    "encoders": encoding.encoders,
    "encoder-server": encoding.encoder_server,
    "students": decoding.students,
    "language-rivals": rivals.language_rivals,
    "encoder-rivals": rivals.encoder_rivals,
    "student-rivals": rivals.student_rivals,
    "server-rivals": rivals.server_rivals,
    "detector-rivals": rivals.detector_rivals,
    "documents": decoding.documents,
    "batches": decoding.batches,
    "gate": gate.gate,
    "tables": documents.tables,
    "picture": documents.picture,
}
