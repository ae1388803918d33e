"""HTML pages that need no other file."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from pathlib import Path

from training.errors import ConfigError
from training.runs.replacing import check_free


def check_free_page(page: Path, others: Iterable[Path] = (), *, force: bool) -> None:
    """Raise ConfigError if `page` is not called .html, or it or one of the files beside it is
    there already and `force` is not given."""
    if page.suffix != ".html":
        raise ConfigError(f"the page's file must end in .html, got {page}")
    for path in (page, *others):
        check_free(path, force=force)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of plain texts, which are escaped."""
    lines = [_row("th", head), *(_row("td", row) for row in rows)]
    return "<table>\n" + "\n".join(lines) + "\n</table>"


def _row(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def page(title: str, body: str) -> str:
    """A whole page; `body` is HTML."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{html.escape(title)}</title>
<style>
body {{ font: 15px/1.5 sans-serif; margin: 2em auto; max-width: 1100px; padding: 0 1em }}
table {{ border-collapse: collapse; margin: 1em 0 }}
td, th {{ border-bottom: 1px solid #ccc; padding: .3em .8em; text-align: left }}
svg {{ height: auto; max-width: 100% }}
</style>
</head>
<body>
<h1>{html.escape(title)}</h1>
{body}
</body>
</html>
"""
