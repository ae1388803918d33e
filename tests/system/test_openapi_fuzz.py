"""schemathesis over the OpenAPI document: whatever is sent, answers are as the document says."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from pydantic import SecretStr
from schemathesis import Case
from schemathesis.specs.openapi.checks import positive_data_acceptance, unsupported_method

from serving import Generator, Translator
from serving.encoding.reader import TextReader
from serving.server.app import create_app
from serving.server.http.settings import Settings
from serving.server.models.registry import Registry
from tests.conftest import TinyEncoders, TinyLanguageModel, TinyModel

pytestmark = pytest.mark.slow

EXISTING = {
    "source": "de",
    "target": "en",
    "source_lang": "DE",
    "target_lang": "EN-US",
    "from": "de",
    "to": "en",
    "destination": ["en"],
    "timeout_s": 30,
}
"""What no schema says: names that the models here have, and enough time."""

_MODELS = {"/v1/completions": "lm", "/v1/embeddings": "tiny-embedder"}
"""Where a model must be named."""

_folder = tempfile.TemporaryDirectory()
_settings = Settings(store=SecretStr(f"sqlite:///{_folder.name}/store.db"))
_registry = Registry(_settings)
_schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(_registry, _settings))


@pytest.fixture(scope="module", autouse=True)
def models(
    tiny_model: TinyModel, tiny_language_model: TinyLanguageModel, tiny_encoders: TinyEncoders
) -> Iterator[None]:
    _registry.start(
        [
            Translator(tiny_model.fp32, threads=1),
            Generator(tiny_language_model.fp32, threads=1),
            TextReader(tiny_encoders.bundles / "tiny-embedder", threads=1),
            TextReader(tiny_encoders.bundles / "tiny-classifier", threads=1),
        ]
    )
    yield
    _registry.close()


def _test_of(operation: str) -> Any:
    """The test of one operation, such as `GET /livez`."""

    @_schema.include(name=operation).parametrize()
    @settings(
        max_examples=20,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    def test(case: Case) -> None:
        if isinstance(case.body, dict) and case.meta and case.meta.generation.mode.is_positive:
            case.body |= {name: EXISTING[name] for name in case.body.keys() & EXISTING.keys()}
            if "model" in case.body:
                case.body["model"] = _MODELS.get(case.path)
        # A text may be too long for a model, an option may not fit another: no schema says so.
        excluded = [positive_data_acceptance]
        if "/admin/" in case.path:  # without an admin key there is no such path, by any method
            excluded.append(unsupported_method)
        case.call_and_validate(excluded_checks=excluded)

    return test


# schemathesis gives all operations of a test one name, and pytest-xdist runs one test of a name.
for _found in _schema.get_all_operations():
    globals()[f"test_{_found.ok().label}"] = _test_of(_found.ok().label)
