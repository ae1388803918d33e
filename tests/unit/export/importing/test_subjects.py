"""What foreign checkpoints become as subjects, and what a user may tell of each kind of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from export.bundles.encoder import COMPARED, FITTED, ReadEncoder
from export.bundles.subject import Form
from export.errors import ExportError
from export.importing.language_models.model import TEMPLATE, ImportedLanguageModel
from export.importing.model import Declared, FastTokenizerFile, Imported, LanguageChoice
from export.importing.subjects import (
    ENCODER,
    LANGUAGE_MODEL,
    TRANSLATION,
    Kind,
    Source,
    licence_of_card,
)
from export.importing.vocabularies.text_side import TOKENIZER
from export.texts.texts import PASSAGE, SENTENCES, TextPair, Texts
from serving.bundle.languages import Languages
from serving.bundle.shortlist import Shortlist
from serving.search.ids import SpecialIds
from tests.unit.training.tiny import TINY, randomised
from tests.unit.training.tiny_encoder import tiny_embedder
from tests.unit.training.tiny_language import tiny_lm
from training.vocabularies.word_pieces import load_word_pieces, train_word_pieces

IDS = SpecialIds(pad=0, unk=3, bos=1, eos=2)
TAGS = [">>de<<", ">>en<<", ">>fr<<"]
WORDS = ["<pad>", "<s>", "</s>", "<unk>", *TAGS, "haus", "alt", "translate", "to", "German"]
PAIR = TextPair("news", Path("news.de"), Path("news.en"))
FP32 = Form("fp32")


def tokenizer_file(words: Iterable[str] = WORDS) -> bytes:
    """Knows some words, and cuts texts at spaces."""
    ids = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(ids, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.Fuse()
    return str(tokenizer.to_str()).encode()


def source(path: Path, **changed: Any) -> Source:
    fields: dict[str, Any] = {"form": FP32, "texts": Texts(), "declared": Declared()} | changed
    return Source(path, **fields)


def imported(languages: Languages, **changed: Any) -> Imported:
    fields: dict[str, Any] = {
        "kind": "a model of nobody's",
        "model": randomised(TINY),
        "pieces": FastTokenizerFile(tokenizer_file()),
        "special_ids": IDS,
        "languages": languages,
    }
    return Imported(**fields | changed)


ONE = Languages(source=("de",), target=("en",))
TAGGED = Languages(
    source=("de", "en"),
    target=("de", "en", "fr"),
    tags=dict(zip(("de", "en", "fr"), TAGS, strict=True)),
)
GIVEN = {
    "--dev": {"texts": Texts(dev=PAIR)},
    "--test": {"texts": Texts(tests=(PAIR,))},
    "--from": {"declared": Declared(languages=LanguageChoice(source=("de",)))},
    "--to": {"declared": Declared(languages=LanguageChoice(target=("de",)))},
    "--licence": {"declared": Declared(licence="MIT")},
    "--task": {"texts": Texts(task=Path("pairs.tsv"))},
    "--pooling": {"declared": Declared(pooling="mean")},
    "--attribution": {"declared": Declared(attribution="By somebody")},
}
"""Each option alone, as it stands in what is imported."""


@pytest.mark.parametrize("option", GIVEN)
@pytest.mark.parametrize("kind", [TRANSLATION, LANGUAGE_MODEL, ENCODER], ids=lambda kind: kind.name)
def test_an_option_is_refused_where_the_task_has_no_use_for_it(kind: Kind, option: str) -> None:
    asked = source(Path("checkpoint"), **GIVEN[option])
    if option in kind.options:
        kind.refuse_others(asked)
        return
    with pytest.raises(
        ExportError, match=f"checkpoint: {kind.name} does not take {option}; it takes --"
    ):
        kind.refuse_others(asked)


def test_options_of_the_kinds_are_those_of_imports() -> None:
    every = TRANSLATION.options | LANGUAGE_MODEL.options | ENCODER.options
    assert every == GIVEN.keys()
    for kind in (TRANSLATION, LANGUAGE_MODEL, ENCODER):
        kind.refuse_others(source(Path("checkpoint"), texts=Texts(text=Path("a"))))


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ("---\nlanguage: de\nlicense: apache-2.0\n---\n# Card", "apache-2.0"),
        ("---\nlicense: 'cc-by-4.0' \n---\n", "cc-by-4.0"),
        ('---\nlicense: "MIT"\n---\n', "MIT"),
        ("---\nlicense:\n- mit\n- 'apache-2.0'\ntags:\n- nmt\n---\n", "mit, apache-2.0"),
        ("---\nlicense:\nlanguage: de\n---\n", None),
        ("---\nlanguage: de\n---\nlicense: gpl\n", None),
        ("license: gpl\n", None),
        ("---\nother_license: gpl\n---\n", None),
        ("", None),
    ],
)
def test_a_licence_stands_in_the_front_of_the_card(
    card: str, licence: str | None, tmp_path: Path
) -> None:
    assert licence_of_card(tmp_path) is None
    (tmp_path / "README.md").write_text(card)
    (tmp_path / "model.npz").touch()
    assert licence_of_card(tmp_path) == licence_of_card(tmp_path / "model.npz") == licence


def test_a_licence_that_is_given_counts_more_than_the_card(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n")
    by_card = TRANSLATION.subject(imported(ONE), source(tmp_path))
    told = TRANSLATION.subject(imported(ONE), source(tmp_path, declared=Declared(licence="BSD")))
    for made, licence in ((by_card, "mit"), (told, "BSD")):
        assert made.facts["attribution"] == (
            f"Imported from {tmp_path.name}: a model of nobody's. Licence of the weights: "
            f"{licence}."
        )
        assert made.facts["recipe"]["imported"]["licence"] == licence
    (tmp_path / "README.md").unlink()
    unknown = TRANSLATION.subject(imported(ONE), source(tmp_path)).facts
    assert unknown["attribution"].endswith("It names no licence of them.")


def test_a_translation_model_has_its_text_side_and_search(tmp_path: Path) -> None:
    shortlist: Any = SimpleNamespace(spec=Shortlist)
    given = imported(ONE, search={"beam_size": 4}, max_source=99, shortlist=shortlist)
    made: Any = TRANSLATION.subject(given, source(tmp_path))
    assert made.model is given.model
    assert made.files == {TOKENIZER: tokenizer_file()}
    assert made.facts["special_ids"] == IDS
    assert made.facts["search"] == {"beam_size": 4, "shortlist": True}
    assert (made.max_source, made.shortlist) == (99, shortlist)
    on_gpu: Any = TRANSLATION.subject(given, source(tmp_path, form=Form("fp32", "cuda")))
    assert (on_gpu.facts["search"], on_gpu.shortlist) == ({"beam_size": 4}, None)


def test_without_texts_the_sentences_that_are_built_in_count(tmp_path: Path) -> None:
    built_in = json.loads(SENTENCES.read_text(encoding="utf-8"))
    for code, listed in (("de", "de"), ("xx", "en")):
        languages = Languages(source=(code,), target=("fr",))
        made: Any = TRANSLATION.subject(imported(languages), source(tmp_path))
        assert made.text_name == f"built-in sentences ({listed})"
        assert made.text.dev.sources == built_in[listed]


def test_each_sentence_in_turn_is_for_the_next_pair_of_languages(tmp_path: Path) -> None:
    lines = ["haus alt", "alt", "haus", "haus haus", "alt alt", "haus"]
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in lines))
    asked = source(tmp_path, texts=Texts(text=tmp_path / "a.txt"))
    dev = TRANSLATION.subject(imported(TAGGED), asked).text.dev  # type: ignore[attr-defined]
    pairs = [(s, t) for s in ("de", "en") for t in ("de", "en", "fr") if s != t]
    ids = {tag: WORDS.index(tag) for tag in TAGS}
    wanted = [[ids[TAGGED.tags[pairs[n % len(pairs)][1]]]] for n in range(len(lines))]
    assert dev.sources == lines
    assert (dev.prefixes, dev.target_prefixes) == (wanted, [[]] * len(lines))
    one = TRANSLATION.subject(imported(ONE), asked).text.dev  # type: ignore[attr-defined]
    assert (one.prefixes, one.target_prefixes) == (None, None)


def test_a_language_is_given_in_each_of_the_ways_at_its_place(tmp_path: Path) -> None:
    languages = Languages(
        source=("de", "en"),
        target=("de",),
        source_tags={"de": TAGS[0], "en": TAGS[1]},
        tags={"de": TAGS[0]},
        prefixes={"de": ("translate", "to", "German")},
        first_pieces={"de": TAGS[2]},
    )
    dev = TRANSLATION.subject(imported(languages), source(tmp_path)).text.dev  # type: ignore[attr-defined]
    words = [WORDS.index(word) for word in ("translate", "to", "German")]
    assert languages.trained == (("en", "de"),)
    told = [WORDS.index(TAGS[1]), WORDS.index(TAGS[0]), *words]  # the source's comes first
    assert dev.prefixes == [told] * len(dev.sources)
    assert dev.target_prefixes == [[WORDS.index(TAGS[2])]] * len(dev.sources)


def test_of_very_many_pairs_some_from_all_over_the_list_are_asked_for(tmp_path: Path) -> None:
    codes = [f"l{number}" for number in range(11)]
    tags = {code: f">>{code}<<" for code in codes}
    words = ["<pad>", "<s>", "</s>", "<unk>", *tags.values()]
    languages = Languages(source=("l0",), target=tuple(codes), tags=tags)
    twice = Languages(source=("l0", "l1", "l2"), target=tuple(codes), tags=tags)
    for each, step in ((languages, 1), (twice, 2)):
        made: Any = TRANSLATION.subject(
            imported(each, pieces=FastTokenizerFile(tokenizer_file(words))), source(tmp_path)
        )
        targets = [target for _, target in each.trained][::step]
        found = [words[ids[0]] for ids in made.text.dev.prefixes]
        assert found[: len(targets)] == [tags[code] for code in targets][: len(found)]


def pair_of(folder: Path, **told: Any) -> TextPair:
    for name in ("a.de", "a.en"):
        (folder / name).write_text("haus\nalt\n")
    return TextPair("news", folder / "a.de", folder / "a.en", **told)


def test_texts_of_a_model_of_several_directions_tell_theirs(tmp_path: Path) -> None:
    unclear, clear = pair_of(tmp_path), pair_of(tmp_path, languages=("de", "en"))
    with pytest.raises(ExportError, match="--dev is for a model of one direction"):
        TRANSLATION.subject(imported(TAGGED), source(tmp_path, texts=Texts(dev=clear)))
    with pytest.raises(ExportError, match=r"news: the model translates de to en, .*must be given"):
        TRANSLATION.subject(imported(TAGGED), source(tmp_path, texts=Texts(tests=(unclear,))))
    made: Any = TRANSLATION.subject(imported(TAGGED), source(tmp_path, texts=Texts(tests=(clear,))))
    ((name, test),) = made.text.tests
    assert (name, test.references) == ("news", ["haus", "alt"])
    one: Any = TRANSLATION.subject(
        imported(ONE), source(tmp_path, texts=Texts(dev=unclear, tests=(unclear,)))
    )
    assert (one.text_name, one.text.dev.references) == ("news", ["haus", "alt"])


def test_a_model_without_a_pair_of_languages_is_refused(tmp_path: Path) -> None:
    alone = Languages(source=("de",), target=("de",), tags={"de": TAGS[0]})
    with pytest.raises(ExportError, match="leave the model no pair of two languages"):
        TRANSLATION.subject(imported(alone), source(tmp_path))


def language_model(**changed: Any) -> ImportedLanguageModel:
    fields: dict[str, Any] = {
        "kind": "a language model of nobody's",
        "model": tiny_lm(),
        "tokenizer": tokenizer_file(),
        "special_ids": IDS,
        "max_positions": 50,
    }
    return ImportedLanguageModel(**fields | changed)


def test_a_language_model_reads_the_built_in_passage_within_its_positions(tmp_path: Path) -> None:
    made: Any = LANGUAGE_MODEL.subject(language_model(), source(tmp_path))
    assert made.text_name == "built-in passage (en)"
    words = len(PASSAGE.read_text(encoding="utf-8").split())
    assert sum(window.scored for window in made.windows) == words
    assert {int(window.tokens[0]) for window in made.windows[:1]} == {IDS.bos}
    assert max(len(window.tokens) for window in made.windows) == 50 + 1
    assert (made.max_positions, made.fitted) == (50, [])
    assert made.files == {TOKENIZER: tokenizer_file()}
    assert made.facts["tokenizer"].chat_template_file is None
    fitted: Any = LANGUAGE_MODEL.subject(language_model(), source(tmp_path, form=Form("int8")))
    assert len(fitted.fitted) > 0


def test_a_chat_template_and_what_the_checkpoint_says_itself_come_along(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("haus alt\n")
    given = language_model(chat_template="{{ x }}", licence="MIT", other_ends=(7,))
    asked = source(tmp_path, texts=Texts(text=tmp_path / "a.txt"))
    made: Any = LANGUAGE_MODEL.subject(given, asked)
    assert made.files[TEMPLATE] == b"{{ x }}"
    assert made.facts["tokenizer"].chat_template_file == TEMPLATE
    assert made.facts["other_ends"] == (7,)
    assert "MIT" in made.facts["attribution"]
    assert made.text_name == "a.txt"
    assert [window.tokens.tolist() for window in made.windows] == [[IDS.bos, 7, 8]]
    told: Any = LANGUAGE_MODEL.subject(given, replace(asked, declared=Declared(licence="BSD")))
    assert "BSD" in told.facts["attribution"]


@pytest.fixture
def encoder(tmp_path: Path) -> ReadEncoder:
    train_word_pieces(["ein haus", "das alte haus"], tmp_path / "pieces", 40, lowercase=True)
    return ReadEncoder(tiny_embedder("mean"), load_word_pieces(tmp_path / "pieces"), 12, ())


def test_an_encoder_reads_all_that_is_built_in(encoder: ReadEncoder, tmp_path: Path) -> None:
    made: Any = ENCODER.subject(encoder, source(tmp_path, declared=Declared(attribution="By us")))
    built_in = json.loads(SENTENCES.read_text(encoding="utf-8"))
    assert len(made.texts) == sum(map(len, built_in.values()))
    assert max(len(text.ids) for text in made.texts) == 12
    assert made.facts == {"attribution": "By us"}
    assert (made.text_name, made.task) == ("built-in sentences", None)


def test_of_a_long_text_the_first_and_the_last_lines_are_read(
    encoder: ReadEncoder, tmp_path: Path
) -> None:
    file = tmp_path / "long.txt"
    lines = ["haus"] * COMPARED + ["das", ""] * 9 + ["alte haus"] * FITTED
    file.write_text("".join(f"{line}\n" for line in lines))
    made: Any = ENCODER.subject(encoder, source(tmp_path, texts=Texts(text=file)))
    reader = encoder.text_reader()
    first, last = reader.encode("haus"), reader.encode("alte haus")
    assert made.texts == [first] * COMPARED + [last] * FITTED
    file.write_text("haus\n\n" * 15)
    with pytest.raises(ExportError, match=r"long\.txt: at least 16 lines with words"):
        ENCODER.subject(encoder, source(tmp_path, texts=Texts(text=file)))


def test_a_labelled_task_is_read_too(encoder: ReadEncoder, tmp_path: Path) -> None:
    table = tmp_path / "pairs.tsv"
    table.write_text("ein haus\tdas haus\t4.5\ndas\tein\t0.5\nalte\tdas alte\t3\n")
    made: Any = ENCODER.subject(encoder, source(tmp_path, texts=Texts(task=table)))
    assert (made.task.name, made.task.metric, made.task.lines) == ("pairs.tsv", "Spearman", 3)
