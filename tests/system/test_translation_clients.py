"""Real clients of LibreTranslate's and DeepL's APIs, unmodified, against `bentoml serve`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import deepl
import docx
import pytest
import requests
from deepl.api_data import MultilingualGlossaryDictionaryEntries
from libretranslatepy import LibreTranslateAPI

from serving import Translator
from serving.documents.localisation.segments import tmx_pairs, written_tmx
from tests.days import today
from tests.system.server import Server, running

GERMAN = "Das ist ein ganz einfacher Satz."
KEY = "a-key-of-the-tests"
CHARS_PER_MINUTE = 12_000
"""So many that the other tests do not notice."""


@pytest.fixture(scope="module")
def bundles(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundles")
    shutil.copytree(tiny_bundle, folder / "tiny")
    return folder


@pytest.fixture(scope="module")
def server(bundles: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    scratch = tmp_path_factory.mktemp("server")
    settings = {
        "MACARON_API_KEYS": KEY,
        "MACARON_MAX_CHARS_PER_MINUTE": str(CHARS_PER_MINUTE),
        "MACARON_STORE": f"sqlite:///{scratch / 'store.db'}",
    }
    with running(bundles, scratch, **settings) as server:
        yield server


@pytest.fixture(scope="module")
def wanted(bundles: Path) -> dict[str, str]:
    """What the model makes of some texts, by the Python interface."""
    texts = [GERMAN, "Guten Morgen!", "Eins & zwei"]
    found = Translator(bundles / "tiny", threads=1).translate(texts)
    return {text: translation.text for text, translation in zip(texts, found, strict=True)}


@pytest.fixture
def libre(server: Server) -> LibreTranslateAPI:
    return LibreTranslateAPI(server.url, KEY)


@pytest.fixture
def client(server: Server) -> Iterator[deepl.DeepLClient]:
    client = deepl.DeepLClient(KEY, server_url=server.url)
    yield client
    client.close()


def test_libretranslatepy_translates(libre: LibreTranslateAPI, wanted: dict[str, str]) -> None:
    for text, translation in wanted.items():
        assert libre.translate(text, "de", "en") == translation
    assert libre.translate(GERMAN, "auto", "en") == wanted[GERMAN]
    assert libre.translate(GERMAN, "de-AT", "EN") == wanted[GERMAN]
    assert libre.translate(GERMAN, "en", "en-GB") == GERMAN


def test_the_deepl_client_keeps_and_uses_a_translation_memory(
    client: deepl.DeepLClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _, wait=time.sleep: wait(0.1))
    units = [("Seite 3 von 10.", "Page 3 of 10."), (GERMAN, "This is an easy one & short.")]
    tmx = tmp_path / "mine.tmx"
    tmx.write_bytes(b"".join(written_tmx(units, "de-DE", "en-GB")))
    job = client.import_translation_memory_from_filepath(tmx, display_name="mine", timeout_s=30)
    assert (job.status, job.result.skipped_segment_count) == ("completed", 0)
    memory = client.get_translation_memory(job.result.translation_memory_id)
    assert (memory.name, memory.source_language, memory.segment_count) == ("mine", "de", 2)
    listed = client.list_translation_memories(page=0, page_size=5)
    assert [each.translation_memory_id for each in listed] == [memory.translation_memory_id]
    first = client.list_translation_memory_segments(memory, page_size=1)
    rest = client.list_translation_memory_segments(memory, page_cursor=first.next_page_cursor)
    found = [(each.source_text, each.targets[0].target_text) for each in [*first, *rest]]
    assert (found, rest.next_page_cursor, rest.segment_count) == (units, None, 2)
    held = client.list_translation_memory_segments(memory, filter_text="easy one")
    assert [each.source_text for each in held] == [GERMAN]
    asked = ["Seite 7 von 12.", GERMAN.replace("ganz ", "")]
    settings = {"source_lang": "DE", "target_lang": "EN-GB", "translation_memory": memory}
    plain = client.translate_text(asked, source_lang="DE", target_lang="EN-GB")
    used = client.translate_text(asked, **settings)
    assert [each.text for each in used] == ["Page 7 of 12.", "This is an easy one & short."]
    strict = client.translate_text(asked, **settings, translation_memory_threshold=100)
    assert [each.text for each in strict] == ["Page 7 of 12.", plain[1].text]
    exported = tmp_path / "out.tmx"
    client.export_translation_memory_to_filepath(memory, exported, timeout_s=30)
    with exported.open("rb") as file:
        assert list(tmx_pairs(file, "de", "en")) == units
    client.delete_translation_memory(memory)
    assert client.list_translation_memories() == []
    with pytest.raises(deepl.DeepLException, match="no memory has the id"):
        client.translate_text(asked, **settings)
    tmx.write_text("<tmx><body><tu>")
    with pytest.raises(deepl.DeepLException, match="well-formed"):
        client.import_translation_memory_from_filepath(tmx, timeout_s=30)


def test_libretranslatepy_detects(libre: LibreTranslateAPI) -> None:
    best = libre.detect(GERMAN)[0]
    assert best["language"] == "de"
    assert 50 < best["confidence"] <= 100


def test_libretranslatepy_lists_languages(libre: LibreTranslateAPI) -> None:
    languages = {language["code"]: language for language in libre.languages()}
    assert languages["de"]["name"] == "German"
    assert languages["de"]["targets"] == ["en"]


def test_libretranslatepy_raises(libre: LibreTranslateAPI) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        libre.translate("Hallo", "de", "xx")
    assert refused.value.code == 400
    answer = json.load(refused.value)
    assert answer["error"] == "xx is not supported"
    assert "target must be one of ['en']" in answer["hint"]


@pytest.mark.parametrize(("key", "status"), [("another-key", 403), (None, 401)])
def test_libretranslatepy_needs_a_key(server: Server, key: str | None, status: int) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        LibreTranslateAPI(server.url, key).translate("Hallo", "de", "en")
    assert refused.value.code == status
    assert "key" in json.load(refused.value)["error"]


def test_files_are_translated_as_libretranslates_page_has_it_done(
    server: Server, wanted: dict[str, str]
) -> None:
    # libretranslatepy 2.1.4 has no call for files: these are the requests of the page's app.js.
    settings = requests.get(f"{server.url}/frontend/settings", timeout=30).json()
    assert settings["filesTranslation"]
    assert {".txt", ".docx", ".odt", ".pdf"} <= set(settings["supportedFilesFormat"])

    def sent(name: str, content: bytes, **others: str) -> requests.Response:
        fields = {"source": "de", "target": "en", "api_key": KEY, **others}
        url = f"{server.url}/translate_file"
        return requests.post(url, files={"file": (name, content)}, data=fields, timeout=60)

    text = f"{GERMAN}\r\n\r\nGuten Morgen!\r\n"
    done = sent("brief.txt", text.encode())
    assert (done.status_code, list(done.json())) == (200, ["translatedFileUrl"])
    address = done.json()["translatedFileUrl"]
    assert re.fullmatch(rf"{re.escape(server.url)}/download_file/\w+\.txt", address)
    fetched = requests.get(address, timeout=30)  # by a link, which brings no key
    translated = text.replace(GERMAN, wanted[GERMAN])
    assert fetched.content.decode() == translated.replace("Guten Morgen!", wanted["Guten Morgen!"])
    assert "attachment" in fetched.headers["content-disposition"]
    assert "brief.en.txt" in fetched.headers["content-disposition"]
    assert requests.get(address, timeout=30).content == fetched.content
    detected = sent("brief.txt", text.encode(), source="auto").json()["translatedFileUrl"]
    assert requests.get(detected, timeout=30).content == fetched.content

    for name, content, fields, status, message in (
        ("a.exe", b"MZ", {}, 400, "must be of a known kind"),
        ("a.txt", b"Ja", {"target": ""}, 400, "Invalid request: missing target parameter"),
        ("a.txt", b"Ja", {"target": "xx"}, 400, "xx is not supported"),
        ("a.csv", b"id,text\n", {}, 400, "in the field columns of /documents"),
        ("a.txt", b"Ja", {"api_key": "another"}, 403, "key"),
        ("a.docx", b"PK\x03\x04 broken", {}, 400, "broken zip file"),
    ):
        refused = sent(name, content, **fields)
        assert refused.status_code == status
        assert message in refused.json()["error"]
    other = re.sub(r"\w+\.txt", f"{'0' * 32}.txt", address)
    assert requests.get(other, timeout=30).status_code == 404


def test_deepl_translates_files(
    client: deepl.DeepLClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleep = time.sleep
    monkeypatch.setattr("deepl.translator.time.sleep", lambda _: sleep(0.1))  # it waits 5 s
    document = docx.Document()
    document.add_paragraph("child ").add_run("book").bold = True  # words that the model copies
    source, target = tmp_path / "a.docx", tmp_path / "b.docx"
    document.save(str(source))
    glossary = client.create_glossary("of files", "DE", "EN", {"book": "dawn"})
    status = client.translate_document_from_filepath(
        source,
        target,
        source_lang="DE",
        target_lang="EN-GB",
        glossary=glossary,
        formality=deepl.Formality.PREFER_MORE,
    )
    assert status.done
    assert status.billed_characters == len("child book")
    (paragraph,) = docx.Document(str(target)).paragraphs
    assert paragraph.text == "child dawn"
    assert [run.text for run in paragraph.runs if run.bold] == ["dawn"]
    for name, wish in (("a.docx", "pdf"), ("a.pdf", "odt"), ("a.pdf", "pdf")):
        with pytest.raises(deepl.DeepLException, match="'output_format' must be what the file"):
            client.translate_document_upload(
                b"%PDF-1.7", target_lang="EN-GB", filename=name, output_format=wish
            )
    broken = client.translate_document_upload(
        b"%PDF-1.7", target_lang="EN-GB", filename="a.pdf", output_format="docx"
    )
    failed = client.translate_document_wait_until_done(broken, timeout_s=20)
    assert not failed.ok
    assert "PDF" in (failed.error_message or "")
    for missing in ({"filename": "a.exe"}, {"filename": "a.docx", "source_lang": "XX"}):
        with pytest.raises(deepl.DeepLException):
            client.translate_document_upload(b"MZ", target_lang="EN-GB", **missing)
    with pytest.raises(deepl.DeepLException):
        client.translate_document_get_status(deepl.DocumentHandle("0" * 32, "0" * 64))


def test_deepl_translates(client: deepl.DeepLClient, wanted: dict[str, str]) -> None:
    single = client.translate_text(GERMAN, source_lang="DE", target_lang="EN-GB")
    assert isinstance(single, deepl.TextResult)
    assert single.text == wanted[GERMAN]
    assert single.detected_source_lang == "DE"
    assert single.billed_characters == len(GERMAN)
    several = client.translate_text(list(wanted), source_lang="de", target_lang="en-us")
    assert isinstance(several, list)
    assert [result.text for result in several] == list(wanted.values())


def test_deepl_keeps_a_text_that_is_in_its_target_language(client: deepl.DeepLClient) -> None:
    result = client.translate_text("A <b>dog</b>.", source_lang="EN", target_lang="EN-GB")
    assert isinstance(result, deepl.TextResult)
    assert result.text == "A <b>dog</b>."


def test_deepl_detects(client: deepl.DeepLClient, wanted: dict[str, str]) -> None:
    result = client.translate_text(GERMAN, target_lang="EN-US", model_type="quality_optimized")
    assert isinstance(result, deepl.TextResult)
    assert (result.text, result.detected_source_lang) == (wanted[GERMAN], "DE")
    assert result.model_type_used == "quality_optimized"


@pytest.mark.parametrize("kind", ["html", "xml"])
def test_deepl_keeps_tags(client: deepl.DeepLClient, kind: str) -> None:
    result = client.translate_text(
        "<p>Guten <b>Morgen</b>!</p>", source_lang="DE", target_lang="EN-US", tag_handling=kind
    )
    assert isinstance(result, deepl.TextResult)
    assert result.text.startswith("<p>")
    assert result.text.endswith("</p>")
    assert result.text.count("<b>") == result.text.count("</b>") == 1


def test_deepl_lists_languages(client: deepl.DeepLClient) -> None:
    assert [str(language) for language in client.get_source_languages()] == ["DE"]
    targets = client.get_target_languages()
    assert [str(language) for language in targets] == ["EN-GB", "EN-US"]
    assert not any(language.supports_formality for language in targets)


def test_deepl_keeps_glossaries_of_one_pair(client: deepl.DeepLClient) -> None:
    (pair,) = client.get_glossary_languages()
    assert (pair.source_lang, pair.target_lang) == ("de", "en")
    made = client.create_glossary("mine", "DE", "EN-US", {"Satz": "phrase", "Morgen": "dawn"})
    assert (made.name, made.ready, made.entry_count) == ("mine", True, 2)
    assert abs(made.creation_time.timestamp() - time.time()) < 60
    found = client.get_glossary(made.glossary_id)
    assert (found.source_lang, found.target_lang, found.entry_count) == ("DE", "EN", 2)
    assert made.glossary_id in [each.glossary_id for each in client.list_glossaries()]
    assert client.get_glossary_entries(made) == {"Satz": "phrase", "Morgen": "dawn"}
    csv = client.create_glossary_from_csv("csv", "DE", "EN", "Satz,phrase,de,en\nTag,day\n")
    assert client.get_glossary_entries(csv) == {"Satz": "phrase", "Tag": "day"}
    with pytest.raises(deepl.DeepLException, match="a language pair that a model translates"):
        client.create_glossary("mine", "EN", "DE", {"dog": "Hund"})
    for glossary in (made, csv):
        client.delete_glossary(glossary)
        with pytest.raises(deepl.GlossaryNotFoundException):
            client.get_glossary(glossary.glossary_id)


def test_deepl_keeps_glossaries_of_several_pairs(client: deepl.DeepLClient) -> None:
    pair = {"source_lang": "DE", "target_lang": "EN"}
    entries = MultilingualGlossaryDictionaryEntries("DE", "EN", {"Satz": "phrase"})
    more = MultilingualGlossaryDictionaryEntries("DE", "EN", {"Tag": "day"})
    made = client.create_multilingual_glossary("mine", [entries])
    assert [each.entry_count for each in made.dictionaries] == [1]
    assert client.update_multilingual_glossary_name(made, "new").name == "new"
    patched = client.update_multilingual_glossary_dictionary(made, more)
    assert [each.entry_count for each in patched.dictionaries] == [2]
    (found,) = client.get_multilingual_glossary_entries(made, **pair).dictionaries
    assert str(found.entries) == "Satz\tphrase\nTag\tday"
    replaced = client.replace_multilingual_glossary_dictionary_from_csv(
        made, csv_data="Hof,yard", **pair
    )
    assert (replaced.source_lang, replaced.entry_count) == ("DE", 1)
    listed = client.list_multilingual_glossaries()
    assert made.glossary_id in [each.glossary_id for each in listed]
    client.delete_multilingual_glossary_dictionary(made, **pair)
    assert client.get_multilingual_glossary(made.glossary_id).dictionaries == []
    client.delete_multilingual_glossary(made)
    with pytest.raises(deepl.GlossaryNotFoundException):
        client.get_multilingual_glossary(made.glossary_id)


def test_deepl_translates_with_glossaries(
    client: deepl.DeepLClient, wanted: dict[str, str]
) -> None:
    # Whatever words the small model's attention is at.
    words = re.findall(r"\w+", GERMAN)
    single = client.create_glossary("mine", "DE", "EN", dict.fromkeys(words, "XXX"))
    other = client.create_glossary("other", "DE", "EN", dict.fromkeys(words, "YYY"))
    pair = {"source_lang": "DE", "target_lang": "EN-US"}

    def ask(**fields: Any) -> str:
        result = client.translate_text(GERMAN, **pair, **fields)
        assert isinstance(result, deepl.TextResult)
        return result.text

    assert "XXX" in ask(glossary=single)
    assert "XXX" in client.translate_text_with_glossary(GERMAN, single, target_lang="EN-US").text
    both = ask(glossary_ids=[other, single])
    assert "YYY" in both
    assert "XXX" not in both
    assert ask() == wanted[GERMAN]
    with pytest.raises(deepl.DeepLException, match="no glossary has the id"):
        ask(glossary="not-there")


def test_deepl_clients_learn_what_is_not_there(client: deepl.DeepLClient) -> None:
    with pytest.raises(deepl.DeepLException, match="not corrected or rewritten on this server"):
        client.rephrase_text(GERMAN)
    assert client.get_all_style_rules() == []
    with pytest.raises(deepl.DeepLException, match="style rules are not supported"):
        client.create_style_rule("mine", "de")
    with pytest.raises(deepl.DeepLException, match="'style_id' is not supported"):
        client.translate_text(GERMAN, target_lang="EN-US", style_rule="a-b")


def test_deepl_translates_without_the_context(
    client: deepl.DeepLClient, wanted: dict[str, str]
) -> None:
    result = client.translate_text(GERMAN, target_lang="EN-US", context="Among friends.")
    assert isinstance(result, deepl.TextResult)
    assert result.text == wanted[GERMAN]


def test_deepl_counts_usage(client: deepl.DeepLClient) -> None:
    today()
    before = client.get_usage().character
    client.translate_text(GERMAN, source_lang="DE", target_lang="EN-US")
    after = client.get_usage().character
    assert after.count - before.count == len(GERMAN)
    assert not after.limit_reached


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"target_lang": "XX"}, "target_lang.*not supported"),
        ({"target_lang": "EN-US", "source_lang": "XX"}, "source_lang.*not supported"),
        ({"target_lang": "EN-US", "formality": "more"}, "formality.*target_lang"),
        ({"target_lang": "EN-US", "split_sentences": "invalid"}, "split_sentences"),
    ],
)
def test_deepl_raises(client: deepl.DeepLClient, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(deepl.DeepLException, match=message):
        client.translate_text(GERMAN, **fields)


def test_deepl_needs_a_key(server: Server) -> None:
    client = deepl.DeepLClient("another-key", server_url=server.url)
    with pytest.raises(deepl.AuthorizationException, match="not known to this server"):
        client.translate_text(GERMAN, target_lang="EN-US")
    with pytest.raises(deepl.AuthorizationException):
        client.get_usage()
    client.close()


def test_deepls_command_line(server: Server, wanted: dict[str, str]) -> None:
    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "deepl", "--server-url", server.url, *arguments],
            env=os.environ | {"DEEPL_AUTH_KEY": KEY},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    found = run("text", "--from", "DE", "--to", "EN-US", *wanted)
    assert found.splitlines() == list(wanted.values())
    assert "EN-US: English (American)" in run("languages")
    assert "Characters: " in run("usage")


def test_deepl_backs_off_and_is_served_in_the_end(
    server: Server, client: deepl.DeepLClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[float, int]] = []
    send = requests.Session.send

    def note(*arguments: Any, **options: Any) -> requests.Response:
        begin = time.monotonic()
        response = send(*arguments, **options)
        sent.append((begin, response.status_code))
        return response

    monkeypatch.setattr(requests.Session, "send", note)
    # Blank texts are answered at once, but count: a debt of two seconds.
    blank = [" " * 4000] * 3 + [" " * (CHARS_PER_MINUTE // 30)]
    assert server.ask(blank, api_key=KEY).status_code == 200
    result = client.translate_text(GERMAN, source_lang="DE", target_lang="EN-US")
    assert isinstance(result, deepl.TextResult)
    times, statuses = zip(*sent, strict=True)
    assert statuses == (429,) * (len(sent) - 1) + (200,)
    assert 2 <= len(sent) <= 4
    assert all(after - before > 0.7 for before, after in pairwise(times))
