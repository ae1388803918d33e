"""The APIs that the server speaks: one package for each, with its routes and its wire format
only."""

from __future__ import annotations

from typing import Any

from serving.server.api.dialect import Dialect
from serving.server.dialects.admin.routes import ADMIN_API
from serving.server.dialects.deepl.admin_routes import DEEPL_ADMIN
from serving.server.dialects.deepl.documents import DEEPL_DOCUMENTS
from serving.server.dialects.deepl.evaluation_routes import DEEPL_EVALUATIONS
from serving.server.dialects.deepl.glossary_routes import DEEPL_GLOSSARIES
from serving.server.dialects.deepl.memory_routes import DEEPL_MEMORIES
from serving.server.dialects.deepl.routes import DEEPL
from serving.server.dialects.deeplx.routes import DEEPLX
from serving.server.dialects.google.routes import GOOGLE
from serving.server.dialects.libretranslate.files import LIBRETRANSLATE_FILES
from serving.server.dialects.libretranslate.routes import LIBRETRANSLATE
from serving.server.dialects.libretranslate.suggestions import SUGGESTIONS
from serving.server.dialects.mtran.routes import MTRAN
from serving.server.dialects.native.documents import DOCUMENTS
from serving.server.dialects.native.glossary_routes import NATIVE_GLOSSARIES
from serving.server.dialects.native.memory_routes import NATIVE_MEMORIES
from serving.server.dialects.native.routes import NATIVE
from serving.server.dialects.openai.batch_routes import OPENAI_BATCHES
from serving.server.dialects.openai.routes import OPENAI
from serving.server.dialects.tei.routes import TEI

DIALECTS: tuple[Dialect[Any], ...] = (
    NATIVE,
    DOCUMENTS,
    NATIVE_GLOSSARIES,
    NATIVE_MEMORIES,
    LIBRETRANSLATE,
    LIBRETRANSLATE_FILES,
    SUGGESTIONS,
    DEEPL,
    DEEPL_DOCUMENTS,
    DEEPL_GLOSSARIES,
    DEEPL_EVALUATIONS,
    DEEPL_MEMORIES,
    OPENAI,
    OPENAI_BATCHES,
    TEI,
    GOOGLE,
    DEEPLX,
    MTRAN,
    ADMIN_API,
    DEEPL_ADMIN,
)
"""Every dialect that this server speaks; the OpenAPI document lists them in this order."""
