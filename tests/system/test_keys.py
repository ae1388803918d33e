"""Keys of the store with DeepL's own client, against `bentoml serve` that is ended and started."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import deepl
import httpx
import pytest

from tests.days import today
from tests.system.conftest import MODELS
from tests.system.server import Server, running

ADMIN = {"Authorization": "DeepL-Auth-Key an-admin-key-of-the-tests"}


@contextmanager
def client_of(server: Server, key: str) -> Iterator[deepl.DeepLClient]:
    client = deepl.DeepLClient(key, server_url=server.url)
    try:
        yield client
    finally:
        client.close()


@pytest.mark.slow
def test_usage_is_true_after_a_restart(tmp_path: Path) -> None:
    today()
    shutil.copytree(MODELS / "macaron-de-en", tmp_path / "bundles/macaron-de-en")
    settings = {
        "MACARON_STORE": f"sqlite:///{tmp_path / 'store.db'}",
        "MACARON_ADMIN_KEY": "an-admin-key-of-the-tests",
        "MACARON_IDLE_UNLOAD_S": "600",
    }
    with running(tmp_path / "bundles", tmp_path, **settings) as server:
        url = f"{server.url}/v2/admin/developer-keys"
        made = httpx.post(url, json={"label": "ours"}, headers=ADMIN, timeout=60).json()
        limit = {"key_id": made["key_id"], "characters": 20}
        assert httpx.put(f"{url}/limits", json=limit, headers=ADMIN, timeout=60).status_code == 200
        with client_of(server, made["key"]) as client:
            result = client.translate_text("Guten Morgen!", source_lang="DE", target_lang="EN-US")
        assert isinstance(result, deepl.TextResult)
        assert result.text
        models = httpx.get(f"{server.url}/admin/models", headers=ADMIN, timeout=60).json()["models"]
        assert [(model["name"], model["loaded"]) for model in models] == [("macaron-de-en", True)]
        # Ended within the second in which usage is not in the store yet.
    with (
        running(tmp_path / "bundles", tmp_path, **settings) as server,
        client_of(server, made["key"]) as client,
    ):
        usage = client.get_usage()
        assert (usage.character.count, usage.character.limit) == (13, 20)
        assert not usage.any_limit_reached
        with pytest.raises(deepl.QuotaExceededException):
            client.translate_text("Guten Morgen!", source_lang="DE", target_lang="EN-US")
        end = {"key_id": made["key_id"]}
        url = f"{server.url}/v2/admin/developer-keys/deactivate"
        assert httpx.put(url, json=end, headers=ADMIN, timeout=60).json()["is_deactivated"]
        with pytest.raises(deepl.AuthorizationException):
            client.get_usage()
