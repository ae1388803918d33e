"""T5 of Hugging Face `transformers` (Raffel et al. 2020), its version 1.1, Flan-T5, mT5, ByT5 and
MADLAD-400: encoder-decoders that words, or a tag, tell what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer

from export.errors import ExportError
from export.importing.folder import CONFIG, Options, read_json, read_weights
from export.importing.hugging_face.t5_layers import read_config, t5_state
from export.importing.model import (
    HARMLESS,
    FastTokenizerFile,
    Imported,
    LanguageChoice,
    Pieces,
    find_file,
    generation_options,
    loaded,
    read_options,
    search_options,
    special_id,
)
from export.importing.vocabularies.byte_pairs import read_tokenizer_file
from export.importing.vocabularies.languages import check_known, short_code
from export.importing.vocabularies.sentencepieces import pieces_of, read_sentencepiece
from export.importing.vocabularies.text_side import TOKENIZER, fast_vocabulary
from serving.bundle.fast_vocabulary import BYTES
from serving.bundle.languages import Languages
from serving.search.ids import SpecialIds

MODEL = "spiece.model"
_BYTES_CLASS = "ByT5Tokenizer"
_MOST_UNUSED = 128
"""Largest number of rows of the embedding after the pieces: sentinels of the pre-training, and rows
that fill it up."""
_BEFORE_BYTES = ("<pad>", "</s>", "<unk>")
_SPACE = "\u2581"
_TAG = re.compile(_SPACE + r"?<2([a-z]{2,3}(_[A-Za-z0-9]+)*)>")
_SENTINEL = re.compile(_SPACE + r"?<extra_id_\d+>")
_TASK = re.compile(r"translation_([a-z]{2,3})_to_([a-z]{2,3})")
_HARMLESS = HARMLESS | {
    "dense_act_fn",  # as feed_forward_proj
    "dropout_rate",
    "initializer_factor",
    "is_gated_act",  # as feed_forward_proj
    "n_positions",  # distances have no end
}

Pair = tuple[str, str]


@dataclass(frozen=True)
class _Vocabulary:
    pieces: Pieces | FastTokenizerFile
    written: Sequence[str]
    special_ids: SpecialIds
    split: Callable[[str], list[str]]
    """A text to the written forms of its pieces, tags among them."""


def read_t5(folder: Path, choice: LanguageChoice) -> Imported:
    """Read a folder of T5 or mT5; raises ExportError, with file and entry, if something is not
    supported. The languages follow from tags, from the tasks of the configuration or from the
    choice; without any of these it reads and writes English."""
    options, generation = read_options(folder), generation_options(folder)
    weights = read_weights(folder)
    config, scales_output = read_config(options, weights)
    vocabulary = _read_vocabulary(folder, options, generation, config.vocab_size)
    languages = _languages(options, choice, vocabulary)
    options.get("bos_token_id")  # T5 has no bos
    search = search_options(options, generation)
    options.finish(_HARMLESS)
    return Imported(
        "T5 of Hugging Face transformers",
        loaded(config, t5_state(weights, config, scales_output=scales_output)),
        vocabulary.pieces,
        vocabulary.special_ids,
        languages,
        search,
    )


def _read_vocabulary(folder: Path, options: Options, generation: Options, size: int) -> _Vocabulary:
    path = folder / "tokenizer_config.json"
    named = read_json(path).get("tokenizer_class") if path.is_file() else None
    pad = special_id(options, "pad_token_id", size)
    start = generation.get("decoder_start_token_id", options.get("decoder_start_token_id", pad))
    if type(start) is not int or not 0 <= start < size:
        raise ExportError(
            f"{options.path}: decoder_start_token_id must be in [0, {size - 1}], got {start!r}"
        )
    special = SpecialIds(pad=pad, bos=start, eos=special_id(options, "eos_token_id", size))
    if _BYTES_CLASS in (named, options.get("tokenizer_class")):
        return _of_file(folder, _bytes_file(options, size), special, size)
    if not (folder / MODEL).is_file() and (folder / TOKENIZER).is_file():
        return _of_file(folder, read_tokenizer_file(folder / TOKENIZER), special, size)
    return _of_model(find_file(folder, MODEL, f"the pieces, or {TOKENIZER}"), special, size)


def _of_model(path: Path, special: SpecialIds, size: int) -> _Vocabulary:
    model = read_sentencepiece(path)
    own = pieces_of(model)
    if not 0 <= size - len(own) <= _MOST_UNUSED:
        raise ExportError(
            f"{path}: has {len(own)} pieces, but the embedding has {size} rows ({CONFIG}'s "
            f"vocab_size), of which at most {_MOST_UNUSED} may stand for none"
        )
    written = [*own, *(f"<unused{number}>" for number in range(len(own), size))]
    control = {special.pad, special.eos, *range(len(own), size)}
    control |= {i for i in range(len(own)) if model.is_control(i)}
    control |= {i for i, p in enumerate(own) if _TAG.fullmatch(p) or _SENTINEL.fullmatch(p)}

    def split(text: str) -> list[str]:
        return list(model.encode(text, return_type=str))

    special_ids = replace(special, unk=model.unk_id())
    return _Vocabulary(Pieces(written, frozenset(control), path, path), written, special_ids, split)


def _of_file(folder: Path, content: bytes, special: SpecialIds, size: int) -> _Vocabulary:
    unknown = FastTokenizer.from_str(content.decode()).token_to_id("<unk>")
    if unknown is None:
        raise ExportError(f"{folder / TOKENIZER}: the piece <unk> is missing")
    special_ids = replace(special, unk=unknown)
    vocabulary = fast_vocabulary(content, size, special_ids, folder)

    def split(text: str) -> list[str]:
        return vocabulary.pieces(vocabulary.encode_marked(text))

    written = vocabulary.pieces(list(range(size)))
    return _Vocabulary(FastTokenizerFile(content), written, special_ids, split)


def _bytes_file(options: Options, size: int) -> bytes:
    """ByT5's vocabulary: three special pieces, then each byte, then rows that no text has."""
    first = len(_BEFORE_BYTES)
    ids = {piece: i for i, piece in enumerate(_BEFORE_BYTES)}
    ids |= {character: first + byte for character, byte in BYTES.items()}
    if size < len(ids):
        raise ExportError(f"{options.path}: vocab_size must be >= {len(ids)} for bytes, got {size}")
    tokenizer = FastTokenizer(models.BPE(ids, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(piece) for piece in _BEFORE_BYTES])
    return str(tokenizer.to_str()).encode()


