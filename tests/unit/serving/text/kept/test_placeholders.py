"""What counts as a placeholder."""

from __future__ import annotations

import pytest

from serving.text.kept.placeholders import numbered_tags, placeholders


def found(text: str) -> list[str]:
    return [text[slice(*placeholder.span)] for placeholder in placeholders(text)]


@pytest.mark.parametrize(
    "placeholder",
    [
        "{name}", "{0}", "{}", "{user.name}", "{items[0]}", "{price:.2f}", "{x!r}",
        "{{x}}", "{{ user.name|upper }}", "{% if a %}", "${x}", "${a.b}",
        "%s", "%S", "%1$S", "%C", "*.htm", "src/**/*.py", "~/x/a-*.tar.gz", "list-*@x.org",
        "%d", "%(x)d", "%1$s", "%.2f", "%-5d", "%ld", "%@",
        "https://example.com/a?b=1&c=%20#d", "http://x.org", "www.example.com/x",
        "a.b+c@example.co.uk", "effect_list.output", "a_b.c_d.e",
        "%1$tY", "%tB", "%1$te", "\\(name)", "\\(user.name)", "\\(f(x))", "%%NAME%%",
        "{0:dd MMM yyyy}", "{0,-10:N2}", "{day:%d. %B %Y}", "{0,date,long}", "{0,number,#,##0.0 €}",
        "{0,choice,0#none|1#one|1<{0} many}", "%dMB", "%.1fkm", "%luKB", "[code]a b[/code]",
        "[img=3x4]https://x.org/a.png[/img]", "[url]https://x.org[/url]",
        "example.com", "sub.example.co.uk", "www.beispiel.de", "müller.de", "example.org:8080",
        "bericht_2.pdf", "README.md", "setup.py", "!userName", "!user_name", "!count",
    ],
)  # fmt: skip
def test_placeholders(placeholder: str) -> None:
    assert found(placeholder) == [placeholder]
    assert found(f"Text vor {placeholder} und danach") == [placeholder]
    assert found(f"({placeholder}), {placeholder}.") == [placeholder, placeholder]


@pytest.mark.parametrize(
    "text",
    [
        "{siehe oben}",
        "a-b",
        "http:",
        "%something",
        "f(x)",
        "Ende.Dann",
        "das ende.dann",
        "z.B. so",
        "ja.nein",
        "1.5",
        "Sache !wichtig",
        "Nein!wichtig",
        "[siehe oben]",
        "[Wort] da",
        "u.a. so",
        "Ja.In",
    ],
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


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Gr\\u00fc\\u00dfe da", ["Gr\\u00fc\\u00dfe"]),
        ("\\u00e4hnlich", ["\\u00e4hnlich"]),
        ("Laden\\u2026 da", ["\\u2026"]),
        ("Zeile\\nNeu", ["\\n"]),
    ],
)
def test_an_escaped_letter_belongs_to_its_word(text: str, kept: list[str]) -> None:
    assert found(text) == kept


@pytest.mark.parametrize("name", [".NET", ".pdf", ".gitignore"])
def test_a_name_with_a_full_stop_at_its_beginning(name: str) -> None:
    assert found(f"Mit {name}. Dann ({name})") == [name, name]
    assert found("Er kam .Dann ging er ...und") == []


def test_a_name_behind_an_exclamation_mark_is_a_variable_at_the_beginning_of_a_text() -> None:
    assert found("!wichtig hier") == ["!wichtig"]
    assert found("Das !wichtig hier") == []


def test_a_full_stop_behind_a_host_or_a_file_belongs_to_the_sentence() -> None:
    assert found("Geh zu example.com. Dann") == ["example.com"]
    assert found("Geh zu example.com.Dann") == ["example.com"]
    assert found("Lies a.txt, b.pdf!") == ["a.txt", "b.pdf"]


def test_a_choice_has_its_texts_as_branches() -> None:
    text = "Es {0,choice,0#keine|1#eine|1<{0} {x|y} viele} da"
    (placeholder,) = placeholders(text)
    assert [text[slice(*branch)] for branch in placeholder.branches] == [
        "keine",
        "eine",
        "{0} {x|y} viele",
    ]
