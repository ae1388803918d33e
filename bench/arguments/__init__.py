"""The command line of `python -m bench`: verbs and their options, in modules as `bench.commands`.

Nothing here loads what is measured, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse

from bench.arguments import decoding, documents, encoding, evaluation, gate, rivals, training


def make_parser(prog: str, description: str | None) -> argparse.ArgumentParser:
    """The parser of all verbs; `options.verb` is the chosen one."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    verbs = parser.add_subparsers(dest="verb", required=True)
    decoding.add_engine(verbs)
    decoding.add_server(verbs)
    decoding.add_translate(verbs)
    decoding.add_profile(verbs)
    evaluation.add_quality(verbs)
    evaluation.add_bundles(verbs)
    evaluation.add_verification(verbs)
    decoding.add_start(verbs)
    decoding.add_store(verbs)
    decoding.add_translation_memory(verbs)
    evaluation.add_terms(verbs)
    evaluation.add_dictionary(verbs)
    evaluation.add_estimation(verbs)
    evaluation.add_similarity(verbs)
    evaluation.add_perplexity(verbs)
    decoding.add_language(verbs)
    training.add_attention(verbs)
    training.add_training(verbs)
    encoding.add_encoders(verbs)
    encoding.add_encoder_server(verbs)
    decoding.add_students(verbs)
    rivals.add_language_rivals(verbs)
    rivals.add_encoder_rivals(verbs)
    rivals.add_student_rivals(verbs)
    rivals.add_server_rivals(verbs)
    rivals.add_detector_rivals(verbs)
    decoding.add_documents(verbs)
    decoding.add_batches(verbs)
    gate.add_gate(verbs)
    documents.add_tables(verbs)
    documents.add_picture(verbs)
    return parser
