"""The playground in a real Chromium, against `bentoml serve` with the demo bundles."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.system.browser import NAMES, Visit, find_chromium, visit
from tests.system.server import ROOT, Server, running
from tests.unit.serving.documents.packages import docx

if find_chromium() is None:
    pytest.skip(
        f"the page is not tested: none of {', '.join(NAMES)} is on the PATH",
        allow_module_level=True,
    )

GERMAN = "Ich habe heute keine Zeit."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(ROOT / "models", tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def visited(browser: Browser, server: Server) -> Iterator[Visit]:
    """A visit that must end without a request to elsewhere, an error or a breach of the policy."""
    with visit(browser, viewport={"width": 1200, "height": 900}) as found:
        yield found
        assert found.complaints == []
        assert {origin(address) for address in found.requests} == {server.url}


@pytest.fixture
def page(visited: Visit, server: Server) -> Page:
    """The page, opened."""
    return opened(visited, server)


def origin(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"


def opened(visited: Visit, server: Server, **parameters: str) -> Page:
    visited.page.goto(f"{server.url}/?{urlencode({**parameters, 'q': parameters.get('q', '')})}")
    expect(visited.page.get_by_label("Text to translate")).to_be_visible()
    return visited.page


def choice(page: Page, name: str) -> Locator:
    return page.get_by_role("combobox", name=name, exact=True)


def output(page: Page) -> Locator:
    return page.get_by_role("group", name="Translation")


def most_characters(server: Server) -> int:
    limits = httpx.get(f"{server.url}/limits", timeout=60).json()["limits"]
    return next(limit["value"] for limit in limits if limit["name"] == "max_text_chars")


def translated(page: Page, text: str = GERMAN) -> str:
    """Type a text; its translation, once it is there."""
    page.get_by_label("Text to translate").fill(text)
    expect(page.get_by_role("status")).to_contain_text("Translation: ")
    expect(output(page)).to_have_attribute("aria-busy", "false")
    return output(page).inner_text()


def test_what_is_typed_is_translated(page: Page, server: Server) -> None:
    page.get_by_label("Text to translate").press_sequentially(GERMAN, delay=10)
    answer = server.ask(GERMAN, alternatives=2).json()
    expect(output(page)).to_have_text(answer["translatedText"])
    expect(page.locator("#details")).to_contain_text("macaron-de-en · queue ")
    limit = most_characters(server)
    expect(page.locator("#counter")).to_have_text(f"{len(GERMAN)} / {limit} characters")
    rows = page.get_by_role("region", name="Hypotheses").locator("tbody tr")
    expect(rows).to_have_count(3)
    for row, hypothesis in zip(rows.all(), answer["translations"][0]["hypotheses"], strict=True):
        expect(row).to_contain_text(hypothesis["text"])
        expect(row).to_contain_text(f"{hypothesis['score']:.3f}")
    page.get_by_role("button", name="Clear").click()
    expect(output(page)).to_have_text("")
    expect(page.locator("#answer")).to_be_hidden()


def test_ctrl_enter_does_not_wait(visited: Visit, page: Page) -> None:
    page.clock.install()  # time stands still: what waits for a pause in typing waits for ever
    box = page.get_by_label("Text to translate")
    box.fill("Guten Morgen!")
    assert visited.bodies("/translate") == 0
    box.press("Control+Enter")
    expect(output(page)).to_have_text("Good morning!")
    page.clock.run_for(5000)
    assert visited.bodies("/translate") == 1


def test_typing_on_calls_off_the_request_before(visited: Visit, page: Page) -> None:
    held: list[Route] = []
    failures: list[str | None] = []
    page.on("requestfailed", lambda request: failures.append(request.failure))

    def hold_the_first(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route("**/translate", hold_the_first)
    box = page.get_by_label("Text to translate")
    with page.expect_request("**/translate"):
        box.fill("Guten Abend!")
    with page.expect_event("requestfailed"):
        box.fill("Guten Morgen!")
    expect(output(page)).to_have_text("Good morning!")
    assert failures == ["net::ERR_ABORTED"]
    assert visited.bodies("/translate") == 2


def test_languages_are_swapped_with_the_text(page: Page, server: Server) -> None:
    english = translated(page)
    page.get_by_role("button", name="Swap the languages").click()
    expect(choice(page, "From")).to_have_value("en")
    expect(choice(page, "to")).to_have_value("de")
    expect(page.get_by_label("Text to translate")).to_have_value(english)
    wanted = server.ask(english, source="en", target="de").json()["translatedText"]
    expect(output(page)).to_have_text(wanted)


def test_a_word_has_alternatives(page: Page) -> None:
    before = translated(page)
    words = output(page).get_by_role("button")
    with page.expect_request("**/translate") as asked:
        words.nth(1).click()
    assert asked.value.post_data_json["options"]["return_alternatives"] is True
    menu = page.get_by_role("menu", name="Alternatives")
    expect(menu).to_be_visible()
    expect(menu.get_by_role("menuitem")).to_have_count(6)
    first = menu.get_by_role("menuitem").first
    expect(first).to_be_focused()
    page.keyboard.press("Escape")
    expect(menu).to_be_hidden()
    expect(words.nth(1)).to_be_focused()

    page.keyboard.press("Enter")
    expect(menu).to_be_visible()
    items = menu.get_by_role("menuitem")
    chosen = next(
        number
        for number, item in enumerate(items.all())
        if item.locator("strong").inner_text() != words.nth(1).inner_text()
    )
    word = items.nth(chosen).locator("strong").inner_text()
    for _ in range(chosen):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(words.nth(1)).to_have_text(word)
    expect(words.nth(1)).to_be_focused()
    assert output(page).inner_text().startswith(f"{before.split()[0]} {word}")
    page.get_by_role("button", name="Let the translation begin freely").click()
    expect(output(page)).to_have_text(before)


def test_arrow_keys_move_between_the_words(page: Page) -> None:
    translated(page)
    words = output(page).get_by_role("button")
    count = words.count()
    words.first.focus()
    for key, number in [("ArrowRight", 1), ("End", count - 1), ("ArrowRight", count - 1)]:
        page.keyboard.press(key)
        expect(words.nth(number)).to_be_focused()
    assert [word.get_attribute("tabindex") for word in words.all()].count("0") == 1


def test_linked_words_light_up_on_both_sides(page: Page) -> None:
    assert translated(page) == "I don't have time today."
    source, target = page.locator("#mirror .linked"), page.locator("#output .linked")
    words = output(page).get_by_role("button")
    words.nth(1).hover()
    expect(source).to_have_text(["keine"])
    expect(target).to_have_text(["don't"])
    words.first.focus()
    expect(source).to_have_text(["Ich"])
    page.keyboard.press("End")
    expect(source).to_have_text(["heute"])

    box = page.get_by_label("Text to translate")
    place = page.locator("#mirror span").nth(3).bounding_box()
    assert place is not None
    page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    expect(source).to_have_text(["keine"])
    expect(target).to_have_text(["don't"])
    page.mouse.move(0, 0)
    expect(target).to_have_count(0)
    box.press("Control+Home")  # the caret points as well
    expect(target).to_have_text(["I"])
    box.press("End")
    box.press_sequentially(" ")
    expect(target).to_have_count(0)


def test_a_detected_language_is_reported_and_used(page: Page) -> None:
    choice(page, "From").select_option("Detect language")
    choice(page, "to").select_option("English")
    swap = page.get_by_role("button", name="Swap the languages")
    expect(swap).to_be_disabled()
    translated(page)
    expect(page.locator("#detected")).to_have_text(re.compile(r"^detected German \(\d+ %\)$"))
    swap.click()
    expect(choice(page, "From")).to_have_value("en")
    expect(choice(page, "to")).to_have_value("de")


def test_words_and_scores_are_found_by_position(page: Page) -> None:
    found = page.evaluate(
        """async () => {
            const { words, crossLinks, wordProbabilities } = await import("/web/words.js");
            const [source, target] = [words("😀 gut, ja"), words("yes 😀 well")];
            const alignment = [
                { source: [2, 5], target: [6, 10] }, // code points: the smiley counts once
                { source: [7, 9], target: [0, 3] },
            ];
            const { toSource, toTarget } = crossLinks(source, target, alignment);
            const scores = wordProbabilities(
                target, "yes 😀 well", ["▁yes", "<0xF0>", "▁we", "ll"], [0, -9, -2, -1, -3]);
            return [toSource.map((s) => [...s]), toTarget.map((s) => [...s]), scores];
        }"""
    )
    assert found[:2] == [[[1], [0]], [[1], [0]]]
    assert found[2] == [1, pytest.approx(0.1353, abs=1e-4)]


def test_unlikely_words_are_marked(page: Page, server: Server) -> None:
    text = "Der Quastenflosser schnarcht."
    translated(page, text)
    [best] = server.ask(text).json()["translations"][0]["hypotheses"]
    unsure = output(page).locator(".unsure")
    assert min(best["token_scores"]) < -1.6  # else this text is no example
    expect(output(page).locator(".very-unsure").first).to_have_attribute(
        "title", re.compile(r"^probability 1?\d %$")
    )
    assert unsure.count() > 0


def test_html_is_shown_as_it_is_written(page: Page, server: Server) -> None:
    text = "<p>Ich habe <b>heute</b> keine Zeit.</p>"
    page.get_by_label("HTML").check()
    wanted = server.ask(text, format="html").json()["translatedText"]
    assert translated(page, text) == wanted
    assert "<b>today</b>" in wanted
    expect(output(page).locator("*")).to_have_count(0)


def test_a_prefix_is_that_of_the_whole_text(page: Page) -> None:
    before = translated(page, "Guten Morgen! Ich habe keine Zeit.")
    word = output(page).get_by_role("button").last
    last = word.inner_text()
    word.click()
    menu = page.get_by_role("menu", name="Alternatives")
    other = menu.get_by_role("menuitem").filter(has_not_text=re.compile(f"^{last}")).first
    beginning = other.locator("strong").inner_text()
    other.click()
    expect(output(page)).to_contain_text(f"{before.rpartition(last)[0]}{beginning}")


def test_a_text_that_is_too_long_is_refused(visited: Visit, page: Page, server: Server) -> None:
    limit = most_characters(server)
    page.get_by_label("Text to translate").fill("a" * (limit + 1))
    expect(page.get_by_role("alert")).to_contain_text(
        f"has {limit + 1} characters; this server takes {limit} (MACARON_MAX_TEXT_CHARS)"
    )
    expect(page.locator("#counter")).to_have_class(re.compile("over"))
    assert visited.bodies("/translate") == 0
    page.get_by_role("button", name="Dismiss the message").click()
    expect(page.get_by_role("alert")).to_be_hidden()


def test_the_servers_own_error_is_shown(visited: Visit, page: Page, server: Server) -> None:
    translated(page)
    page.get_by_text("Options").click()
    page.get_by_label("Beam size").fill("2")
    wanted = server.ask(GERMAN, alternatives=2, options={"beam_size": 2}).json()["error"]
    expect(page.get_by_role("alert")).to_contain_text(wanted)
    page.get_by_role("spinbutton", name="Hypotheses").fill("2")
    expect(page.get_by_role("alert")).to_be_hidden()
    assert len(visited.complaints) == 1  # the browser logs every answer that is not 2xx
    assert "status of 400" in visited.complaints.pop()


def test_models_side_by_side(page: Page, server: Server) -> None:
    page.get_by_text("Options").click()
    page.get_by_label("Compare all models").check()
    text = "Wir gehen morgen schwimmen."  # another than elsewhere: that would be known already
    translated(page, text)
    rows = page.get_by_role("region", name="Models compared").locator("tbody tr")
    expect(rows).to_have_count(2)
    for row, model in zip(rows.all(), ["macaron-de-en", "joint-fast-de-en"], strict=True):
        cells = [cell.inner_text() for cell in row.locator("th, td").all()]
        wanted = server.ask(text, model=model).json()["translatedText"]
        assert cells[:2] == [model, wanted]
        queue, encode, decode, batch, round_trip = map(float, cells[3:])
        assert batch == 1
        assert encode > 0
        assert 0 < queue + encode + decode < round_trip


def test_address_names_languages_and_text(visited: Visit, server: Server) -> None:
    page = opened(visited, server, source="en", target="de", q="Good morning!")
    wanted = server.ask("Good morning!", source="en", target="de").json()["translatedText"]
    expect(output(page)).to_have_text(wanted)
    expect(choice(page, "From")).to_have_value("en")


def test_copying(browser: Browser, server: Server) -> None:
    permissions = ["clipboard-read", "clipboard-write"]
    with visit(browser, permissions=permissions) as visited:
        page = opened(visited, server, source="de", target="en", q="Guten Morgen!")
        expect(output(page)).to_have_text("Good morning!")
        page.locator("#copy").click()
        expect(page.locator("#copy")).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()") == "Good morning!"
        page.locator("#link").click()
        expect(page.locator("#link")).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()") == page.url


def test_snippets_do_what_the_page_did(page: Page) -> None:
    english = translated(page, "Wie geht's?")
    page.get_by_text("This request as code").first.click()
    code, form = page.locator("#snippet-code"), page.locator("#snippet-form")
    if shutil.which("curl"):
        for name in ("curl", "LibreTranslate, curl"):
            form.select_option(name)
            assert json.loads(run(["sh", "-c", code.inner_text()]))["translatedText"] == english
    form.select_option("Python")
    assert run([sys.executable, "-c", code.inner_text()]) == english
    form.select_option("LibreTranslate, Python")
    assert run([sys.executable, "-c", code.inner_text()]) == english


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_key_is_sent_and_not_shown(visited: Visit, server: Server) -> None:
    page = opened(visited, server, q="Guten Tag!")
    translated(page)
    page.get_by_label("API key").fill("secret")
    with page.expect_request("**/languages") as asked, page.expect_request("**/translate") as text:
        page.get_by_label("API key").press("Enter")
    assert asked.value.headers["authorization"] == "Bearer secret"
    assert text.value.headers["authorization"] == "Bearer secret"
    assert text.value.post_data_json["q"] == GERMAN
    page.get_by_text("This request as code").first.click()
    for form in page.locator("#snippet-form option").all():
        page.locator("#snippet-form").select_option(form.inner_text())
        shown = page.locator("#snippet-code").inner_text()
        assert "API_KEY" in shown
        assert "secret" not in shown
    other = page.context.new_page()  # another tab knows nothing of it
    other.goto(page.url)
    assert other.get_by_label("API key").input_value() == ""


def test_a_language_model_streams_and_stops(page: Page) -> None:
    page.get_by_role("tab", name="Generate").click()
    expect(page.get_by_role("tabpanel", name="Translate")).to_be_hidden()
    page.get_by_label("Prompt").fill("The film was")
    page.get_by_label("Max tokens").fill("40")
    page.get_by_label("Seed").fill("7")
    page.get_by_role("button", name="Generate").click()
    details, text = page.locator("#generated-details"), page.locator("#generated")
    expect(details).to_contain_text(re.compile(r"max tokens reached · 40 tokens · \d+ tokens/s"))
    page.locator("#completion-snippet summary").click()
    page.locator("#completion-snippet-form").select_option("OpenAI, Python")
    code = page.locator("#completion-snippet-code").inner_text()
    assert text.inner_text() == f"The film was {run([sys.executable, '-c', code])}"

    # A text of hundreds of tokens, which would be here in a fraction of a second.
    for label, value in (("Max tokens", "4000"), ("Temperature", "2"), ("Top p", "1")):
        page.get_by_label(label).fill(value)
    page.get_by_label("Seed").fill("6")
    slow = {"offline": False, "latency": 0, "downloadThroughput": 10_000, "uploadThroughput": -1}
    page.context.new_cdp_session(page).send("Network.emulateNetworkConditions", slow)
    page.get_by_label("Prompt").press("Control+Enter")
    expect(text).to_have_text(re.compile(".{40}", re.DOTALL))
    page.get_by_role("button", name="Stop").click()
    expect(details).to_have_text("stopped")
    shown = text.inner_text()
    page.wait_for_timeout(200)
    assert text.inner_text() == shown


def test_everything_can_be_reached_by_key_and_has_a_name(page: Page) -> None:
    translated(page)
    for summary in page.locator("summary").all():
        if summary.is_visible():
            summary.click()
    page.get_by_role("heading").click()  # Tab goes on from here
    reached = tab_order(page)
    labels = ["Translate", "API key", "From", "Swap", "Text to translate", "Clear", "Copy", "Beam"]
    places = [next(n for n, name in enumerate(reached) if label in name) for label in labels]
    assert places == sorted(places)
    stops = page.locator("a, button:enabled, input, select, textarea, summary")
    visible = sum(stop.is_visible() for stop in stops.all())
    assert len(reached) >= visible - 1  # of the tabs one is a stop
    assert nameless(page) == []


def tab_order(page: Page) -> list[str]:
    """Press Tab until it comes round; what each stop is called."""
    names: list[str] = []
    for _ in range(100):
        page.keyboard.press("Tab")
        name = page.evaluate(
            """() => {
                const e = document.activeElement;
                if (e === document.body) return null;
                return e.ariaLabel ?? e.labels?.[0]?.textContent ?? e.textContent;
            }"""
        )
        if name is None:
            break
        names.append(name.strip())
    return names


CONTROLS = {
    "button", "checkbox", "combobox", "link", "menuitem", "spinbutton", "tab", "tabpanel", "textbox"
}  # fmt: skip


def nameless(page: Page) -> list[Any]:
    """Controls of the accessibility tree that have no name."""
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")
    controls = [
        node
        for node in tree["nodes"]
        if not node["ignored"] and node["role"]["value"].lower() in CONTROLS
    ]
    assert len(controls) > 10
    return [node for node in controls if not node.get("name", {}).get("value")]


def test_tabs_follow_the_arrow_keys(page: Page) -> None:
    first, second, *others = page.get_by_role("tab").all()
    first.focus()
    page.keyboard.press("ArrowRight")
    expect(second).to_be_focused()
    expect(second).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("tabpanel", name="Generate")).to_be_visible()
    for _ in (*others, first):
        page.keyboard.press("ArrowRight")
    expect(first).to_be_focused()
    expect(page.get_by_role("tabpanel", name="Translate")).to_be_visible()


def test_nothing_is_cut_off_at_360_pixels(browser: Browser, server: Server) -> None:
    with visit(browser, viewport={"width": 360, "height": 740}) as visited:
        page = opened(visited, server)
        page.get_by_text("Options").click()
        page.get_by_label("Compare all models").check()
        translated(page, "Donaudampfschifffahrtsgesellschaftskapitän " * 3)
        page.get_by_text("This request as code").first.click()
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        output(page).get_by_role("button").last.click()
        menu = page.get_by_role("menu", name="Alternatives")
        expect(menu).to_be_visible()
        box = menu.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
        page.keyboard.press("Escape")
        page.get_by_role("tab", name="Generate").click()
        assert page.evaluate("document.documentElement.scrollWidth") == 360


LUMINANCES = """() => {
    const luminance = (colour) => {
        const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((v) => {
            const c = v / 255;
            return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const solid = (node) => {
        const colour = getComputedStyle(node).backgroundColor;
        return colour.startsWith("rgba") ? solid(node.parentElement) : colour;
    };
    return [...document.querySelectorAll("body *")]
        .filter((node) => !node.closest("#mirror") && !node.disabled && node.checkVisibility())
        .filter((node) => [...node.childNodes].some((child) => child.nodeType === 3))
        .map((node) => [luminance(getComputedStyle(node).color), luminance(solid(node))]);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_schemes_are_the_systems_and_can_be_read(
    browser: Browser, server: Server, scheme: Any
) -> None:
    with visit(browser, color_scheme=scheme) as visited:
        page = opened(visited, server)
        translated(page)
        pairs = page.evaluate(LUMINANCES)
        assert len(pairs) > 20
        assert all((ground < 0.1) == (scheme == "dark") for _, ground in pairs)
        # WCAG 2.2, success criterion 1.4.3
        assert min((max(pair) + 0.05) / (min(pair) + 0.05) for pair in pairs) >= 4.5
        toggle = page.get_by_role("button", name="Dark")
        expect(toggle).to_have_attribute("aria-pressed", str(scheme == "dark").lower())
        toggle.click()
        pairs = page.evaluate(LUMINANCES)
        assert all((ground < 0.1) == (scheme == "light") for _, ground in pairs)


@pytest.mark.parametrize("source", ["auto", "de"])
def test_a_text_may_go_through_a_third_language(
    browser: Browser, server: Server, source: str
) -> None:
    text = "Wo ist der Bahnhof?"
    wanted = server.ask(text, source="de", target="fr").json()
    with visit(browser) as visited:
        page = opened(visited, server, source=source, target="fr", q=text)
        expect(output(page)).to_have_text(wanted["translatedText"])
        expect(page.locator("#details")).to_contain_text("pivot")
        expect(page.get_by_role("button", name="Swap")).to_be_enabled()


def test_the_data_of_every_model_are_named(page: Page, server: Server) -> None:
    cards = httpx.get(f"{server.url}/models", timeout=60).json()["models"]
    assert len(cards) == 7
    for card in cards:
        expect(page.get_by_role("contentinfo")).to_contain_text(card["attribution"])


def test_a_document_is_translated_and_fetched(visited: Visit, page: Page) -> None:
    page.get_by_label("Translate a document").set_input_files(
        {"name": "brief.txt", "mimeType": "text/plain", "buffer": GERMAN.encode()}
    )
    state = page.get_by_role("tabpanel", name="Translate").get_by_text("brief.txt is translated.")
    expect(state).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download brief.en.txt").click()
    assert download.value.suggested_filename == "brief.en.txt"
    assert "time" in download.value.path().read_text()
    ids = [address for address in visited.requests if "/documents/" in address]
    assert ids


DROP = """([name, text]) => {
    const dropped = new DataTransfer();
    if (name) dropped.items.add(new File([text], name, { type: "text/plain" }));
    else dropped.setData("text/plain", text);
    return dropped;
}"""


def test_a_file_that_is_dropped_is_translated(visited: Visit, page: Page) -> None:
    panel = page.get_by_role("tabpanel", name="Translate")
    dropped = page.evaluate_handle(DROP, ["brief.txt", GERMAN])
    panel.dispatch_event("dragover", {"dataTransfer": dropped})
    expect(panel).to_have_class(re.compile(r"\bdropping\b"))
    panel.dispatch_event("dragleave", {"dataTransfer": dropped})
    expect(panel).not_to_have_class(re.compile(r"\bdropping\b"))
    panel.dispatch_event("dragover", {"dataTransfer": dropped})
    panel.dispatch_event("drop", {"dataTransfer": dropped})
    expect(panel).not_to_have_class(re.compile(r"\bdropping\b"))
    expect(panel.get_by_text("brief.txt is translated.")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download brief.en.txt").click()
    assert "time" in download.value.path().read_text()
    assert visited.bodies("/documents") == 1


def test_a_text_that_is_dropped_is_no_document(visited: Visit, page: Page) -> None:
    panel = page.get_by_role("tabpanel", name="Translate")
    dropped = page.evaluate_handle(DROP, ["", GERMAN])
    panel.dispatch_event("dragover", {"dataTransfer": dropped})
    expect(panel).not_to_have_class(re.compile(r"\bdropping\b"))
    panel.dispatch_event("drop", {"dataTransfer": dropped})
    assert visited.bodies("/documents") == 0


@pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
def test_a_file_of_office_is_shown_before_and_after(page: Page) -> None:
    content = docx("<w:p><w:r><w:t>Guten Morgen!</w:t></w:r></w:p>")
    page.get_by_label("Translate a document").set_input_files(
        {"name": "brief.docx", "mimeType": "application/x", "buffer": content}
    )
    for which in ("before", "after"):
        picture = page.get_by_role("img", name=f"First page {which}")
        expect(picture).to_be_visible(timeout=120_000)
        assert picture.evaluate("image => image.naturalWidth") > 100


def test_a_document_of_no_known_kind_is_refused_in_plain_words(visited: Visit, page: Page) -> None:
    page.get_by_label("Translate a document").set_input_files(
        {"name": "a.exe", "mimeType": "application/octet-stream", "buffer": b"MZ"}
    )
    expect(page.get_by_role("alert")).to_contain_text("must be of a known kind")
    visited.complaints.clear()  # the browser's own line about the status 400


def test_a_document_that_takes_long_can_be_stopped(page: Page, server: Server) -> None:
    text = "\n\n".join(f"Absatz {n}: Heute regnet es, morgen nicht." for n in range(3000))
    page.get_by_label("Translate a document").set_input_files(
        {"name": "lang.txt", "mimeType": "text/plain", "buffer": text.encode()}
    )
    expect(page.get_by_role("progressbar")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("progressbar")).to_be_hidden()
