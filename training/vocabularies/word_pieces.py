"""Training and reading the word pieces of encoders, by the `tokenizers` library."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from training.errors import ConfigError
from training.runs.checkpoint import write_atomically

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL = (PAD, UNK, CLS, SEP, MASK)
"""The pieces of the first ids, in this order, to which no text is encoded."""
CLS_ID, SEP_ID, MASK_ID = map(SPECIAL.index, (CLS, SEP, MASK))

_MARK = "\u2581"
"""Mark that stands before each word while pieces are learnt."""
_MOST_LETTERS = 1000
"""Rarer ones are unknown."""


def train_word_pieces(
    texts: Iterable[str], path: Path, vocab_size: int, *, lowercase: bool
) -> None:
    """Write a tokenizer that cuts and joins as BERT's does (Devlin et al. 2019, section 3): the
    longest known pieces are taken from the left of each word. With `lowercase`, letters are small
    and without accents.

    Equal arguments give equal files. There are fewer than `vocab_size` pieces if the text yields
    fewer.
    """
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    found = _pieces(texts, normalizer, vocab_size)
    ids = {piece: id_ for id_, piece in enumerate(found[:vocab_size])}
    tokenizer = FastTokenizer(models.WordPiece(ids, unk_token=UNK))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{CLS}:0 $A:0 {SEP}:0",
        pair=f"{CLS}:0 $A:0 {SEP}:0 $B:1 {SEP}:1",
        special_tokens=[(CLS, CLS_ID), (SEP, SEP_ID)],
    )
    tokenizer.decoder = decoders.WordPiece()
    write_atomically(path, tokenizer.to_str(pretty=False).encode())


def _pieces(texts: Iterable[str], normalizer: normalizers.Normalizer, vocab_size: int) -> list[str]:
    """Special pieces, letters, and the pieces that byte-pair encoding joins from them, the most
    frequent first.

    The library's own trainer of word pieces also uses byte-pair encoding, but numbers letters
    within words in the order in which they come, which differs between processes. So words are
    marked instead.
    """
    words = pre_tokenizers.BertPreTokenizer()
    marked = pre_tokenizers.Metaspace(replacement=_MARK, prepend_scheme="always", split=False)
    tokenizer = FastTokenizer(models.BPE())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, marked])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size + _MOST_LETTERS, limit_alphabet=_MOST_LETTERS, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    vocabulary = tokenizer.get_vocab()
    joined = sorted(vocabulary, key=vocabulary.__getitem__)
    letters = [piece for piece in joined if len(piece) == 1 and piece != _MARK]
    # A mark is a word by itself.
    inner = [f"##{letter}" for letter in letters if len(words.pre_tokenize_str(f"a{letter}")) == 1]
    longer = [
        piece[1:] if piece.startswith(_MARK) else f"##{piece}" for piece in joined if len(piece) > 1
    ]
    return list(dict.fromkeys((*SPECIAL, *letters, *inner, *longer)))


def load_word_pieces(path: Path) -> FastTokenizer:
    """The tokenizer at `path`.

    Raises ConfigError if it cannot be read, or its special pieces have other ids.
    """
    try:
        tokenizer = FastTokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more special
        raise ConfigError(f"{path}: no usable tokenizer: {' '.join(str(error).split())}") from error
    found = [tokenizer.token_to_id(piece) for piece in SPECIAL]
    if found != list(range(len(SPECIAL))):
        raise ConfigError(f"{path}: {', '.join(SPECIAL)} must have the ids 0 to 4, got {found}")
    return tokenizer
