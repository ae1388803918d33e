"""Language detection: right on sentences, honest about words."""

from __future__ import annotations

import functools
import random
import subprocess
import sys
import tracemalloc
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py3langid.langid import MODEL_FILE, LanguageIdentifier

from serving.text.detection import SharedPieces, detect, detect_among
from serving.text.languages import LANGUAGE_NAMES

SENTENCES = {
    "de": "Wir haben gestern den ganzen Tag auf den Zug gewartet.",
    "en": "We spent all of yesterday waiting for the train.",
    "fr": "Nous avons attendu le train toute la journée d'hier.",
    "es": "Ayer estuvimos todo el día esperando el tren.",
    "ru": "Вчера мы весь день ждали поезд.",
    "ja": "昨日は一日中電車を待っていました。",
}


@pytest.mark.parametrize("language", SENTENCES)
def test_sentences(language: str) -> None:
    found = detect(SENTENCES[language])
    assert found[0][0] == language
    assert found[0][1] > 0.9
    assert sum(probability for _, probability in found) == pytest.approx(1, abs=1e-3)
    assert [p for _, p in found] == sorted((p for _, p in found), reverse=True)


def test_only_languages_that_could_be_meant_are_chosen() -> None:
    assert detect_among(SENTENCES["fr"], ["de", "fr"], "en")[0] == "fr"
    language, confidence = detect_among(SENTENCES["fr"], ["de", "en"], "es")
    assert language in ("de", "en")
    assert confidence < 0.05


def test_what_is_in_the_target_already_is_seen() -> None:
    language, confidence = detect_among(SENTENCES["en"], ["de", "fr"], "en")
    assert (language, confidence > 0.9) == ("en", True)
    assert detect_among(SENTENCES["en"], ["de", "en"], "en")[0] == "en"
    assert detect_among(SENTENCES["es"], ["de", "fr"], "en")[0] in ("de", "fr")


def test_a_word_is_less_sure_than_a_sentence() -> None:
    words = [detect_among(word, ["de", "en"], "fr")[1] for word in ("Hand", "Name", "Restaurant")]
    assert max(words) < 0.9 < detect_among(SENTENCES["de"], ["de", "en"], "fr")[1]


@pytest.mark.parametrize("text", ["", " \n", "12,5 %", "---"])
def test_without_letters_nothing_is_known(text: str) -> None:
    assert detect(text) == []
    assert detect_among(text, ["de", "en"], "fr") == ("de", 0.0)


def test_capitals_and_long_texts() -> None:
    assert detect(SENTENCES["de"].upper())[0][0] == "de"
    assert detect(SENTENCES["en"] * 1000)[0][0] == "en"


def test_a_language_that_the_detector_does_not_know_is_possible_still() -> None:
    assert detect_among(SENTENCES["de"], ["xx"], "en") == ("xx", 0.0)


def test_texts_at_the_same_time_load_one_model() -> None:
    """In a process of its own, as the model here may be loaded."""
    program = """
import threading
from py3langid.langid import LanguageIdentifier
from serving.text.detection import detect

read, loads = LanguageIdentifier.from_model_file, []
LanguageIdentifier.from_model_file = lambda *given, **options: (
    loads.append(given), read(*given, **options)
)[1]
threads = [threading.Thread(target=detect, args=("Guten Morgen",)) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(loads))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "1\n", done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs malloc_trim")
def test_whoever_has_waited_for_the_model_finds_the_memory_of_its_making_given_back() -> None:
    program = """
from serving.resident import give_back, resident_bytes
from serving.text.detection import load_detector

load_detector()
held = resident_bytes()
give_back()
print(held - resident_bytes())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert int(done.stdout) < 2**20, done.stderr  # 8 MiB in a process that holds nothing else


@functools.cache
def identifier() -> LanguageIdentifier:
    """py3langid as it comes, for the languages that are served."""
    whole = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    whole.set_languages(set(LANGUAGE_NAMES) & set(whole.labels))
    return whole


def drawn_texts(count: int) -> list[str]:
    """Words of the sentences in any order and cut anywhere, and any characters."""
    draw = random.Random(1)
    words = " ".join(SENTENCES.values()).split()
    texts = [" ".join(draw.choices(words, k=draw.randint(1, 40))) for _ in range(count)]
    anything = ["".join(chr(draw.randrange(32, 0x3000)) for _ in range(30)) for _ in range(count)]
    return [text[draw.randrange(4) :] for text in texts + anything]


@pytest.mark.parametrize("text", [*SENTENCES.values(), *drawn_texts(20)])
def test_a_smaller_table_changes_nothing(text: str) -> None:
    expected = identifier().rank(text) if any(map(str.isalpha, text)) else []
    assert detect(text) == [(code, float(probability)) for code, probability in expected]


@given(
    typecode=st.sampled_from("HIL"),
    pieces=st.lists(st.integers(0, 3), max_size=20),
    rest=st.lists(st.integers(0, 9), max_size=15),
)
def test_pieces_that_are_shared_keep_every_number(
    typecode: str, pieces: list[int], rest: list[int]
) -> None:
    numbers = [number for piece in pieces for number in range(piece, piece + 16)] + rest
    shared = SharedPieces(array(typecode, numbers))
    assert [shared[index] for index in range(len(numbers))] == numbers


def test_the_table_is_several_times_smaller() -> None:
    table = identifier().tk_nextmove
    tracemalloc.start()
    shared = SharedPieces(table)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < len(table) * table.itemsize / 5
    assert shared[0] == table[0]
