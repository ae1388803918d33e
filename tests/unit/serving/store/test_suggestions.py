"""Suggestions in the store: what is kept, for whom, and how many."""

from __future__ import annotations

import pytest

from serving.errors import QuotaExceededError
from serving.store import suggestions as module
from serving.store.store import Store

PAIR = ("de", "en")
NASTY = "'; DROP TABLE suggestions; -- %s :x \" 日本語 🎉"


def test_suggestions_are_kept_once_and_by_owner(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAGE", 2)
    kept = store.suggestions
    for number in range(5):
        kept.add("me", PAIR, f"Haus {number}", NASTY, 5)
    kept.add("me", PAIR, "Haus 0", NASTY, 5)
    kept.add("you", PAIR, "Tor", "gate", 5)
    with pytest.raises(QuotaExceededError, match="at most 5 suggestions"):
        kept.add("me", PAIR, "Hof", "yard", 5)
    mine = [(f"Haus {number}", NASTY) for number in range(5)]
    assert list(kept.pairs("me", *PAIR)) == mine
    assert list(kept.pairs(None, *PAIR)) == [*mine, ("Tor", "gate")]
    assert list(kept.pairs("me", "en", "de")) == []
    assert kept.clear("me") == 5
    assert list(kept.pairs(None, *PAIR)) == [("Tor", "gate")]


def test_evaluations_are_kept_for_a_day_and_for_their_owner(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from serving.store import evaluations

    kept = store.evaluations
    monkeypatch.setattr(evaluations, "_MOST", 2)
    first, second, third = (kept.keep("me", f"answer {number}") for number in range(3))
    other = kept.keep("you", "yours")
    assert [kept.get("me", id) for id in (first, second, third, other)] == [
        None,
        "answer 1",
        "answer 2",
        None,
    ]
    assert kept.get("you", other) == "yours"
    assert kept.get("me", "' OR 1=1 --\x00") is None
    later = evaluations.now() + 2 * 86_400
    monkeypatch.setattr(evaluations, "now", lambda: later)
    assert kept.get("you", other) is None
