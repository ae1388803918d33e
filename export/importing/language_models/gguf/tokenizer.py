"""The vocabulary in the header of a file of GGUF, as a file of the `tokenizers` library: merges of
bytes, or pieces of SentencePiece with scores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as FastTokenizer

from export.errors import ExportError
from export.importing.folder import Options
from serving.search.ids import SpecialIds

_ORDINARY, _CONTROL, _ADDED = 1, 3, 4
"""Types of tokens."""
_SPACE = "\u2581"
_MERGES, _PIECES = "gpt2", "llama"
"""The values of `tokenizer.ggml.model` for merges of bytes and for pieces of SentencePiece."""


def _words(digits: str) -> str:
    """The pattern of GPT-4 for parts of a text that no merge crosses; `digits` is the pattern of
    digits that stay together."""
    found = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"""
    found += digits + r"""| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
    return found


def _cased_words() -> str:
    """The same pattern for GPT-4o, whose words begin with capitals or have none."""
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    begin, end = r"[^\r\n\p{L}\p{N}]?", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    words = f"{begin}{upper}*{lower}+{end}|{begin}{upper}+{lower}*{end}"
    return words + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


_BYTES_BY_WORD = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False)
_BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)


@dataclass(frozen=True)
class _Splitter:
    """The splitting of a text into parts that no merge crosses."""

    parts: Sequence[Any]
    normalises: bool = False
    """Whether texts are brought into Unicode's form NFC."""
    ignores_merges: bool = False
    """Whether a word that is a piece is one, whatever its merges are."""
    begins: bool = False
    """Whether texts begin with bos, unless the file says otherwise."""


def _by(pattern: str) -> list[Any]:
    return [pre_tokenizers.Split(Regex(pattern), "isolated"), _BYTES]


_SPLITTERS = {
    "gpt-2": _Splitter([_BYTES_BY_WORD]),
    "olmo": _Splitter([_BYTES_BY_WORD], normalises=True),  # of GPT-NeoX
    "smollm": _Splitter([pre_tokenizers.Digits(individual_digits=True), _BYTES_BY_WORD]),
    "llama-bpe": _Splitter(_by(_words(r"\p{N}{1,3}")), ignores_merges=True, begins=True),
    "smaug-bpe": _Splitter(_by(_words(r"\p{N}{1,3}"))),
    "dbrx": _Splitter(_by(_words(r"\p{N}{1,3}"))),
    "qwen2": _Splitter(_by(_words(r"\p{N}")), normalises=True),
    "gpt-4o": _Splitter(_by(_cased_words())),
}
"""The splitters by llama.cpp's names for them."""


def read_gguf_tokenizer(
    header: Options, tokens: list[str], special_ids: SpecialIds, *, strips: bool
) -> bytes:
    """The vocabulary as a file of the `tokenizers` library. If it consists of pieces and `strips`
    is set, control tokens take the spaces after them, as in Phi-3. Raises ExportError if something
    is not supported."""
    kind = header.must("tokenizer.ggml.model", _MERGES, _PIECES)
    header.must("tokenizer.ggml.add_eos_token", False, default=False)
    if len(set(tokens)) < len(tokens):
        raise ExportError(f"{header.path}: tokenizer.ggml.tokens holds a token twice")
    types = header.get("tokenizer.ggml.token_type", [_ORDINARY] * len(tokens))
    if len(types) != len(tokens):
        raise ExportError(
            f"{header.path}: tokenizer.ggml.token_type must be of {len(tokens)} tokens, got "
            f"{len(types)}"
        )
    if kind == _MERGES:
        tokenizer, begins = _of_merges(header, tokens)
        normalized = False
    else:
        tokenizer, begins = _of_pieces(header, tokens, types, special_ids), True
        normalized = not _has_prefix(header)
    strips = strips and kind == _PIECES
    for number, (token, type_) in enumerate(zip(tokens, types, strict=True)):
        if type_ == _ADDED and number != special_ids.eos:
            tokenizer.add_tokens([AddedToken(token, normalized=normalized)])
        elif type_ in (_CONTROL, _ADDED) or number == special_ids.eos:
            stripped = strips and token not in _UNSTRIPPED
            control = AddedToken(token, normalized=False, special=True, rstrip=stripped)
            tokenizer.add_special_tokens([control])
    if header.get("tokenizer.ggml.add_bos_token", begins):
        first = tokens[special_ids.bos]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{json.dumps(first)[1:-1]} $A", special_tokens=[(first, special_ids.bos)]
        )
    return str(tokenizer.to_str()).encode()


_UNSTRIPPED = ("<unk>", "<s>", "<|endoftext|>")
"""Control tokens that do not take the spaces after them."""


def _of_merges(header: Options, tokens: list[str]) -> tuple[FastTokenizer, bool]:
    """A tokenizer of byte merges, and whether texts begin with bos by default."""
    kind = header.must("tokenizer.ggml.pre", *_SPLITTERS)
    splitter = _SPLITTERS[kind]
    pairs = [tuple(merge.split(" ")) for merge in header.need("tokenizer.ggml.merges", list)]
    ids = {token: number for number, token in enumerate(tokens)}
    try:
        model = models.BPE(vocab=ids, merges=pairs, ignore_merges=splitter.ignores_merges)
    except Exception as error:  # the library raises nothing more special
        reason = " ".join(str(error).split())
        raise ExportError(f"{header.path}: tokenizer.ggml.merges: {reason}") from error
    tokenizer = FastTokenizer(model)
    if splitter.normalises:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(list(splitter.parts))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, splitter.begins


def _of_pieces(
    header: Options, tokens: list[str], types: Sequence[int], special_ids: SpecialIds
) -> FastTokenizer:
    """A tokenizer of SentencePiece's pieces; pairs with the best scores are merged first."""
    scores = header.need("tokenizer.ggml.scores", list)
    if len(scores) != len(tokens):
        raise ExportError(
            f"{header.path}: tokenizer.ggml.scores must be of {len(tokens)} tokens, got "
            f"{len(scores)}"
        )
    missing = next((f"<0x{b:02X}>" for b in range(256) if f"<0x{b:02X}>" not in tokens), None)
    if missing is not None:
        raise ExportError(
            f"{header.path}: tokenizer.ggml.tokens must have pieces for all bytes, and {missing} "
            "is missing"
        )
    ordinary = {
        token: number
        for number, (token, type_) in enumerate(zip(tokens, types, strict=True))
        if type_ == _ORDINARY
    }
    found = []
    for token, number in ordinary.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ordinary and right in ordinary:
                found.append((-scores[number], number, ordinary[left], (left, right)))
    model = models.BPE(
        vocab={token: number for number, token in enumerate(tokens)},
        merges=[pair for *_, pair in sorted(found)],
        unk_token=tokens[special_ids.unk],
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = FastTokenizer(model)
    spaces = normalizers.Replace(" ", _SPACE)
    parts = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if _has_prefix(header):
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), spaces])
        parts.append(decoders.Strip(" ", 1, 0))
    else:
        tokenizer.normalizer = spaces
    tokenizer.decoder = decoders.Sequence(parts)
    return tokenizer


def _has_prefix(header: Options) -> bool:
    return bool(header.get("tokenizer.ggml.add_space_prefix", True))
