"""The table of what a store costs a request."""

from __future__ import annotations

from bench.reports.report import Machine
from bench.runs.decoding.stored import StoreCosts, store_markdown


def test_ratios_are_those_of_the_rounds_to_the_first_server() -> None:
    machine = Machine("cpu", 2, 2, 4.0, 0.0)
    costs = [
        StoreCosts("before", "a number", [1.0, 2.0, 4.0], [2.0, 2.0, 2.0]),
        StoreCosts("with a store", "a number", [1.1, 2.2, 4.4], [3.0, 3.0, 3.0]),
    ]
    *_, first, second = store_markdown("command", machine, 3, 10, costs).splitlines()
    assert first == "| a number | before | 2.00 | 1.000 (1.000-1.000) | 2.00 | 1.000 |"
    assert second == "| a number | with a store | 2.20 | 1.100 (1.100-1.100) | 3.00 | 1.500 |"
