"""The README's picture shows the figures of the table in docs/background/benchmarks.md."""

from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.reports.picture import SYSTEMS, speed_svg

ROOT = Path(__file__).resolve().parents[4]
COMMAND = "engine --shape base"


def document(systems: tuple[str, ...]) -> str:
    rows = [
        f"| {batch} | 5 | {system} | 1 x 2 | {10 * (number + 1)}.0 (1-2) | 9 | 9 | 1 | 1.9 |"
        for batch in (1, 32)
        for number, system in enumerate(systems)
    ]
    return "\n".join([f"<!-- run: python -m bench {COMMAND} -->", *rows, "<!-- end -->"])


def test_bars_are_as_long_as_the_systems_are_fast() -> None:
    drawn = speed_svg(document(SYSTEMS), COMMAND)
    assert drawn.count('width="420.0"') == 2
    assert drawn.count('width="210.0"') == 2
    assert "100.0 (1.90 times CTranslate2)" in drawn


def test_a_table_that_lacks_a_system_is_refused() -> None:
    with pytest.raises(BenchError, match="lacks one of"):
        speed_svg(document(SYSTEMS[:2]), COMMAND)
    with pytest.raises(BenchError, match="no table"):
        speed_svg(document(SYSTEMS), "other")


def test_the_picture_is_that_of_the_table() -> None:
    text = (ROOT / "docs/background/benchmarks.md").read_text(encoding="utf-8")
    written = (ROOT / "docs/images/speed.svg").read_text(encoding="utf-8")
    assert written == speed_svg(text, COMMAND), "run: python -m bench picture"
