"""Files that belong to jobs: what is known of them; on SQLite and on PostgreSQL."""

from __future__ import annotations

import pytest

from serving.errors import QuotaExceededError
from serving.store import files
from serving.store.records.job import KeptFile
from serving.store.store import Store

MOST = 100


def file(number: int, owner: str = "me", purpose: str = "batch", expires: float = 9e9) -> KeptFile:
    return KeptFile(
        id=f"file-{number}",
        owner=owner,
        purpose=purpose,
        name="'); DROP TABLE files; --",
        size=2**40,
        created=float(number),
        expires=expires,
    )


def test_files_are_their_owners_and_listed_by_purpose_and_page(store: Store) -> None:
    for number in range(4):
        store.files.add(file(number), MOST)
    store.files.put(file(7, purpose="batch_output"))
    store.files.put(file(7, purpose="batch_output"))  # the same again
    assert store.files.get("me", "file-2") == file(2)
    assert store.files.get("you", "file-2") is None
    assert not store.files.delete("you", "file-2")
    assert store.files.keep_until("you", "file-2", 9e10) is None

    def listed(purpose: str | None, after: str | None, *, newest: bool = True) -> list[str]:
        page = store.files.page("me", purpose, after, 3, newest=newest)
        return [each.id[-1] for each in page]

    assert listed(None, None) == ["7", "3", "2"]
    assert listed(None, "file-2") == ["1", "0"]
    assert listed("batch", "file-1", newest=False) == ["2", "3"]
    assert listed("batch_output", None) == ["7"]
    assert listed(None, "file-9") == []
    assert store.files.page("you", None, None, 9, newest=True) == []


def test_an_owner_has_so_many_files(store: Store) -> None:
    for number in (1, 2):
        store.files.add(file(number), 2)
    store.files.put(file(3, purpose="batch_output"))
    with pytest.raises(QuotaExceededError, match="at most 2 files"):
        store.files.add(file(4), 2)
    store.files.add(file(5, "you"), 2)
    assert store.files.delete("me", "file-1")
    store.files.add(file(4), 2)


def test_what_has_expired_is_gone_unless_it_was_kept_for_longer(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3):
        store.files.add(file(number, expires=100.0 * number), MOST)
    monkeypatch.setattr(files, "now", lambda: 50.0)
    assert store.files.keep_until("me", "file-1", 500.0) == file(1, expires=500.0)
    assert store.files.keep_until("me", "file-3", 200.0) == file(3, expires=300.0)
    monkeypatch.setattr(files, "now", lambda: 250.0)
    assert store.files.get("me", "file-2") is None
    assert store.files.keep_until("me", "file-2", 500.0) is None
    assert store.files.remove_expired() == ["file-2"]
    assert store.files.known(["file-1", "file-2", "file-3"]) == {"file-1", "file-3"}
