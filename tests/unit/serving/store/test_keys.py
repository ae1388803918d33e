"""Keys in the store, and the log of what was done to them."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable

import pytest
from sqlalchemy import text

from serving.errors import RequestError
from serving.store.records.key import NO_LIMITS, KeyLimits, digest_of
from serving.store.store import Store

HERE = "192.0.2.1"
NASTY = ["'; DROP TABLE api_keys; --", 'x" OR 1=1', "%_\\", "Robert'); DELETE FROM usage;--", "名"]


def test_a_key_is_told_once_and_kept_as_a_digest(store: Store) -> None:
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
