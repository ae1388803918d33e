from __future__ import annotations

import re

import pytest

from serving.documents.recognition import recognised
from tests.unit.serving.documents.fakes import parts, translated
from tests.unit.serving.documents.packages import zipped
from tests.unit.serving.text.fakes import backwards

_KIND = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_SPACE = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"


def sheet(text: str, element: str = "oddHeader") -> bytes:
    shown = text.replace("&", "&amp;")
    return zipped(
        {
            "[Content_Types].xml": "<Types>"
            f'<Override PartName="/xl/workbook.xml" ContentType="{_KIND}.sheet.main+xml"/>'
            f'<Override PartName="/xl/s.xml" ContentType="{_KIND}.worksheet+xml"/></Types>',
            "xl/s.xml": f'<worksheet xmlns="{_SPACE}"><headerFooter><{element}>{shown}</{element}>'
            "</headerFooter></worksheet>",
        }
    )


def printed(content: bytes) -> str:
    found = re.search(r"<(?:odd|even|first)\w+>(.*?)</", parts(content)["xl/s.xml"].decode(), re.S)
    assert found
    return found[1].replace("&amp;", "&")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("&LBericht&CSeite &P von &N&R&D", "&LBERICHT&CSEITE &P VON &N&R&D"),
        ('&C&"Arial,Bold"&12Das Jahr', '&C&"Arial,Bold"&12DAS JAHR'),
        ("&L&KFF0000rot &K01+000da&R&Z&F", "&L&KFF0000ROT &K01+000DA&R&Z&F"),
        ("ohne Teil", "OHNE TEIL"),
        ("&Ldu && ich&Cer", "&LDU && ICH&CER"),
        ("&L&&Liste", "&L&&LISTE"),
        ("&C&P+1 ist da", "&C&P+1 IST DA"),
        ("&L&D&C&A&R&P / &N", "&L&D&C&A&R&P / &N"),
        ("&LZeile eins\nZeile zwei", "&LZEILE EINS\nZEILE ZWEI"),
    ],
)
def test_words_of_printed_headers_are_translated_and_codes_stay(source: str, expected: str) -> None:
    assert printed(translated(sheet(source), "a.xlsx")) == expected


@pytest.mark.parametrize("element", ["oddFooter", "evenHeader", "firstFooter"])
def test_headers_and_footers_of_all_pages_are_read(element: str) -> None:
    assert printed(translated(sheet("&CEnde", element), "a.xlsx")) == "&CENDE"


def test_a_number_that_comes_to_stand_behind_a_size_is_none_of_its_digits() -> None:
    result = printed(translated(sheet("&C&12Stufe 5"), "a.xlsx", backwards))
    assert result == "&C&12 5 STUFE"


def test_a_header_that_would_be_too_long_for_excel_stays() -> None:
    text = "&C" + "ß" * 200  # SS in capitals
    assert printed(translated(sheet(text), "a.xlsx")) == text


def test_a_part_is_a_unit() -> None:
    file = recognised(sheet("&Lhier&Cda &P&Rdort"), "a.xlsx").read(sheet("&Lhier&Cda &P&Rdort"))
    assert len(file.units) == 3
