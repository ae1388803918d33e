"""M2M100 (Fan et al. 2021) and NLLB-200 (NLLB Team 2022) of Hugging Face `transformers`: many
languages in one model, chosen by tags."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from export.errors import ExportError
from export.importing.folder import CONFIG, Options, Weights, read_json
from export.importing.hugging_face.family import Family, Folder, VocabularyPart, read_folder
from export.importing.layers import State, drop_sinusoids, transformer_state
from export.importing.model import Imported, LanguageChoice, Pieces, find_file, read_sizes
from export.importing.vocabularies.languages import check_known, short_code
from export.importing.vocabularies.text_side import TOKENIZER
from serving.bundle.languages import Languages
from training.models import TransformerConfig
from training.models.sublayers.embedding import fairseq_sinusoid

_M2M100 = """af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd
gl gu ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms
my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi
wo xh yi yo zh zu"""
_LANGUAGES = {"m2m100": _M2M100.split(), "wmt21": ["en", "ha", "is", "ja", "cs", "ru", "zh", "de"]}
"""Languages in the order of their tags, which follow the pieces of `vocab.json`."""
_MOST_UNUSED = 8
"""Largest number of unused rows of the embedding."""
_SHORT_TAG = re.compile(r"__([a-z]{2,3})__")
"""The form of M2M100's language tags."""
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
MODEL = "sentencepiece.bpe.model"
_IDS = "vocab.json"


def read_m2m100(folder: Path, choice: LanguageChoice) -> Imported:
    """Read a folder of M2M100 or NLLB; raises ExportError, with file and entry, for unsupported
    ones."""
    kind = f"{'NLLB-200' if _is_nllb(folder) else 'M2M100'} of Hugging Face transformers"
    return read_folder(folder, choice, Family(kind, _read_config, _read_text, _read_state))


def _is_nllb(folder: Path) -> bool:
    """Whether the ids of the pieces are where NLLB has them, and not where M2M100 does."""
    return not (folder / _IDS).is_file() and (folder / TOKENIZER).is_file()


CONTROL = frozenset({"<s>", "<pad>", "</s>", "<mask>"})
"""Pieces, besides the tags, that no text has."""


def _read_config(options: Options) -> TransformerConfig:
    options.must_be(True, "tie_word_embeddings", "is_encoder_decoder", "normalize_before")
    options.must_be(True, "add_final_layer_norm", "static_position_embeddings")
    options.must_be(False, "normalize_embedding", "add_bias_logits")
    options.get("max_position_embeddings")  # sinusoids have no end
    options.get("forced_bos_token_id")  # the language of the request is forced
    sizes = read_sizes(options, activation="relu", scale_embedding=True)
    return replace(sizes, norm="pre", positions="fairseq")


def _read_text(folder: Folder, choice: LanguageChoice) -> VocabularyPart:
    size = folder.config.vocab_size
    pieces = _nllb_pieces if _is_nllb(folder.path) else _m2m100_pieces
    ids, tags = pieces(folder.path)
    written = _written(ids, size, folder.path)
    silent = CONTROL | set(tags.values())
    control = {i for piece, i in ids.items() if piece in silent}
    control |= set(range(size)) - set(ids.values())
    path = find_file(folder.path, MODEL, "the SentencePiece model")
    return VocabularyPart(
        Pieces(written, frozenset(control), path, path), ids["<unk>"], many_languages(tags, choice)
    )


def _read_state(weights: Weights, folder: Folder) -> State:
    dim = folder.config.model_dim
    drop_sinusoids(weights, "embed_positions.weights", fairseq_sinusoid, dim, before=2)
    return transformer_state(weights, folder.config)


