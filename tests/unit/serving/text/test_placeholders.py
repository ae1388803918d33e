"""What counts as a placeholder."""

from __future__ import annotations

import pytest

from serving.text.placeholders import numbered_tags, placeholders


def found(text: str) -> list[str]:
    return [text[slice(*placeholder.span)] for placeholder in placeholders(text)]


@pytest.mark.parametrize(
    "placeholder",
    [
        "{name}", "{0}", "{}", "{user.name}", "{items[0]}", "{price:.2f}", "{x!r}",
        "{{x}}", "{{ user.name|upper }}", "{% if a %}", "${x}", "${a.b}",
        "%s", "%d", "%(x)d", "%1$s", "%.2f", "%-5d", "%ld", "%@",
        "https://example.com/a?b=1&c=%20#d", "http://x.org", "www.example.com/x",
        "a.b+c@example.co.uk",
    ],
)  # fmt: skip
def test_placeholders(placeholder: str) -> None:
    assert found(placeholder) == [placeholder]
    assert found(f"Text vor {placeholder} und danach") == [placeholder]
    assert found(f"({placeholder}), {placeholder}.") == [placeholder, placeholder]


@pytest.mark.parametrize(
    "text",
    ["100 % der Leute", "50%", "5% sind", "{siehe oben}", "a-b", "http:", "%something", "f(x)"],
)
def test_what_is_text(text: str) -> None:
    assert found(text) == []


def test_a_bracket_of_its_own_belongs_to_a_link() -> None:
    assert found("https://x.org/a_(b)") == ["https://x.org/a_(b)"]
    assert found("(https://x.org/a)!") == ["https://x.org/a"]


def test_numbered_tags() -> None:
    text = "<0>hier</0> <1/> <a> <12 />"
    assert [(text[slice(*span)], number, kind) for span, number, kind in numbered_tags(text)] == [
        ("<0>", "0", "open"),
        ("</0>", "0", "close"),
        ("<1/>", "1", "thing"),
        ("<12 />", "12", "thing"),
    ]