def _languages(options: Options, choice: LanguageChoice, vocabulary: _Vocabulary) -> Languages:
    found = {match[1]: match[0] for match in map(_TAG.fullmatch, vocabulary.written) if match}
    if found:
        tags = {short_code(code) or code.replace("_", "-"): tag for code, tag in found.items()}
        return _tagged(choice, tags, vocabulary)
    tasks = _tasks(options)
    pairs = _pairs(choice, tasks)
    source, target = (tuple(dict.fromkeys(pair[side] for pair in pairs)) for side in (0, 1))
    prefixes: dict[str, str] = {}
    for pair in pairs:
        prefix = tasks.get(pair, "")
        if prefixes.setdefault(pair[1], prefix) != prefix:
            raise ExportError(
                f"{options.path}: task_specific_params has another prefix into {pair[1]} for each "
                f"of {','.join(source)}; import one of them at a time with --from CODE"
            )
    if not any(prefixes.values()):
        return Languages(source=source, target=target)
    return Languages(
        source=source,
        target=target,
        pairs=pairs,
        prefixes={code: tuple(vocabulary.split(text)) for code, text in prefixes.items()},
    )


def _tagged(choice: LanguageChoice, tags: Mapping[str, str], vocabulary: _Vocabulary) -> Languages:
    """Languages of a model that reads the tag of the target before each source, in any of them."""
    check_known("--to", choice.target, tags)
    prefixes = {}
    for code in choice.target or tags:
        pieces = vocabulary.split(f"{tags[code].removeprefix(_SPACE)} a")
        if tags[code] not in pieces:
            raise ExportError(f"the vocabulary does not split off {tags[code]}, the tag of {code}")
        prefixes[code] = tuple(pieces[: pieces.index(tags[code]) + 1])
    return Languages(source=choice.source or tuple(tags), target=tuple(prefixes), prefixes=prefixes)


def _tasks(options: Options) -> dict[Pair, str]:
    """The text that goes before a source, by pair of languages; summarization counts as English to
    English."""
    tree = options.get("task_specific_params", {})
    if not isinstance(tree, dict) or not all(isinstance(each, dict) for each in tree.values()):
        raise ExportError(f"{options.path}: task_specific_params must hold an object for each task")
    found: dict[Pair, str] = {}
    for name, task in tree.items():
        match = _TASK.fullmatch(name)
        pair = (match[1], match[2]) if match else ("en", "en") if name == "summarization" else None
        if pair is not None:
            found[pair] = str(task.get("prefix") or "")
    return found


def _pairs(choice: LanguageChoice, tasks: Mapping[Pair, str]) -> tuple[Pair, ...]:
    """The pairs of languages: the chosen ones, else the translations among the tasks, else those of
    English alone."""
    fitting = [
        (source, target)
        for source, target in tasks
        if source in (choice.source or (source,)) and target in (choice.target or (target,))
    ]
    translations = tuple(pair for pair in fitting if pair[0] != pair[1])
    if not (choice.source and choice.target) and translations:
        return translations
    chosen = tuple(product(choice.source or ("en",), choice.target or ("en",)))
    return tuple(pair for pair in chosen if pair[0] != pair[1]) or chosen
