"""Vocabularies of encoder-decoders in files of the `tokenizers` library, or in GPT-2's form of two
files, as one file that puts nothing around a text."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer

from export.errors import ExportError
from export.importing.folder import read_json
from export.importing.model import find_file
from export.importing.vocabularies.text_side import TOKENIZER

_MASK = "<mask>"
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")


def read_byte_pairs(folder: Path, size: int) -> bytes:
    """The vocabulary of a folder, in one file or in two, for an embedding of `size` rows; raises
    ExportError if there is none, or a special piece is missing."""
    path = merges = folder / TOKENIZER
    if path.is_file():
        content = read_tokenizer_file(path)
    else:
        path = find_file(folder, "vocab.json", f"the ids of the pieces, or {TOKENIZER}")
        merges = find_file(folder, "merges.txt", "the merges of the vocabulary")
        content = _joined(path, merges, folder / "tokenizer_config.json")
    check_merges(merges, content)
    content = _without_mask(content, size)
    tokenizer = FastTokenizer.from_str(content.decode())
    for piece in SPECIAL:
        if tokenizer.token_to_id(piece) is None:
            raise ExportError(f"{path}: the piece {piece} is missing")
    return content


def check_merges(path: Path, content: bytes) -> None:
    """Raise ExportError, which names `path`, if most pieces of several letters in a vocabulary of
    byte pairs are made by no merge: then texts would be cut into single letters."""
    tree = json.loads(content)
    if tree["model"].get("type") != "BPE":
        return
    added = {token["content"] for token in tree["added_tokens"]}
    wide = {piece for piece in tree["model"]["vocab"] if len(piece) > 1} - added
    merges = tree["model"]["merges"]
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in merges)
    made = wide & {"".join(pair) for pair in pairs}
    if 2 * len(made) < len(wide):
        raise ExportError(
            f"{path}: its {len(merges)} merges make {len(made)} of the {len(wide)} pieces of "
            "several letters; it is empty or cut off: take the file again from where the "
            "checkpoint comes from"
        )


def read_tokenizer_file(path: Path) -> bytes:
    """A file of the library, changed to put nothing around a text; raises ExportError if it is not
    such a file."""
    content = json.dumps(read_json(path) | {"post_processor": None}, ensure_ascii=False)
    try:
        FastTokenizer.from_str(content)
    except Exception as error:  # the library raises nothing more special
        raise ExportError(f"{path}: no usable tokenizer: {' '.join(str(error).split())}") from error
    return content.encode()


def _joined(vocabulary: Path, merges: Path, tokenizer_config: Path) -> bytes:
    """GPT-2's form of a vocabulary, in two files, as one."""
    spaced = tokenizer_config.is_file() and bool(
        read_json(tokenizer_config).get("add_prefix_space")
    )
    try:
        tokenizer = FastTokenizer(models.BPE.from_file(str(vocabulary), str(merges)))
    except Exception as error:  # the library raises nothing more special
        reason = " ".join(str(error).split())
        raise ExportError(f"{merges}: no usable merges for {vocabulary.name}: {reason}") from error
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)
    tokenizer.decoder = decoders.ByteLevel()
    known = [piece for piece in (*SPECIAL, _MASK) if tokenizer.token_to_id(piece) is not None]
    tokenizer.add_special_tokens([AddedToken(piece, lstrip=piece == _MASK) for piece in known])
    return str(tokenizer.to_str()).encode()


def _without_mask(content: bytes, size: int) -> bytes:
    """The vocabulary without the mask, if the embedding ends before it. This is the case in models
    whose training continued from one that had the mask."""
    tree = json.loads(content)
    added = [token for token in tree["added_tokens"] if token["content"] == _MASK]
    if not added or added[0]["id"] < size:
        return content
    tree["added_tokens"].remove(added[0])
    tree["model"]["vocab"].pop(_MASK, None)
    return json.dumps(tree, ensure_ascii=False).encode()
