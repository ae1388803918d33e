"""Encoders of other projects: reads a Hugging Face folder of a BERT or a related model into a model
of this project.

Such a folder holds `config.json`, `model.safetensors` or `pytorch_model.bin`, and `tokenizer.json`,
`vocab.txt`, `vocab.json` with `merges.txt` or `sentencepiece.bpe.model`. One from
sentence-transformers also has `modules.json` with the pooling, which may name a folder below that
holds all of these.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import normalizers

from export.bundles.encoder import ReadEncoder
from export.errors import ExportError
from export.importing.encoders.config import encoder_config, family_of, read_labels
from export.importing.encoders.modern_bert import classifier_pooling
from export.importing.encoders.sentences import (
    SENTENCES,
    most_tokens,
    read_pooling,
    read_prompts,
    transformer_folder,
)
from export.importing.encoders.tokenizer import put_first, read_tokenizer
from export.importing.encoders.weights import (
    EncoderWeights,
    check_sizes,
    load_classifier,
    load_encoder,
)
from export.importing.folder import CONFIG, Options, read_json, read_optional, read_weights
from training.models import (
    BidirectionalEncoder,
    SentenceEmbedder,
    TextClassifier,
    TextModel,
    find_block,
)
from training.models.networks.bert import Pooling


def read_encoder(folder: Path, pooling: Pooling | None = None) -> ReadEncoder:
    """Read a folder; a model with a classifier classifies, any other one embeds.

    `pooling`, `cls` or `mean`, is for embeddings of folders that do not name theirs. The model is
    for packed texts: RoBERTa's id 0 begins a text, and is not padding as it is elsewhere. Raises
    ExportError if something is missing or not supported.
    """
    root, folder = folder, transformer_folder(folder)
    tree = read_json(folder / CONFIG)
    config, family = encoder_config(tree, folder / CONFIG), family_of(tree, folder / CONFIG)
    weights = EncoderWeights(read_weights(folder), family)
    skipped = family.skipped_positions(Options(folder / CONFIG, tree))
    check_sizes(config, weights, family, skipped)
    encoder = BidirectionalEncoder(config, find_block(config.block))
    load_encoder(encoder, weights, family, skipped)
    tokenizer = read_tokenizer(folder)
    sentences = read_optional(folder / SENTENCES)
    if sentences.get("do_lower_case"):
        put_first(tokenizer, normalizers.Lowercase())
    if tokenizer.get_vocab_size() > config.vocab_size:
        raise ExportError(
            f"{folder}: the tokenizer has {tokenizer.get_vocab_size()} ids, the model "
            f"{config.vocab_size}; take both from one checkpoint"
        )
    length = min(config.max_positions, most_tokens(folder, sentences))
    model: TextModel
    if weights.has(f"{family.head_output}.weight"):
        labels = read_labels(tree, weights.rows(f"{family.head_output}.weight"), folder / CONFIG)
        model = TextClassifier(encoder, len(labels), classifier_pooling(tree, folder / CONFIG))
        load_classifier(model, weights, family)
        return ReadEncoder(model.eval(), tokenizer, length, labels)
    found, normalised = read_pooling(root)
    prompts, default_prompt = read_prompts(root)
    pooling = pooling or found
    if pooling is None:
        trained = tree.get("architectures")
        kind = f" ({trained[0]})" if isinstance(trained, list) and trained else ""
        raise ExportError(
            f"{folder}: neither a classifier nor a pooling is in it{kind}; say --pooling cls or "
            "mean to `python -m macaron export import`, for its vectors"
        )
    model = SentenceEmbedder(encoder, pooling, normalised=normalised)
    return ReadEncoder(model.eval(), tokenizer, length, (), prompts, default_prompt)
