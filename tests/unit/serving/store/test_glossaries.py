"""Glossaries in the store: what is kept, for whom, how fast, and what two writers make of it."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import event, insert

from serving.errors import QuotaExceededError, RequestError, TooLongError, UnknownGlossaryError
from serving.store import glossaries as module
from serving.store.glossaries import Glossaries
from serving.store.records.glossary import (
    GlossaryLimits,
    NewDictionary,
    StoredDictionary,
    StoredGlossary,
)
from serving.store.store import Store
from serving.text.glossary import matched_terms

LIMITS = GlossaryLimits(glossaries=5, entries=10_000, term_chars=100)
GERMAN = NewDictionary("de", "en", {"Haus": "home", "Straße": "road"})
BACK = NewDictionary("en", "de", {"home": "Haus"})
NAMES = [
    "plain",
    "'; DROP TABLE glossaries; --",
    '" OR 1=1 --',
    "%s %(name)s :name ? $1",
    "\\' UNION SELECT entries FROM glossary_dictionaries --",
    "Übergröße 日本語 🎉",
]


@pytest.fixture
def kept(store: Store) -> Glossaries:
    return store.glossaries


@pytest.fixture
def made(kept: Glossaries) -> StoredGlossary:
    return kept.create("me", "mine", [GERMAN, BACK], LIMITS)


def test_a_glossary_is_kept_with_its_dictionaries(kept: Glossaries, made: StoredGlossary) -> None:
    assert made.dictionaries == (StoredDictionary("de", "en", 2), StoredDictionary("en", "de", 1))
    assert abs(made.created - time.time()) < 60
    assert kept.get("me", made.id) == made
    assert kept.page("me") == [made]
    assert kept.entries("me", made.id, "de", "en") == GERMAN.entries


def test_it_outlives_the_server(opened: Callable[[], Store]) -> None:
    made = opened().glossaries.create("me", "mine", [GERMAN], LIMITS)
    assert opened().glossaries.get("me", made.id) == made


def test_entries_are_replaced_added_and_removed(kept: Glossaries, made: StoredGlossary) -> None:
    new = NewDictionary("de", "en", {"Haus": "house"})
    assert kept.replace("me", made.id, new, LIMITS) == StoredDictionary("de", "en", 1)
    more = NewDictionary("de", "en", {"Haus": "building", "Hof": "yard"})
    patched = kept.patch("me", made.id, "new name", [more], LIMITS)
    assert (patched.name, patched.dictionaries[0].entry_count) == ("new name", 2)
    assert kept.entries("me", made.id, "de", "en") == {"Haus": "building", "Hof": "yard"}
    kept.delete_dictionary("me", made.id, "de", "en")
    assert [each.source for each in kept.get("me", made.id).dictionaries] == ["en"]
    kept.delete("me", made.id)
    assert kept.page("me") == []


def test_nothing_of_one_owner_is_there_for_another(kept: Glossaries, made: StoredGlossary) -> None:
    asks: list[Callable[[str, str], object]] = [
        lambda owner, id: kept.get(owner, id),
        lambda owner, id: kept.entries(owner, id, "de", "en"),
        lambda owner, id: kept.index(owner, id, "de", "en"),
        lambda owner, id: kept.replace(owner, id, GERMAN, LIMITS),
        lambda owner, id: kept.patch(owner, id, "theirs", [], LIMITS),
        lambda owner, id: kept.delete_dictionary(owner, id, "de", "en"),
        lambda owner, id: kept.delete(owner, id),
        lambda owner, id: kept.page(owner, after=id),
    ]
    for ask in asks:
        messages = []
        for owner, id in (("you", made.id), ("me", str(uuid.uuid4()))):
            with pytest.raises(UnknownGlossaryError) as raised:
                ask(owner, id)
            messages.append(str(raised.value).replace(id, "ID"))
        assert messages[0] == messages[1]
    assert kept.page("you") == []
    assert kept.get("me", made.id) == made


@pytest.mark.parametrize("id", ["", "a", "x" * 37, "\0" * 36, "' OR '1'='1", "ü" * 36])
def test_what_is_no_id_is_no_glossary(kept: Glossaries, made: StoredGlossary, id: str) -> None:
    with pytest.raises(UnknownGlossaryError):
        kept.get("me", id)


def test_names_and_terms_are_values_whatever_stands_in_them(kept: Glossaries) -> None:
    limits = GlossaryLimits(len(NAMES), 100, 100)
    entries = {name: name for name in NAMES}
    for name in NAMES:
        kept.create("me", name, [NewDictionary("de", "en", entries)], limits)
    found = kept.page("me")
    assert [each.name for each in found] == NAMES
    assert kept.entries("me", found[1].id, "de", "en") == entries
    for name in NAMES:
        assert kept.page(name) == []


def test_limits_are_kept_to(kept: Glossaries, made: StoredGlossary) -> None:
    for _ in range(4):
        kept.create("me", "more", [BACK], LIMITS)
    with pytest.raises(QuotaExceededError, match="at most 5 glossaries"):
        kept.create("me", "one too many", [BACK], LIMITS)
    kept.create("you", "the first", [BACK], LIMITS)
    few = GlossaryLimits(5, 2, 100)
    with pytest.raises(TooLongError, match="at most 2 entries"):
        kept.patch("me", made.id, "renamed", [NewDictionary("de", "en", {"Hof": "yard"})], few)
    assert kept.get("me", made.id) == made  # the name neither
    with pytest.raises(RequestError, match="each language pair once"):
        kept.create("me", "twice", [BACK, BACK], LIMITS)


def test_pages_follow_each_other(kept: Glossaries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAGE", 2)
    made = [kept.create("me", str(n), [BACK], LIMITS) for n in range(5)]
    assert kept.page("me") == made
    assert kept.page("me", limit=3) == made[:3]
    assert kept.page("me", after=made[2].id, limit=3) == made[3:]


def test_an_index_is_made_once_for_each_state(kept: Glossaries, made: StoredGlossary) -> None:
    index = kept.index("me", made.id, "de", "en")
    assert kept.index("me", made.id, "de", "en-GB") is index  # a region changes nothing
    assert [match.target for match in matched_terms([index], "Zwei Häuser")] == ["home"]
    kept.replace("me", made.id, NewDictionary("de", "en", {"Haus": "house"}), LIMITS)
    index = kept.index("me", made.id, "de", "en")
    assert [match.target for match in matched_terms([index], "Zwei Häuser")] == ["house"]
    with pytest.raises(RequestError, match="must have a dictionary from fr to en, it has de to en"):
        kept.index("me", made.id, "fr", "en")


def test_dictionaries_keep_the_order_in_which_they_came(kept: Glossaries) -> None:
    pairs = [("fr", "en"), ("de", "en"), ("en", "fr"), ("en", "de")]
    given = [NewDictionary(*pair, {"a": "b"}) for pair in pairs]
    made = kept.create("me", "mine", given[:3], LIMITS)
    kept.replace("me", made.id, NewDictionary("fr", "en", {"c": "d"}), LIMITS)
    kept.patch("me", made.id, None, [given[3], given[1]], LIMITS)
    found = kept.get("me", made.id)
    assert [(each.source, each.target) for each in found.dictionaries] == pairs


def test_indexes_in_memory_are_bounded(kept: Glossaries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept._indexes, "_most", 2)
    one, other = (kept.create("me", "x", [GERMAN], LIMITS).id for _ in range(2))
    first = kept.index("me", one, "de", "en")
    kept.index("me", other, "de", "en")
    again = kept.index("me", one, "de", "en")
    assert again is not first
    assert kept.index("me", one, "de", "en") is again
    kept.delete("me", one)
    assert len(kept._indexes._kept) == 0


def test_writers_at_once_lose_nothing(opened: Callable[[], Store]) -> None:
    stores = [opened(), opened()]
    made = stores[0].glossaries.create("me", "mine", [BACK], LIMITS)
    errors = []

    def add(store: Store, name: str) -> None:
        try:
            for n in range(10):
                entry = NewDictionary("de", "en", {f"{name}{n}": "x"})
                store.glossaries.patch("me", made.id, None, [entry], LIMITS)
        except Exception as error:
            errors.append(error)

    threads = [
        threading.Thread(target=add, args=(store, f"{name}{number}"))
        for number, store in enumerate(stores)
        for name in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(stores[1].glossaries.entries("me", made.id, "de", "en")) == 40


@pytest.mark.slow
def test_a_hundred_thousand_glossaries_and_ten_thousand_entries_stay_fast(store: Store) -> None:
    count = 100_000
    ids = [str(uuid.uuid4()) for _ in range(count)]
    with store.database.writing() as connection:
        rows = [
            {"id": id, "owner": f"key{n % 10}", "created": float(n), "name": f"glossary {n}"}
            for n, id in enumerate(ids)
        ]
        dictionaries = [
            {
                "glossary_id": id,
                "source": "de",
                "target": "en",
                "version": "1",
                "entry_count": 1,
                "entries": "Haus\thome",
            }
            for id in ids
        ]
        for table, values in ((module._GLOSSARIES, rows), (module._DICTIONARIES, dictionaries)):
            for start in range(0, count, 10_000):
                connection.execute(insert(table), values[start : start + 10_000])
    kept = store.glossaries
    entries = {f"Begriff{n}": f"term {n}" for n in range(10_000)}
    large = GlossaryLimits(count, 10_000, 100)
    made = kept.create("key3", "large", [NewDictionary("de", "en", entries)], large)

    def took(act: Callable[[], object]) -> float:
        """The shortest of some times: what else runs on the machine makes the others longer."""
        times = []
        for _ in range(4):
            began = time.perf_counter()
            act()
            times.append(time.perf_counter() - began)
        return min(times)

    assert took(lambda: kept.get("key3", made.id)) < 0.1
    assert took(lambda: kept.page("key3", limit=100)) < 0.2
    assert took(lambda: kept.page("key3", after=ids[50_003], limit=100)) < 0.2
    assert took(lambda: kept.index("key3", made.id, "de", "en")) < 0.1
    assert (
        took(lambda: kept.patch("key3", made.id, "n", [GERMAN], GlossaryLimits(1, 10_002, 9))) < 1
    )
    index = kept.index("key3", made.id, "de", "en")
    sentence = "Der Begriff77 steht auf der Straße, und Begriff9999 neben dem Haus. " * 3
    assert len(matched_terms([index], sentence)) == 12
    assert took(lambda: matched_terms([index], sentence)) < 0.001


def test_a_dictionary_that_is_deleted_while_it_is_asked_for_is_not_there(
    opened: Callable[[], Store],
) -> None:
    store, other = opened(), opened()
    id = store.glossaries.create("me", "n", [GERMAN], LIMITS).id
    waiting = [True]

    @event.listens_for(store.database._engine, "before_cursor_execute")
    def meanwhile(_: Any, __: Any, statement: str, *___: Any) -> None:
        if statement.startswith("SELECT glossary_dictionaries.version") and waiting:
            waiting.pop()
            other.glossaries.delete_dictionary("me", id, "de", "en")

    with pytest.raises(UnknownGlossaryError):
        store.glossaries.index("me", id, "de", "en")
    assert not waiting


def test_a_dictionary_without_regions_goes_before_one_of_another_region(kept: Glossaries) -> None:
    pairs = [("en", "pt-br"), ("en", "pt"), ("en-gb", "pt-ao")]
    given = [NewDictionary(*pair, {"bus": pair[1]}) for pair in pairs]
    id = kept.create("me", "n", given, LIMITS).id
    for target, found in (("pt-PT", "pt"), ("pt-BR", "pt-br"), ("pt", "pt"), ("pt-AO", "pt")):
        [match] = matched_terms([kept.index("me", id, "en", target)], "a bus")
        assert match.target == found
    [match] = matched_terms([kept.index("me", id, "en-GB", "pt-AO")], "a bus")
    assert match.target == "pt-ao"
