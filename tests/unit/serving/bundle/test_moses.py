"""BPE of Moses' tokens, against what sacremoses and subword-nmt make of the same texts by
themselves."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacremoses import MosesDetokenizer, MosesTokenizer
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from serving.bundle.load_tokenizer import load_tokenizer
from serving.bundle.manifest import Manifest, ModelSizes, TokenizerFiles
from serving.bundle.moses import MosesRules, MosesVocabulary, read_rules
from serving.bundle.pieces import vocabulary_file
from serving.errors import BundleError
from serving.search.ids import SpecialIds
from serving.text.stream import TextStream

BUILT_IN = Path(__file__).resolve().parents[4] / "export" / "texts" / "sentences.json"
TEXTS: dict[str, list[str]] = {
    "en": [
        "Dr. Smith's well-known house - built in 1,900 or so... - isn't \"big\" (but it's nice).",
        "The Joneses' dog weighs 5.5 kg & costs $30 / month; that's 50 % more [sic].",
        "She said 'no', didn't she? a < b | c > d, e@mail.com.",
    ],
    "de": [
        "Das ist z.B. ein „gutes“ Haus & kostet 3,5 % mehr – wie geht's?",
        "Die E-Mail-Adresse (alt) fehlt; 30 EUR/Monat, d.h. Nr. 5!",
    ],
    "fr": [
        "L'homme n'a pas dit « bonjour » aujourd'hui : pourquoi ?",
        "C'est-à-dire qu'il s'en va ; il a 12,5 % d'avance !",
    ],
    "cs": ['Řekl: „Máš 30 let a 5 korun." V roce 1990.'],
    "fi": ["EU:n jäsenet ovat 27:ssä maassa; sanoi ”niin”."],
}
IDS = SpecialIds(pad=1, unk=3, bos=2, eos=2)
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def texts_of(language: str) -> list[str]:
    return [*json.loads(BUILT_IN.read_text(encoding="utf-8")).get(language, []), *TEXTS[language]]


def tokens(language: str, text: str, hyphens: bool = True, escape: bool = True) -> list[str]:
    found = MosesTokenizer(language).tokenize(text, aggressive_dash_splits=hyphens, escape=escape)
    return list(found)


def learnt(lines: list[str], merges: int = 400) -> str:
    codes = io.StringIO()
    learn_bpe(io.StringIO("\n".join(lines)), codes, merges, min_frequency=1)
    return codes.getvalue()


class Side:
    """A vocabulary of one language, and what the libraries make of its texts."""

    def __init__(
        self, language: str, *, hyphens: bool = True, escape: bool = True, lowercase: bool = False
    ) -> None:
        self.language, self.hyphens, self.escape = language, hyphens, escape
        self.texts = texts_of(language)
        lines = [
            " ".join(tokens(language, text.lower() if lowercase else text, hyphens, escape))
            for text in self.texts
        ]
        self.codes = learnt(lines)
        self.bpe = BPE(io.StringIO(self.codes))
        self.cut = [self.bpe.process_line(line).split() for line in lines]
        self.written = [*SPECIAL, *dict.fromkeys(piece for cut in self.cut for piece in cut)]
        self.rules = MosesRules(language, escape, hyphens, lowercase, self.codes)
        self.vocabulary = vocabulary_file(self.written, {0, 1, 2})
        self.found = MosesVocabulary(self.rules.to_bytes(), self.vocabulary, IDS)


@pytest.mark.parametrize("hyphens", [True, False])
@pytest.mark.parametrize("language", ["en", "de", "fr", "fi"])
def test_pieces_and_texts_are_those_of_the_libraries(language: str, hyphens: bool) -> None:
    side = Side(language, hyphens=hyphens)
    detokenizer = MosesDetokenizer(language)
    for text, cut in zip(side.texts, side.cut, strict=True):
        ids = side.found.encode(text)
        assert side.found.pieces(ids) == cut
        joined = (" ".join(cut) + " ").replace("@@ ", "")
        assert side.found.decode([0, *ids, 2]) == detokenizer.detokenize(joined.split())
        assert side.found.segmentations(text) == [ids]
    assert side.found.encode_batch(side.texts) == [side.found.encode(t) for t in side.texts]


def test_most_texts_come_back_as_they_were() -> None:
    """But for spaces that the rules do not know of."""
    for language in TEXTS:
        found = Side(language).found
        for text in texts_of(language):
            again = found.decode(found.encode(text))
            assert again.replace(" ", "") == text.replace(" ", "")
    english = Side("en")
    kept = [t for t in english.texts if english.found.decode(english.found.encode(t)) == t]
    assert len(kept) >= len(english.texts) - len(TEXTS["en"])


@pytest.mark.parametrize("language", TEXTS)
def test_spans_say_where_each_piece_is(language: str) -> None:
    side = Side(language)
    unescape = MosesDetokenizer(language).unescape_xml
    for text in [*side.texts, f" \t{side.texts[0]}\x01  {side.texts[0]}"]:
        ids = side.found.encode(text)
        spans = side.found.spans(text)
        assert len(spans) == len(ids)
        shown = side.found.decode(ids)
        for spelled, where in ((text, spans), (shown, side.found.decoded_spans(ids))):
            covered = {place for begin, end in where for place in range(begin, end)}
            assert {p for p, c in enumerate(spelled) if not c.isspace() and c >= " "} == covered
            assert where == sorted(where)
            for piece, (begin, end) in zip(side.found.pieces(ids), where, strict=True):
                part = "-" if piece == "@-@" else unescape(piece.removesuffix("@@"))
                assert spelled[begin:end].replace("\x01", "") == part
    first = side.found.decoded_spans(ids[:2])
    assert side.found.decoded_spans([2, *ids[:2], 2]) == [(0, 0), *first, (first[-1][1],) * 2]


SIGNS = ["&quot;", "&apos;", "'", "&apos;s", "l&apos;", "@-@", "-@@", "%", ".", "...", "(", ")"]
PARTS = ["hou@@", "se", "the", "5", "30", ":", "n", "&am@@", "p;", "„", "“", "$", "中", "li", "?"]
SOUP = [*SPECIAL, *SIGNS, *PARTS]


@pytest.fixture(scope="module")
def of_soup() -> dict[str, MosesVocabulary]:
    """Vocabularies of pieces by whose order the rules place spaces."""
    written = vocabulary_file(SOUP, {0, 1, 2})
    codes = "#version: 0.2\na b\n"
    return {
        language: MosesVocabulary(
            MosesRules(language, True, True, False, codes).to_bytes(), written, IDS
        )
        for language in ("en", "de", "fr", "it", "cs", "fi", "zh", "ko")
    }


@given(
    st.sampled_from(["en", "de", "fr", "it", "cs", "fi", "zh", "ko"]),
    st.lists(st.integers(0, len(SOUP) - 1), max_size=90),
)
def test_a_stream_never_takes_back(
    of_soup: dict[str, MosesVocabulary], language: str, ids: list[int]
) -> None:
    found = of_soup[language]
    stream, told = TextStream(found, ()), ""
    whole = found.decode(ids)
    for token_id in ids:
        told += stream.push(token_id)
        assert whole.startswith(told)
    ends = [n for n, i in enumerate(ids) if i > 2 and not found.is_open(i)]
    assert told == (found.decode(ids[: ends[-1] + 1]) if ends else "")
    spans = found.decoded_spans(ids)
    assert len(spans) == len(ids)
    assert all(0 <= begin <= end <= len(whole) for begin, end in spans)


@given(text=st.text(max_size=40))
def test_any_text_has_ids_and_spans(of_soup: dict[str, MosesVocabulary], text: str) -> None:
    found = of_soup["en"]
    spans = found.spans(text)
    assert len(spans) == len(found.encode(text))
    assert all(0 <= begin <= end <= len(text) for begin, end in spans)
    assert not {0, 1, 2}.intersection(found.encode(text))


def test_capitals_and_what_is_not_in_the_vocabulary() -> None:
    side = Side("de", lowercase=True)
    text = side.texts[-1]
    assert side.found.encode(text.upper().replace("ß", "ß")) == side.found.encode(text)
    assert side.found.encode("☃") == [side.found.unk_id]
    assert side.found.encode("</s> <pad>").count(2) == 0
    assert side.found.control_id("</s>") == 2
    assert side.found.control_id("</s") is None
    assert not side.found.is_byte(5)


def write_bundle_files(folder: Path, rules: bytes, vocabulary: bytes, size: int) -> Manifest:
    (folder / "source.moses.json").write_bytes(rules)
    (folder / "vocabulary.json").write_bytes(vocabulary)
    files = TokenizerFiles(
        kind="moses",
        source_file="source.moses.json",
        target_file="source.moses.json",
        vocabulary_file="vocabulary.json",
    )
    sizes = ModelSizes(
        model_dim=4,
        num_heads=1,
        num_encoder_layers=1,
        num_decoder_layers=1,
        vocab_size=size,
        num_parameters=1,
    )
    return Manifest.model_construct(tokenizer=files, sizes=sizes, task="translate", special_ids=IDS)


def test_a_bundle_names_its_rules_and_the_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = Side("en")
    manifest = write_bundle_files(
        tmp_path, side.rules.to_bytes(), side.vocabulary, len(side.written)
    )
    found = load_tokenizer(tmp_path, "source.moses.json", manifest)
    assert found.encode(side.texts[0]) == side.found.encode(side.texts[0])
    assert found.serialized() == side.rules.to_bytes()
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    monkeypatch.delitem(sys.modules, "serving.bundle.moses")
    with pytest.raises(BundleError, match=r"pip install '.*\[moses\]'"):
        load_tokenizer(tmp_path, "source.moses.json", manifest)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"codes": "a b\n"}, r"codes must begin with '#version: 0\.1' or 0\.2, got 'a b'"),
        ({"codes": "#version: 0.2\na b\na b c\n"}, "line 3 of codes must be two pieces"),
        ({"escape": "yes"}, "escape must be a bool, got 'yes'"),
        ({"language": None}, "language must be a str, got None"),
        ({"more": 1}, "must be a JSON object of language, escape"),
    ],
)
def test_rules_that_are_none_are_one_error(change: dict[str, Any], message: str) -> None:
    rules = json.loads(MosesRules("de", True, True, False, "#version: 0.2\na b\n").to_bytes())
    with pytest.raises(ValueError, match=message):
        read_rules(json.dumps({**rules, **change}).encode())
