"""The files and fields around the weights in fairseq checkpoints, by their documented names."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from sacremoses import MosesTokenizer
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe
from torch import Tensor

from tests.toy.checkpoints import PAIRS, pieces_of, write_sentencepiece

PIECES = "sentencepiece.bpe.model"
SIZES = {"embed_dim": 32, "ffn_embed_dim": 48, "attention_heads": 4, "layers": 2}


def write_files(folder: Path) -> int:
    """Write a joint dictionary and its SentencePiece model; returns the number of ids."""
    folder.mkdir(parents=True)
    write_sentencepiece(folder / PIECES, [text for pair in PAIRS for text in pair], 100)
    pieces = [*pieces_of(folder / PIECES), "madeupword0000"]
    lines = "".join(f"{piece} {1000 - n}\n" for n, piece in enumerate(pieces))
    for code in ("de", "en"):
        (folder / f"dict.{code}.txt").write_text(lines, encoding="utf-8")
    return 4 + len(pieces)


def write_own_files(folder: Path) -> tuple[int, int]:
    """Write a dictionary and a SentencePiece model per language; returns their numbers of ids."""
    folder.mkdir(parents=True)
    sizes = []
    for side, (code, name) in enumerate((("de", "source.spm"), ("en", "target.spm"))):
        write_sentencepiece(folder / name, [pair[side] for pair in PAIRS], 90 - 10 * side)
        pieces = pieces_of(folder / name)
        lines = "".join(f"{piece} {1000 - n}\n" for n, piece in enumerate(pieces))
        (folder / f"dict.{code}.txt").write_text(lines, encoding="utf-8")
        sizes.append(4 + len(pieces))
    return sizes[0], sizes[1]


def write_bpe_files(folder: Path, *, fast: bool) -> list[list[str]]:
    """Write a joint dictionary and BPE codes over Moses tokens, in fastBPE's form with `fast`.
    Returns the pieces of each pair's source."""
    folder.mkdir(parents=True)
    texts = [text for pair in PAIRS for text in pair] + ["Wie geht's dem well-known Bäcker?"]
    lines = [MosesTokenizer("de").tokenize(text, True, return_str=True) for text in texts]
    codes = io.StringIO()
    learn_bpe(io.StringIO("\n".join(lines)), codes, 60)
    bpe = BPE(codes)
    merges = codes.getvalue().splitlines()[1:]
    (folder / "bpecodes").write_text(
        "".join(f"{merge} {900 - n}\n" for n, merge in enumerate(merges))
        if fast
        else codes.getvalue(),
        encoding="utf-8",
    )
    cut = [bpe.process_line(line).split() for line in lines]
    counts = Counter(piece for pieces in cut for piece in pieces)
    listed = "".join(f"{piece} {count}\n" for piece, count in counts.most_common())
    for code in ("de", "en"):
        (folder / f"dict.{code}.txt").write_text(listed, encoding="utf-8")
    return cut[::2][: len(PAIRS)]


def options(**changed: Any) -> dict[str, Any]:
    """The options of a pre-norm Transformer from German to English."""
    found = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in SIZES.items()}
    found |= {f"{side}_normalize_before": True for side in ("encoder", "decoder")}
    found |= {"share_all_embeddings": True, "source_lang": "de", "target_lang": "en"}
    return {**found, "lr": [5e-4], "arch": "transformer", **changed}


def save(folder: Path, model: dict[str, Tensor], **parts: Any) -> None:
    """Write the weights together with these parts."""
    torch.save(
        {"model": model, "extra_state": {"epoch": 3}, **parts}, folder / "checkpoint_best.pt"
    )
