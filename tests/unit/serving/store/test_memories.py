"""Translation memories in the store: what is kept, for whom, and what is found in them."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from serving.errors import QuotaExceededError, RequestError, UnknownMemoryError
from serving.store import memory_jobs
from serving.store.memories import Memories
from serving.store.records.memory import MemoryLimits, StoredMemory
from serving.store.store import Store
from serving.text.memory.segments import Segment

LIMITS = MemoryLimits(memories=3, segments=10_000, segment_chars=1000)
NAMES = [
    "'; DROP TABLE memories; --",
    '" OR 1=1 --',
    "%s %(name)s :name ? $1",
    "Übergröße 日本語 🎉",
]


@pytest.fixture
def kept(store: Store) -> Memories:
    return store.memories


@pytest.fixture
def made(kept: Memories) -> StoredMemory:
    made = kept.create("me", "mine", "en", "de", LIMITS)
    pairs = [Segment("Page 3 of 10", "Seite 3 von 10"), Segment("Save the file", "Datei sichern")]
    return kept.add("me", made.id, pairs, LIMITS)


def test_a_memory_is_kept_with_its_segments(
    kept: Memories, made: StoredMemory, opened: Callable[[], Store]
) -> None:
    assert (made.segment_count, made.source, made.target) == (2, "en", "de")
    other = opened().memories
    assert other.get("me", made.id) == made
    assert [each.source for each in other.segments("me", made.id)] == [
        "Page 3 of 10",
        "Save the file",
    ]
    assert [each.number for each in other.segments("me", made.id, after=0, limit=5)] == [1]
    kept.delete("me", made.id)
    assert kept.page("me") == []
    with kept._database.reading() as connection:
        assert connection.execute(text("SELECT count(*) FROM memory_segments")).scalar_one() == 0


def test_nothing_of_one_owner_is_there_for_another(kept: Memories, made: StoredMemory) -> None:
    asks: list[Callable[[str, str], object]] = [
        lambda owner, id: kept.get(owner, id),
        lambda owner, id: kept.add(owner, id, [], LIMITS),
        lambda owner, id: kept.segments(owner, id),
        lambda owner, id: list(kept.every_segment(owner, id)),
        lambda owner, id: kept.use(owner, id, "en", "de", 75),
        lambda owner, id: kept.delete(owner, id),
        lambda owner, id: kept.page(owner, after=id),
    ]
    for ask in asks:
        errors = []
        for owner, id in (("other", made.id), ("me", str(uuid.uuid4())), ("me", "x\0' OR 1=1 --")):
            with pytest.raises(UnknownMemoryError) as error:
                ask(owner, id)
            errors.append(str(error.value).replace(repr(id), ""))
        assert len(set(errors)) == 1  # not even the words tell whether it is somebody's
    assert kept.page("other") == []
    assert kept.get("me", made.id) == made


@pytest.mark.parametrize("name", NAMES)
def test_words_of_sql_are_words(kept: Memories, made: StoredMemory, name: str) -> None:
    own = kept.create("me", name, "en", "de", LIMITS)
    kept.add("me", own.id, [Segment(name, name)], LIMITS)
    assert kept.get("me", own.id).name == name
    for match_case in (False, True):
        found = kept.segments("me", own.id, text=name, match_case=match_case)
        assert [(each.source, each.target) for each in found] == [(name, name)]
        assert kept.segments("me", made.id, text=name, match_case=match_case) == []
    assert [each.text for each in kept.use("me", own.id, "en", "de", 75).find([name], 75) if each]


def test_segments_are_found_by_a_part_of_either_text(kept: Memories, made: StoredMemory) -> None:
    assert len(kept.segments("me", made.id, text="SEITE")) == 1
    assert kept.segments("me", made.id, text="SEITE", match_case=True) == []
    assert kept.segments("me", made.id, text="a_e") == []


def test_sentences_find_their_segments_and_those_that_are_added_later(
    kept: Memories, made: StoredMemory, opened: Callable[[], Store]
) -> None:
    other = opened().memories
    asked = ["Page 7 of 12", "Save the files", "Nothing of the kind"]
    for store in (kept, other):
        found = store.use("me", made.id, "en", "de", 75).find(asked, 75)
        assert [each and each.text for each in found] == ["Seite 7 von 12", "Datei sichern", None]
    kept.add("me", made.id, [Segment("Save the file", "Die Datei sichern")], LIMITS)
    for store in (kept, other):
        [found_again] = store.use("me", made.id, "en-GB", "de", 75).find(["Save the file"], 75)
        assert found_again is not None
        assert (found_again.text, found_again.score) == ("Die Datei sichern", 100)


def test_indexes_leave_by_their_bytes_the_one_used_last_stays(
    kept: Memories, made: StoredMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = kept.create("me", "long", "en", "de", LIMITS)
    kept.add("me", other.id, [Segment("word " * 190, "x")], LIMITS)
    kept.use("me", made.id, "en", "de", 75)
    kept.use("me", other.id, "en", "de", 75)
    assert list(kept._indexes._kept) == [made.id, other.id]
    assert sum(index.num_bytes for index in kept._indexes._kept.values()) < 10_000
    monkeypatch.setattr(kept._indexes, "_most", 600)
    kept.use("me", other.id, "en", "de", 75)
    assert list(kept._indexes._kept) == [other.id]
    kept.use("me", made.id, "en", "de", 75)
    assert list(kept._indexes._kept) == [made.id]


def test_while_an_index_is_made_other_memories_are_used(
    kept: Memories, made: StoredMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = kept.create("me", "other", "en", "de", LIMITS)
    kept.add("me", other.id, [Segment("a word", "ein Wort")], LIMITS)
    begun, go_on, times_made = threading.Event(), threading.Event(), []
    keys = Memories._keys

    def slow(self: Memories, owner: str, id: str, after: int) -> Iterator[str]:
        if id == made.id:
            times_made.append(after)
            begun.set()
            assert go_on.wait(10)
        return keys(self, owner, id, after)

    monkeypatch.setattr(Memories, "_keys", slow)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(kept.use, "me", made.id, "en", "de", 75) for _ in range(2)]
        assert begun.wait(10)
        with ThreadPoolExecutor(1) as another:
            use = another.submit(kept.use, "me", other.id, "en", "de", 75)
            try:
                use.result(5)
            finally:
                go_on.set()
        assert all(each.result().find(["Save the file"], 75)[0] for each in waiting)
    assert times_made == [-1]
    assert not kept._indexes._making


def test_a_memory_that_is_deleted_while_its_index_is_made_is_not_kept(
    kept: Memories, made: StoredMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = Memories._keys

    def deleting(self: Memories, owner: str, id: str, after: int) -> Iterator[str]:
        yield from keys(self, owner, id, after)
        self.delete(owner, id)

    monkeypatch.setattr(Memories, "_keys", deleting)
    kept.use("me", made.id, "en", "de", 75)
    assert not kept._indexes._kept
    with pytest.raises(UnknownMemoryError):
        kept.use("me", made.id, "en", "de", 75)


def test_a_memory_serves_its_own_languages_alone(kept: Memories, made: StoredMemory) -> None:
    with pytest.raises(RequestError, match="from en to fr"):
        kept.use("me", made.id, "en", "fr", 75)


def test_no_more_is_kept_than_may_be(kept: Memories, made: StoredMemory) -> None:
    few = MemoryLimits(memories=1, segments=3, segment_chars=1000)
    with pytest.raises(QuotaExceededError, match="MACARON_MAX_MEMORIES"):
        kept.create("me", "another", "en", "de", few)
    kept.create("other", "theirs", "en", "de", few)
    with pytest.raises(QuotaExceededError, match="MACARON_MAX_MEMORY_SEGMENTS"):
        kept.add("me", made.id, [Segment("a", "b")] * 2, few)
    assert kept.get("me", made.id).segment_count == 2


def test_several_add_at_once_and_nothing_is_lost(
    kept: Memories, made: StoredMemory, opened: Callable[[], Store]
) -> None:
    def add(number: int, own: Memories) -> None:
        pairs = [Segment(f"sentence {number} {letter}", "x") for letter in "abcde"]
        own.add("me", made.id, pairs, LIMITS)

    threads = [threading.Thread(target=add, args=(n, opened().memories)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kept.get("me", made.id).segment_count == 32
    assert [each.number for each in kept.segments("me", made.id)] == list(range(32))


def test_jobs_are_the_owners_and_go_after_a_day(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = store.memory_jobs
    job = jobs.create("me", "name", 10)
    assert jobs.get("me", job.id) == job
    assert jobs.of_token(job.token) == ("me", job)
    assert [jobs.claimed(job), jobs.claimed(job)] == [True, False]
    jobs.failed(job, "broken")
    found = jobs.get("me", job.id)
    assert (found.state, found.error) == ("failed", "broken")
    assert jobs.create("me", memory_id="some").state == "done"
    for ask in (lambda: jobs.get("other", job.id), lambda: jobs.of_token(job.id)):
        with pytest.raises(UnknownMemoryError):
            ask()
    monkeypatch.setattr(memory_jobs, "_KEPT_S", -1.0)
    jobs.create("other")
    with pytest.raises(UnknownMemoryError):
        jobs.get("me", job.id)
