"""The page below a path of a proxy: in a real Chromium, behind nginx with the file in deploy/."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, expect

from bench.systems.processes.http_server import free_port
from tests.system.browser import NAMES, find_chromium, visit
from tests.system.proxy import NGINX, running_nginx
from tests.system.server import ROOT, Server, running

if find_chromium() is None or NGINX is None:
    pytest.skip(
        f"the page is not tested behind a proxy: nginx or all of {', '.join(NAMES)} are missing",
        allow_module_level=True,
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    bundles, folder = (tmp_path_factory.mktemp(name) for name in ("bundles", "server"))
    shutil.copytree(ROOT / "models" / "macaron-de-en", bundles / "macaron-de-en")
    with running(bundles, folder, MACARON_ROOT_PATH="/macaron") as server:
        yield server


@pytest.fixture(scope="module")
def proxy(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an nginx that has deploy/nginx.conf, but for TLS and the ports."""
    folder, port = tmp_path_factory.mktemp("nginx"), free_port()
    site = (ROOT / "deploy/nginx.conf").read_text()
    site = site.replace("listen 443 ssl;", f"listen 127.0.0.1:{port};")
    site = re.sub(r"ssl_certificate\w* .*;", "", site)
    site = site.replace("127.0.0.1:3000", f"127.0.0.1:{server.port}")
    address = f"http://127.0.0.1:{port}"
    with running_nginx(site, folder, f"{address}/macaron/livez"):
        yield address


@pytest.mark.parametrize("prefix", ["/macaron/", "/"])
def test_the_page_translates_below_a_path(browser: Browser, proxy: str, prefix: str) -> None:
    with visit(browser, viewport={"width": 1200, "height": 900}) as found:
        found.page.goto(f"{proxy}{prefix}?q=Guten+Morgen!&source=de&target=en")
        output = found.page.get_by_role("group", name="Translation")
        expect(output).to_contain_text("morning")
        assert found.complaints == []
        assert all(address.startswith(f"{proxy}{prefix}") for address in found.requests)
        found.page.get_by_text("This request as code").first.click()
        expect(found.page.locator("#snippet-code")).to_contain_text(f"{proxy}{prefix}translate")


def test_the_proxy_keeps_the_metrics_to_itself(proxy: str) -> None:
    assert httpx.get(f"{proxy}/metrics", timeout=60).status_code == 404
    assert httpx.get(f"{proxy}/macaron/metrics", timeout=60).status_code == 404


def test_the_api_answers_below_the_path_and_names_it(proxy: str, server: Server) -> None:
    body = {"q": "Guten Morgen!", "source": "de", "target": "en"}
    below = httpx.post(f"{proxy}/macaron/translate", json=body, timeout=60).json()
    kept = httpx.post(f"{server.url}/macaron/translate", json=body, timeout=60).json()
    plain = httpx.post(f"{server.url}/translate", json=body, timeout=60).json()
    assert below["translatedText"] == kept["translatedText"] == plain["translatedText"]
    described = httpx.get(f"{proxy}/macaron/openapi.json", timeout=60).json()
    assert described["servers"] == [{"url": "/macaron"}]
