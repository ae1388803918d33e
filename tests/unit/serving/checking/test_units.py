"""Signs of currencies and units that a translation must not exchange."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.checking.units import other_units, strange_sign

NAMES = {
    "$": ["$", "Dollar", "dólares", "USD", "pesos", "R$ (reais)"],
    "€": ["€", "Euro", "EUR"],
    "£": ["£", "Pfund", "pounds", "livres", "libras", "GBP"],
    "¥": ["¥", "Yen", "JPY", "yuan", "RMB"],
}


@pytest.mark.parametrize("sign", NAMES)
@pytest.mark.parametrize("other", NAMES)
def test_a_sign_of_another_currency_is_strange(sign: str, other: str) -> None:
    for name in NAMES[other]:
        if name.startswith("R$") and sign == "$":
            continue
        found = strange_sign(f"50 {name}", f"It costs {sign}50.")
        assert found == (None if sign == other else (sign, (9, 10))), name


def test_where_the_source_names_no_currency_nothing_is_known() -> None:
    assert strange_sign("Das kostet 50.", "It costs $50.") is None
    assert strange_sign("50 €", "fifty") is None


def test_the_first_strange_sign_is_reported() -> None:
    assert strange_sign("50 € oder 60 €", "€50 or $60 or £70") == ("$", (7, 8))


@pytest.mark.parametrize(
    ("source", "output", "found"),
    [
        ("50 %", "50 %%", ("%", (4, 5))),
        ("50 $", "$$50", None),  # before a figure
        ("50 $", "50 $ $", (" $", (4, 6))),
        ("50 $", "50 $\u00a0$.", ("\u00a0$", (4, 6))),
        ("50 $$", "50 $$", None),
        ("50 $", "50 $, $", None),
    ],
)
def test_a_sign_that_stands_twice_is_strange_unless_the_source_has_it_so(
    source: str, output: str, found: object
) -> None:
    assert strange_sign(source, output) == found


@given(st.text(alphabet="ab 1$€£¥%"), st.text(alphabet="ab 1$€£¥%"))
def test_a_fault_is_reported_at_its_place(source: str, output: str) -> None:
    found = strange_sign(source, output)
    if found is not None:
        sign, (begin, end) = found
        assert output[begin:end] == sign
    assert strange_sign(output, output) is None


@pytest.mark.parametrize(
    ("source", "output", "differ"),
    [
        ("5 km", "3 miles", True),
        ("3 miles", "5 Kilometer", True),
        ("2 m hoch", "6 feet high", True),
        ("80 Kilo", "180 pounds", True),
        ("20°C", "68°F", True),
        ("5 km", "5 km", False),
        ("3 Meilen", "3 miles", False),
        ("5 km (3 Meilen)", "3 miles", False),
        ("zu Fuß", "on foot", False),
        ("Er ging.", "He went miles.", False),
        ("ein Haus", "a house", False),
    ],
)
def test_measures_stay_in_their_system(source: str, output: str, differ: bool) -> None:
    assert other_units(source, output) is differ
    assert other_units(output, source) is differ
