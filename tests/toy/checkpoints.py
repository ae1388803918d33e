"""Small checkpoints of `transformers` with random weights, laid out as OPUS-MT, M2M100, NLLB and
others are published."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tests.toy.corpus import toy_pairs

PAIRS = toy_pairs(300, seed=4)
SIZES = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "scale_embedding": True,
    "max_position_embeddings": 64,
}


def write_sentencepiece(path: Path, texts: Sequence[str], size: int, kind: str = "unigram") -> None:
    """Write a SentencePiece model with the default special ids and without byte pieces."""
    buffer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=buffer,
        vocab_size=size,
        model_type=kind,
        minloglevel=2,
    )
    path.write_bytes(buffer.getvalue())


def pieces_of(path: Path) -> list[str]:
    """The pieces of a SentencePiece model, without special ones."""
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [model.id_to_piece(i) for i in range(3, model.vocab_size())]


def randomise(model: torch.nn.Module, seed: int = 7, matrices: float = 0.5) -> None:
    """Add noise to every parameter. Fresh models have zero biases, which hide mistakes, and
    matrices so small that all sources give one output."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed" not in name and "shared" not in name:
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.add_(noise * (matrices if parameter.dim() == 2 else 0.1))


def write_opus(folder: Path, tags: Sequence[str] = (), **changed: Any) -> Any:
    """Write a MarianMT with two layers per side and separate SentencePiece models over one
    vocabulary. Returns the model. `changed` are options of its configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    for side, name in enumerate(("source.spm", "target.spm")):
        write_sentencepiece(folder / name, [pair[side] for pair in PAIRS], 80 + 5 * side)
    shared = dict.fromkeys(
        piece for name in ("source.spm", "target.spm") for piece in pieces_of(folder / name)
    )
    written = ["</s>", "<unk>", *shared, *(f">>{tag}<<" for tag in tags), "<pad>"]
    _write_ids(folder / "vocab.json", written)
    (folder / "tokenizer_config.json").write_text('{"source_lang": "deu", "target_lang": "en"}')
    return _write_marian(folder, len(written), len(written) - 1, 2.0, **changed)


def write_opus_apart(
    folder: Path, sizes: tuple[int, int], tags: Sequence[str] = (), **changed: Any
) -> Any:
    """The same with separate vocabularies and embeddings, whose SentencePiece models have these
    sizes. Padding is last if both have the same number of pieces, as in published models, otherwise
    third."""
    folder.mkdir(parents=True, exist_ok=True)
    both = []
    for side, (name, size) in enumerate(zip(("source", "target"), sizes, strict=True)):
        write_sentencepiece(folder / f"{name}.spm", [pair[side] for pair in PAIRS], size)
        both.append(["</s>", "<unk>", *pieces_of(folder / f"{name}.spm")])
    both[0] += [f">>{tag}<<" for tag in tags]
    pad = len(both[0]) if len(both[0]) == len(both[1]) else 2
    for written, name in zip(both, ("vocab.json", "target_vocab.json"), strict=True):
        written.insert(pad, "<pad>")
        _write_ids(folder / name, written)
    told = {"source_lang": "deu", "target_lang": "en", "separate_vocabs": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    own = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": len(both[1])}
    return _write_marian(folder, len(both[0]), pad, 1.0, **own, **changed)


def _write_ids(path: Path, written: Sequence[str]) -> None:
    ids = {piece: i for i, piece in enumerate(written)}
    path.write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")


def _write_marian(folder: Path, size: int, pad: int, end: float, **changed: Any) -> Any:
    """Write a MarianMT with random weights. `size` is that of the first embedding, `end` the bias
    of eos."""
    from transformers import MarianConfig, MarianMTModel

    (folder / "README.md").write_text("---\nlicense: cc-by-4.0\n---\n# A toy\n")
    options = {
        **SIZES,
        "vocab_size": size,
        "activation_function": "swish",
        "pad_token_id": pad,
        "decoder_start_token_id": pad,
        "bad_words_ids": [[pad]],
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
        "normalize_before": False,
        "static_position_embeddings": True,
        **changed,
    }
    torch.manual_seed(5)
    model = MarianMTModel(MarianConfig(**options)).eval()
    randomise(model)
    with torch.no_grad():
        model.final_logits_bias.normal_(0.0, 0.5)
        model.final_logits_bias[0, 0] = end  # some outputs end
        sides = (model.model.encoder, model.model.decoder)
        for vectors in dict.fromkeys(side.embed_tokens.weight for side in sides):
            vectors.normal_(0.0, 0.1)
            vectors[pad] = 0.0
    _save(model, folder)
    return model


def write_m2m100(folder: Path, **changed: Any) -> Any:
    """Write an M2M100 with two layers per side and all its languages; returns the model."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces = _write_bpe(folder)
    written = ["<s>", "<pad>", "</s>", "<unk>", *pieces]
    ids = {piece: i for i, piece in enumerate(written)}
    (folder / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
    return _write_many(folder, len(written) + 100 + 8, **changed)


def write_nllb(folder: Path, tags: Sequence[str], **changed: Any) -> Any:
    """The same as NLLB, with the ids in `tokenizer.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    written = [*special, *_write_bpe(folder)]
    added = [*special, *tags, "<mask>"]
    ids = {piece: i for i, piece in enumerate([*written, *tags, "<mask>"])}
    tree = {
        "added_tokens": [{"id": ids[piece], "content": piece} for piece in added],
        "model": {"type": "BPE", "vocab": {piece: ids[piece] for piece in written}},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tree, ensure_ascii=False), encoding="utf-8")
    return _write_many(folder, len(ids) + 2, **changed)


def write_mbart50(folder: Path, **changed: Any) -> Any:
    """Write an mBART-50 with two layers per side and all its languages; returns the model."""
    from transformers import MBartConfig, MBartForConditionalGeneration

    folder.mkdir(parents=True, exist_ok=True)
    size = 4 + len(_write_bpe(folder)) + 52 + 1
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "MBart50Tokenizer"}')
    torch.manual_seed(8)
    options = {**SIZES, "vocab_size": size, "max_position_embeddings": 514, **changed}
    options |= {"decoder_start_token_id": 2, "activation_function": "gelu"}
    model = MBartForConditionalGeneration(MBartConfig(**options)).eval()
    _randomise_learnt(model)
    _save(model, folder)
    return model


def write_pegasus(folder: Path, **changed: Any) -> Any:
    """Write a Pegasus with two layers per side; returns the model."""
    from transformers import PegasusConfig, PegasusForConditionalGeneration

    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text for pair in PAIRS for text in pair]),
        model_writer=buffer,
        vocab_size=130,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
    )
    (folder / "spiece.model").write_bytes(buffer.getvalue())
    torch.manual_seed(9)
    options = {**SIZES, "vocab_size": 130 + 103, "activation_function": "relu", **changed}
    model = PegasusForConditionalGeneration(PegasusConfig(**options)).eval()
    randomise(model)
    with torch.no_grad():
        model.final_logits_bias.normal_(0.0, 0.5)
        model.model.shared.weight.normal_(0.0, 0.1)
    _save(model, folder)
    return model


def write_bart(
    folder: Path, *, in_one_file: bool = False, forces_first: bool = True, **changed: Any
) -> Any:
    """Write a BART with two layers per side. Its vocabulary is in one file or two, and its outputs
    may be forced to begin with <s>. Returns the model."""
    from transformers import BartConfig, BartForConditionalGeneration, BartTokenizer

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(
        [text for pair in PAIRS for text in pair],
        trainers.BpeTrainer(
            vocab_size=330,
            special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    vocabulary = tokenizer.get_vocab() | {"<mask>": tokenizer.get_vocab_size()}
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    if in_one_file:
        BartTokenizer(vocab=vocabulary, merges=[tuple(pair) for pair in merges]).save_pretrained(
            folder
        )
    else:
        (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), "utf-8")
        lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
        (folder / "merges.txt").write_text("\n".join(lines) + "\n", "utf-8")
    torch.manual_seed(10)
    options = {**SIZES, "vocab_size": len(vocabulary), "max_position_embeddings": 514, **changed}
    model = BartForConditionalGeneration(BartConfig(**options)).eval()
    model.generation_config.forced_bos_token_id = 0 if forces_first else None
    _randomise_learnt(model, matrices=0.25)
    torch.manual_seed(3)
    with torch.no_grad():
        model.model.shared.weight.normal_(0.0, 0.15)
        model.final_logits_bias[0, 2] = 1.5  # some outputs end
    _save(model, folder)
    return model


def write_t5(
    folder: Path, *, kind: str = "T5", tied: bool = True, tags: Sequence[str] = (), **changed: Any
) -> Any:
    """Write a T5 (or MT5) with two layers per side, heads wider than the model, and unused rows
    after its pieces. With `tags`, those are pieces too. The weights do not depend on the pieces.
    Returns the model."""
    import transformers
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([f"{a} : {b}" for a, b in PAIRS] + ["translate to English German"]),
        model_writer=buffer,
        vocab_size=150,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        user_defined_symbols=list(tags),
        minloglevel=2,
    )
    (folder / "spiece.model").write_bytes(buffer.getvalue())
    sizes = {"d_model": 32, "d_kv": 12, "num_heads": 4, "d_ff": 48, "num_layers": 2}
    options = {"vocab_size": 262, "decoder_start_token_id": 0, **sizes, **changed}
    torch.manual_seed(12)
    config = getattr(transformers, f"{kind}Config")(**options, tie_word_embeddings=tied)
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(config).eval()
    if not tied:
        model.lm_head.weight = torch.nn.Parameter(torch.empty(config.vocab_size, 32))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(torch.randn(parameter.shape) * 0.1)
            else:
                # What is tied is scaled by 32^-0.5, and queries are not scaled by 12^-0.5.
                wide = 1.0 if "relative" in name else 0.5 if "shared" in name else 0.2
                parameter.normal_(0.0, 0.08 if ".q." in name else wide)
    state = model.state_dict()
    for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"):
        state.pop(name, None)
    if tied:
        state.pop("lm_head.weight")
    save_file(
        {name: tensor.clone() for name, tensor in state.items()}, folder / "model.safetensors"
    )
    tree = json.loads(config.to_json_string()) | {"tie_word_embeddings": tied}
    tree.pop("scale_decoder_outputs", None)  # which files of before have not
    (folder / "config.json").write_text(json.dumps(tree))
    return model


def _randomise_learnt(model: Any, matrices: float = 0.5) -> None:
    randomise(model, matrices=matrices)
    with torch.no_grad():
        model.final_logits_bias.normal_(0.0, 0.5)
        model.model.shared.weight.normal_(0.0, 0.1)
        for side in (model.model.encoder, model.model.decoder):
            side.embed_positions.weight.normal_(0.0, 0.3)
            side.layernorm_embedding.weight.normal_(1.0, 0.2)
            side.layernorm_embedding.bias.normal_(0.0, 0.2)


def _write_bpe(folder: Path) -> list[str]:
    path = folder / "sentencepiece.bpe.model"
    write_sentencepiece(path, [text for pair in PAIRS for text in pair], 150, "bpe")
    return pieces_of(path)


def _write_many(folder: Path, vocab_size: int, **changed: Any) -> Any:
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    torch.manual_seed(6)
    options = {**SIZES, "vocab_size": vocab_size, **changed}
    model = M2M100ForConditionalGeneration(M2M100Config(**options)).eval()
    randomise(model)
    with torch.no_grad():
        model.model.shared.weight.normal_(0.0, 0.1)
        model.model.shared.weight[1] = 0.0
    _save(model, folder)
    return model


def _save(model: Any, folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder)
