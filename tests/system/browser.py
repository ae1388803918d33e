"""A real Chromium without a window, and what the page asked for and complained of in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
"""Programs that will do, the fastest to start first."""


def find_chromium() -> str | None:
    """The first of NAMES on the PATH."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser; it is closed at the end."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium())
        yield browser
        browser.close()


@dataclass
class Visit:
    """One visit to the page, in a profile of its own."""

    page: Page
    requests: list[str] = field(default_factory=list)
    """Addresses of all that was asked for, in order."""
    complaints: list[str] = field(default_factory=list)
    """Errors and warnings of the console, violations of the policy among them."""

    def bodies(self, path: str) -> int:
        """How many requests went to a path."""
        return sum(address.partition("?")[0].endswith(path) for address in self.requests)


@contextmanager
def visit(browser: Browser, **options: Any) -> Iterator[Visit]:
    """Open a profile with an empty page; options are those of playwright's `new_context`."""
    context = browser.new_context(**options)
    context.set_default_timeout(20_000)
    page = context.new_page()
    found = Visit(page)

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            found.complaints.append(message.text)

    page.on("request", lambda request: found.requests.append(request.url))
    page.on("console", note)
    page.on("pageerror", lambda error: found.complaints.append(str(error)))
    try:
        yield found
    finally:
        context.close()


def said(page: Page, text: str) -> None:
    """The translation, once it is there."""
    expect(page.get_by_role("group", name="Translation")).to_have_text(text)
