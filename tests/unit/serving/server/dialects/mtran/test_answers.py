"""The words that Hcfy has for languages."""

from __future__ import annotations

import pytest

from serving.server.dialects.mtran.answers import hcfy_code, hcfy_name


@pytest.mark.parametrize(
    ("name", "code"),
    [("中文(简体)", "zh-Hans"), ("中文(繁体)", "zh-Hant"), ("英语", "en"), ("德语", "de")],
)
def test_a_name_and_its_code(name: str, code: str) -> None:
    assert hcfy_code(name) == code
    assert hcfy_name(code) == name


@pytest.mark.parametrize(
    ("code", "name"),
    [("zh", "中文(简体)"), ("zh-CN", "中文(简体)"), ("zh-TW", "中文(繁体)"), ("en-GB", "英语")],
)
def test_other_codes_of_the_same(code: str, name: str) -> None:
    assert hcfy_name(code) == name


@pytest.mark.parametrize("other", ["nl", "auto", "x"])
def test_what_has_no_name_stays_as_it_is(other: str) -> None:
    assert hcfy_code(other) == hcfy_name(other) == other
