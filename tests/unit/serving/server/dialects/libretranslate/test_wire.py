"""Bodies of LibreTranslate's dialect."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from serving.server.dialects.libretranslate.wire import DetectRequest


def test_null_is_no_key() -> None:
    assert DetectRequest.model_validate({"q": "a", "api_key": None}).api_key == ""


@pytest.mark.parametrize("q", [None, 5, [], ["a", 5]])
def test_what_is_no_text_is_refused(q: object) -> None:
    with pytest.raises(ValidationError):
        DetectRequest.model_validate({"q": q})
