"""Reads the tokenizer of an encoder, in each form that a folder may hold it."""

from __future__ import annotations

from pathlib import Path

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as FastTokenizer

from export.errors import ExportError
from export.importing.folder import read_optional
from export.importing.pointers import refuse_pointer
from export.importing.vocabularies.byte_pairs import check_merges
from export.importing.vocabularies.sentencepieces import read_unigram

TOKENIZER, VOCABULARY = "tokenizer.json", "vocab.txt"
BYTE_PAIRS, MERGES = "vocab.json", "merges.txt"
SENTENCE_PIECES = "sentencepiece.bpe.model"
TOKENIZER_SETTINGS = "tokenizer_config.json"
_OWN_SPECIAL = 3
"""First pieces of XLM-RoBERTa's SentencePiece model: `<unk>`, `<s>` and `</s>`."""
_OF_NORMALIZER = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
"""Settings of BERT's normalizer; they override `tokenizer.json`."""


def read_tokenizer(folder: Path) -> FastTokenizer:
    """The tokenizer of a folder, without truncation or padding; raises ExportError."""
    path = folder / TOKENIZER
    refuse_pointer(path)
    if path.exists():
        try:
            tokenizer = FastTokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing more special
            raise ExportError(f"{path}: not a tokenizer: {error}") from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        if isinstance(tokenizer.normalizer, normalizers.BertNormalizer):
            tokenizer.normalizer = _normalizer(folder, tokenizer.normalizer)
        return tokenizer
    if (folder / VOCABULARY).exists():
        return _word_pieces(folder)
    if (folder / MERGES).exists():
        return _byte_pairs(folder)
    if (folder / SENTENCE_PIECES).exists():
        return _sentence_pieces(folder / SENTENCE_PIECES)
    raise ExportError(
        f"{folder}: there is neither {TOKENIZER} nor {VOCABULARY} nor {MERGES} nor "
        f"{SENTENCE_PIECES}"
    )


def _byte_pairs(folder: Path) -> FastTokenizer:
    """RoBERTa's tokenizer, from byte pairs and their merges."""
    try:
        model = models.BPE.from_file(str(folder / BYTE_PAIRS), str(folder / MERGES))
    except Exception as error:  # the library raises nothing more special
        raise ExportError(f"{folder / MERGES}: not merges of byte pairs: {error}") from error
    tokenizer = FastTokenizer(model)
    space = bool(read_optional(folder / TOKENIZER_SETTINGS).get("add_prefix_space", False))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    tokenizer.decoder = decoders.ByteLevel()
    special = ("<s>", "</s>", "<pad>", "<unk>")
    ids = {piece: tokenizer.token_to_id(piece) for piece in special}
    first, last = ids["<s>"], ids["</s>"]
    if first is None or last is None:
        raise ExportError(f"{folder / BYTE_PAIRS}: there must be pieces '<s>' and '</s>'")
    tokenizer.add_special_tokens([piece for piece in special if ids[piece] is not None])
    if tokenizer.token_to_id("<mask>") is not None:
        tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    check_merges(folder / MERGES, tokenizer.to_str().encode())
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", last), ("<s>", first), add_prefix_space=space
    )
    return tokenizer


def _sentence_pieces(path: Path) -> FastTokenizer:
    """XLM-RoBERTa's tokenizer, from a SentencePiece model, with the ids of fairseq: four special
    pieces replace the model's three, and `<mask>` is last."""
    scores, rules = read_unigram(path)
    special = ("<s>", "<pad>", "</s>", "<unk>")
    pieces = [*((piece, 0.0) for piece in special), *scores[_OWN_SPECIAL:], ("<mask>", 0.0)]
    tokenizer = FastTokenizer(models.Unigram(pieces, unk_id=special.index("<unk>")))
    if rules:
        tokenizer.normalizer = normalizers.Precompiled(rules)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([*special])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[(piece, special.index(piece)) for piece in ("<s>", "</s>")],
    )
    return tokenizer


def _word_pieces(folder: Path) -> FastTokenizer:
    """BERT's tokenizer, from a list of pieces."""
    path = folder / VOCABULARY
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise ExportError(f"{path}: cannot be read: {error}") from error
    ids = {piece: number for number, piece in enumerate(lines)}
    if "[CLS]" not in ids and "<s>" in ids:
        return _mpnet(folder, ids)
    missing = [piece for piece in ("[UNK]", "[CLS]", "[SEP]") if piece not in ids]
    if missing:
        raise ExportError(f"{path}: there is no piece {missing[0]!r}")
    tokenizer = _words(folder, ids)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    tokenizer.add_special_tokens([piece for piece in special if piece in ids])
    return tokenizer


def _mpnet(folder: Path, ids: dict[str, int]) -> FastTokenizer:
    """MPNet's tokenizer, from a list of pieces, with RoBERTa's special ones."""
    special = ("<s>", "<pad>", "</s>", "[UNK]")
    missing = [piece for piece in special if piece not in ids]
    if missing:
        raise ExportError(f"{folder / VOCABULARY}: there is no piece {missing[0]!r}")
    tokenizer = _words(folder, ids)
    tokenizer.add_special_tokens([*special])
    if "<mask>" in ids:
        tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", ids["</s>"]), ("<s>", ids["<s>"]), add_prefix_space=False
    )
    return tokenizer


def _words(folder: Path, ids: dict[str, int]) -> FastTokenizer:
    """A WordPiece tokenizer without special pieces."""
    tokenizer = FastTokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = _normalizer(folder, normalizers.BertNormalizer())
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _normalizer(folder: Path, given: normalizers.BertNormalizer) -> normalizers.BertNormalizer:
    """BERT's normalizer with the tokenizer's settings; raises ExportError for an invalid
    setting."""
    settings = read_optional(folder / TOKENIZER_SETTINGS)
    for key, name in _OF_NORMALIZER.items():
        value = settings.get(key)
        if value is None:  # null counts as missing
            continue
        if not isinstance(value, bool):
            raise ExportError(
                f"{folder / TOKENIZER_SETTINGS}: {key} must be true or false, got {value!r}"
            )
        setattr(given, name, value)
    return given


def put_first(tokenizer: FastTokenizer, first: normalizers.Normalizer) -> None:
    """Apply a normalizer before the tokenizer's own."""
    own = tokenizer.normalizer
    tokenizer.normalizer = normalizers.Sequence([first, own] if own else [first])
