"""What is guessed of a text, and when guessing rests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from serving.search.sampling.lookahead import GUESSED, Lookahead

TEXTS = st.lists(st.integers(0, 2), max_size=40)


def looked_up(text: list[int]) -> list[int]:
    """What followed the last three tokens the last time before, searched from the end."""
    for end in range(len(text) - 1, 2, -1):
        if text[end - 3 : end] == text[-3:]:
            found = text[end:]
            while len(found) < GUESSED:
                found = found + text[end:]
            return found[:GUESSED]
    return []


@given(TEXTS, TEXTS)
def test_a_guess_is_what_followed_the_last_tokens_before(
    prompt: list[int], tokens: list[int]
) -> None:
    lookahead = Lookahead()
    for count in range(len(tokens) + 1):
        if count % 3 != 1:  # a text may grow by several tokens between guesses
            found = lookahead.guess(prompt, tokens[:count])
            assert found == looked_up(prompt + tokens[:count])


def test_wrong_guesses_are_followed_by_ever_longer_rests_until_one_is_right() -> None:
    lookahead, text = Lookahead(), [1, 2, 3, 4] * 3
    rests = []
    for _ in range(8):
        lookahead.note(0)
        rest = 0
        while not lookahead.guess(text, []):
            rest += 1
        rests.append(rest)
    assert rests == [1, 2, 4, 8, 16, 32, 64, 64]
    lookahead.note(2)
    assert lookahead.guess(text, []) == [1, 2, 3, 4]
    lookahead.note(0)
    assert lookahead.guess(text, []) == []
    assert lookahead.guess(text, []) == [1, 2, 3, 4]
