"""An nginx of the test's own, with a site of deploy/."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

# In Debian it is not on the PATH of everybody.
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
# Its workers, which a master of root's would run as nobody, write large bodies into the folder.
_HTTP = """
user root;
daemon off;
worker_processes 1;
pid nginx.pid;
error_log stderr;
events {{}}
http {{
    types {{ text/html html; }}
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy;
    fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    {site}
}}
"""


@contextmanager
def running_nginx(site: str, folder: Path, probe: str) -> Iterator[None]:
    """An nginx with this site while the context lasts, once `probe` answers.

    `folder` is its own; its messages go to log.txt there.
    """
    (folder / "nginx.conf").write_text(_HTTP.format(site=site))
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [str(NGINX), "-p", str(folder), "-e", "stderr", "-c", "nginx.conf"], stderr=log
        )
    try:
        _wait_for(probe, folder / "log.txt")
        yield
    finally:
        process.terminate()
        process.wait(30)


def _wait_for(address: str, log: Path) -> None:
    end = time.monotonic() + 30
    while True:
        try:
            if httpx.get(address, timeout=5).is_success:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.1)
