"""One package for each API that is spoken: its routes and its wire format, no more."""

from __future__ import annotations

from serving.server.dialect import Dialect
from serving.server.dialects.deepl.routes import DEEPL
from serving.server.dialects.libretranslate.routes import LIBRETRANSLATE
from serving.server.dialects.native.routes import NATIVE
from serving.server.dialects.openai.routes import OPENAI

DIALECTS: tuple[Dialect, ...] = (NATIVE, LIBRETRANSLATE, DEEPL, OPENAI)
"""Every dialect that this server speaks; the OpenAPI document tells of them in this order."""
