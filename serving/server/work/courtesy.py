"""What work that nobody waits for leaves to clients that do."""

from __future__ import annotations

_ATTENTION_S = 2.0
"""How long after a request of a client another one is likely."""
_REST = 4
_LONGEST_REST_S = 5.0
"""After a piece of work, while clients ask: so many times as long as it took, so that few requests
meet one."""


def attentive(idle_s: float) -> bool:
    """Whether clients ask for something that they wait for, so many seconds after the last has:
    then one piece of work runs at a time, and a rest follows it."""
    return idle_s < _ATTENTION_S


def rest_s(took_s: float) -> float:
    """Seconds to rest after a piece of work that took so long, while clients ask."""
    return min(_REST * took_s, _LONGEST_REST_S)
