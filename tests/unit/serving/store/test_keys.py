"""Keys in the store, and the log of what was done to them."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable

import pytest
from sqlalchemy import text

from serving.errors import RequestError
from serving.store import keys
from serving.store.records.glossary import GlossaryLimits, NewDictionary
from serving.store.records.key import NO_LIMITS, KeyLimits, UsageBatch, UsageCount, digest_of
from serving.store.records.memory import MemoryLimits
from serving.store.store import Store
from serving.text.memory.segments import Segment

HERE = "192.0.2.1"
NASTY = ["'; DROP TABLE api_keys; --", 'x" OR 1=1', "%_\\", "Robert'); DELETE FROM usage;--", "名"]


def test_a_key_is_shown_once_and_kept_as_a_digest(store: Store) -> None:
    assert not store.keys.any()
    key, secret = store.keys.create("ours", KeyLimits(1000, 5), HERE, most=10)
    assert len(secret) > 40
    assert store.keys.any()
    assert store.keys.find(digest_of(secret)) == store.keys.get(key.id) == key
    assert store.keys.find(digest_of(secret + "x")) is None
    with store.database.reading() as connection:
        row = connection.execute(text("SELECT * FROM api_keys")).one()
    assert secret not in repr(row)
    assert uuid.UUID(key.id).version == 7


def test_labels_are_only_text(store: Store) -> None:
    made = [store.keys.create(label, NO_LIMITS, HERE, most=10)[0] for label in NASTY]
    assert [key.label for key in store.keys.listed(10)] == NASTY
    for key, label in zip(made, reversed(NASTY), strict=True):
        changed = store.keys.change(
            key.id, lambda k, to=label: dataclasses.replace(k, label=to), HERE
        )
        assert changed == dataclasses.replace(key, label=label)
    assert store.keys.get("' OR ''='") is None
    assert not store.keys.delete("' OR ''='", HERE)
    assert len(store.keys.listed(10)) == len(NASTY)


def test_keys_are_listed_in_pages_and_there_are_not_too_many(store: Store) -> None:
    made = [store.keys.create(str(n), NO_LIMITS, HERE, most=7)[0].id for n in range(7)]
    with pytest.raises(RequestError, match="at most 7 keys"):
        store.keys.create("one more", NO_LIMITS, HERE, most=7)
    found, after = [], ""
    while page := store.keys.listed(3, after):
        found += [key.id for key in page]
        after = found[-1]
    assert found == sorted(made)


def test_every_act_is_in_the_log_and_none_that_failed(store: Store) -> None:
    key, secret = store.keys.create("ours", NO_LIMITS, HERE, most=10)

    def fail(_: object) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        store.keys.change(key.id, fail, HERE)  # type: ignore[arg-type]
    assert store.keys.change("nobody", lambda k: k, HERE) is None
    store.keys.change(key.id, lambda k: dataclasses.replace(k, disabled=1.0), HERE)
    assert store.keys.delete(key.id, HERE)
    assert not store.keys.delete(key.id, HERE)
    store.audit.note(HERE, "drain")
    acts = store.audit.entries(10)
    assert [act.act for act in acts] == ["drain", "delete_key", "change_key", "create_key"]
    assert {act.subject for act in acts[1:]} == {key.id}
    assert {act.address for act in acts} == {HERE}
    assert "disabled" in acts[2].details
    assert not any(secret in repr(act) for act in acts)
    assert store.audit.entries(2, before=acts[0].number) == acts[1:3]


def test_another_server_knows_them_too(opened: Callable[[], Store]) -> None:
    first, second = opened(), opened()
    key, secret = first.keys.create("ours", NO_LIMITS, HERE, most=10)
    assert second.keys.find(digest_of(secret)) == key
    assert second.keys.delete(key.id, HERE)
    assert first.keys.find(digest_of(secret)) is None


def test_what_is_kept_for_a_key_goes_with_it(store: Store) -> None:
    (gone, _), (other, _) = (store.keys.create("n", KeyLimits(), HERE, 9) for _ in range(2))
    for owner in (gone.id, other.id):
        dictionary = NewDictionary("de", "en", {"a": "b"})
        store.glossaries.create(owner, "n", [dictionary], GlossaryLimits(9, 9, 9))
        memory = store.memories.create(owner, "n", "de", "en", MemoryLimits(9, 9, 9))
        store.memories.add(owner, memory.id, [Segment("a", "b")], MemoryLimits(9, 9, 9))
        store.suggestions.add(owner, ("de", "en"), "a", "b", 9)
        count = {(owner, "2026-11-28", "translate"): UsageCount(1, 2)}
        store.usage.add(UsageBatch(owner, 1, count), "2026-11")
    evaluations = [store.evaluations.keep(owner, "a") for owner in (gone.id, other.id)]
    assert store.keys.delete(gone.id, HERE)
    found = {
        owner: (
            len(store.glossaries.page(owner)),
            len(store.memories.page(owner)),
            len(list(store.suggestions.pairs(owner, "de", "en"))),
            store.evaluations.get(owner, id),
            store.usage.of_month(owner, "2026-11"),
        )
        for owner, id in zip((gone.id, other.id), evaluations, strict=True)
    }
    assert found == {gone.id: (0, 0, 0, None, 2), other.id: (1, 1, 1, "a", 2)}
    with store.database.reading() as connection:
        for table in ("glossary_dictionaries", "memory_segments"):
            assert connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one() == 1


def test_keys_of_one_moment_are_in_their_order(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter(range(10**18, 10**18 + 10**9, 50_000))  # twenty within a millisecond
    monkeypatch.setattr(keys.time, "time_ns", lambda: next(moments))
    made = [store.keys.create(str(n), NO_LIMITS, HERE, most=50)[0].id for n in range(40)]
    assert [key.id for key in store.keys.listed(50)] == made
    assert {uuid.UUID(id).version for id in made} == {7}