def _m2m100_pieces(folder: Path) -> tuple[dict[str, int], dict[str, str]]:
    """The id of each piece, and the tag of each language."""
    what = f"the ids of the pieces of M2M100; NLLB has them in {TOKENIZER}"
    ids = dict(read_json(find_file(folder, _IDS, what)))
    path = folder / "tokenizer_config.json"
    tokenizer_config = read_json(path) if path.is_file() else {}
    codes = _LANGUAGES.get(str(tokenizer_config.get("language_codes") or "m2m100"))
    if codes is None:
        raise ExportError(
            f"{path}: language_codes {tokenizer_config['language_codes']!r} is not "
            f"supported; it must be one of {sorted(_LANGUAGES)}"
        )
    tags = {code: f"__{code}__" for code in codes}
    first = len(ids)
    ids |= {tag: first + number for number, tag in enumerate(tags.values())}
    return ids, tags


def _nllb_pieces(folder: Path) -> tuple[dict[str, int], dict[str, str]]:
    """The id of each piece, and the tag of each language."""
    path = find_file(folder, TOKENIZER, "the ids of the pieces")
    tree = read_json(path)
    try:
        ids = dict(tree["model"]["vocab"])
        added = {str(entry["content"]): int(entry["id"]) for entry in tree["added_tokens"]}
    except (KeyError, TypeError, ValueError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ExportError(
            f"{path}: model.vocab and added_tokens must give pieces their ids; {reason}"
        ) from error
    tokenizer_config = folder / "tokenizer_config.json"
    if tokenizer_config.is_file() and read_json(tokenizer_config).get("legacy_behaviour"):
        raise ExportError(
            f"{tokenizer_config}: legacy_behaviour true is not supported; the tag must "
            "stand before the source"
        )
    tags = [piece for piece in sorted(added, key=added.__getitem__) if _is_tag(piece)]
    return ids | added, _named(tags)


def _is_tag(piece: str) -> bool:
    """Whether a piece is the tag of a language, such as `fra_Latn`."""
    language, _, script = piece.partition("_")
    return len(language) == 3 and language.islower() and len(script) == 4 and script.istitle()


def tags_among(written: Sequence[str]) -> dict[str, str]:
    """The tags of languages among the pieces of a vocabulary of M2M100 or NLLB, by code; empty if
    it has none."""
    short = {found[1]: piece for piece in written if (found := _SHORT_TAG.fullmatch(piece))}
    return short or _named([piece for piece in written if _is_tag(piece)])


def _named(tags: Sequence[str]) -> dict[str, str]:
    """Tags by code: without the script if the language has only one."""
    names = {tag: (short_code(tag[:3]) or tag[:3]) for tag in tags}
    count = Counter(names.values())
    return {name if count[name] == 1 else f"{name}-{tag[4:]}": tag for tag, name in names.items()}


def _written(ids: Mapping[str, int], size: int, folder: Path) -> list[str]:
    """The written form of each row of the embedding; raises ExportError if pieces and rows do not
    match."""
    found = {i: piece for piece, i in ids.items() if type(i) is int}
    missing = [piece for piece in SPECIAL if piece not in ids]
    if missing or max(found, default=0) >= size or size - len(found) > _MOST_UNUSED:
        named = f"{missing[0]} is missing" if missing else f"{len(found)} pieces"
        raise ExportError(
            f"{folder}: the tokenizer does not fit the embedding of {size} rows that {CONFIG}'s "
            f"vocab_size says: {named}, ids up to {max(found, default=-1)}"
        )
    return [found.get(i, f"<unused{i}>") for i in range(size)]


def many_languages(tags: Mapping[str, str], choice: LanguageChoice) -> Languages:
    """The languages of a model with a tag for each, on both sides; raises ExportError for a chosen
    language that it does not have."""
    check_known("--from", choice.source, tags)
    check_known("--to", choice.target, tags)
    source, target = choice.source or tuple(tags), choice.target or tuple(tags)
    return Languages(
        source=source,
        target=target,
        source_tags={code: tags[code] for code in source},
        first_pieces={code: tags[code] for code in target},
    )
