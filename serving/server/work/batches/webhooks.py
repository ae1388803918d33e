"""Webhooks: signed notifications to a client's server, never sent to internal addresses.

The signature is that of Standard Webhooks, which OpenAI's client verifies.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import dataclasses
import hashlib
import hmac
import http.client
import ipaddress
import json
import logging
import re
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool

from serving.errors import RequestError, ServingError, StoreUnavailableError
from serving.server.http.settings import Settings, variable
from serving.store.records.job import JobState, KeptJob

if TYPE_CHECKING:
    from serving.store.store import Store

KIND = "webhook"
"""Kind of the jobs that are webhooks."""
LEASE_S = 60.0
"""Seconds until a failed delivery is tried again, by any server."""
_LONGEST_S = 10.0
"""Timeout of a delivery in seconds, however slowly the receiver responds."""
_AT_ONCE = 4
_LOOK_S = 2.0
_KEPT_S = 3600.0
_LONGEST_URL = 2000
_PLAIN = re.compile("[!-~]+")
_PORTS = {"http": 80, "https": 443}
_OUTWARD = ipaddress.ip_network("2000::/3")
"""Public IPv6 addresses. Others are internal, or a gateway translates them to internal ones."""

logger = logging.getLogger(__name__)


class UndeliveredError(ServingError):
    """The receiver of a webhook was not reached or did not accept it."""


@dataclass(frozen=True)
class Webhook:
    """URL of a notification, and the secret that signs it."""

    url: str
    secret: str


def webhook_job(webhook: Webhook, owner: str, type: str, data: Mapping[str, str]) -> KeptJob:
    """The job that sends an event of this type."""
    moment = time.time()
    id = f"evt_{uuid.uuid4().hex}"
    event = {"id": id, "object": "event", "created_at": int(moment), "type": type, "data": data}
    return KeptJob(
        id=id,
        owner=owner,
        kind=KIND,
        wishes=json.dumps({**dataclasses.asdict(webhook), "event": json.dumps(event)}),
        created=moment,
        deadline=moment + _KEPT_S,
    )


def check_webhook(webhook: Webhook, settings: Settings) -> None:
    """Raise RequestError for a URL that must not be called, or an unusable secret. Blocking:
    resolves the host name."""
    try:
        parts = urlsplit(webhook.url)
        good = parts.scheme in _PORTS and parts.hostname and not parts.username
    except ValueError:  # brackets without an address
        good = False
    if not good or len(webhook.url) > _LONGEST_URL or not _PLAIN.fullmatch(webhook.url):
        raise RequestError(
            "webhook.url must be http://HOST/... or https://HOST/..., of ASCII, without a user",
            parameter="webhook",
        )
    try:
        _key(webhook.secret)
        _addresses(webhook.url, settings)
    except (ValueError, binascii.Error) as error:
        raise RequestError(f"webhook cannot be used: {error}", parameter="webhook") from error
    except UndeliveredError as error:
        raise RequestError(f"webhook.url {error}", parameter="webhook") from error


class WebhookSender:
    """Sends the webhooks of a store; used on the event loop only."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._settings = store, settings

    async def run(self) -> None:
        """Send pending webhooks, forever."""
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                job = None
                with contextlib.suppress(StoreUnavailableError):
                    job = await run_in_threadpool(self._store.jobs.claim, KIND, LEASE_S)
                if job is None:
                    await asyncio.sleep(_LOOK_S)
                    continue
                running.add(asyncio.create_task(self._sent(job)))
                if len(running) == _AT_ONCE:
                    _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await asyncio.gather(*running, return_exceptions=True)

    async def _sent(self, job: KeptJob) -> None:
        """Send one webhook. If that fails, it is sent again when its lease expires, or given up."""
        fields = json.loads(job.wishes)
        webhook, event = Webhook(fields["url"], fields["secret"]), fields["event"]
        extra = {"request_id": job.id}
        try:
            if job.given_up or time.time() > job.deadline:
                state: JobState = "failed" if job.given_up else "expired"
                await run_in_threadpool(self._store.jobs.finish, job, state, "", _KEPT_S)
                return
            await run_in_threadpool(send, webhook, job.id, event.encode(), self._settings)
            await run_in_threadpool(self._store.jobs.finish, job, "done", "", _KEPT_S)
        except (UndeliveredError, StoreUnavailableError) as error:
            logger.info("a webhook was not delivered: %s", error, extra=extra)
        except Exception:
            logger.exception("unexpected error in a webhook", extra=extra)


def send(webhook: Webhook, id: str, body: bytes, settings: Settings) -> None:
    """Send a signed body; raises UndeliveredError if it is not accepted in time. Redirects are not
    followed. Blocking."""
    moment = str(int(time.time()))
    signed = b".".join((id.encode(), moment.encode(), body))
    signature = hmac.new(_key(webhook.secret), signed, hashlib.sha256).digest()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "macaron",
        "webhook-id": id,
        "webhook-timestamp": moment,
        "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
    }
    try:
        status = _posted(webhook.url, body, headers, settings)
    except (OSError, http.client.HTTPException) as error:
        raise UndeliveredError(f"was not reached ({type(error).__name__})") from error
    if not 200 <= status < 300:
        raise UndeliveredError(f"answered {status}")


def _posted(url: str, body: bytes, headers: Mapping[str, str], settings: Settings) -> int:
    """The HTTP status of the response to a POST."""
    parts = urlsplit(url)
    host, port = str(parts.hostname), parts.port or _PORTS[parts.scheme]
    # Connect to the checked address: another look-up could return a different one.
    address = _addresses(url, settings)[0]
    with contextlib.closing(http.client.HTTPConnection(host, port)) as connection:
        connection.sock = socket.create_connection((address, port), _LONGEST_S)
        end = threading.Timer(
            _LONGEST_S, _shut, (connection,)
        )  # a socket timeout would restart with each byte
        end.start()
        try:
            if parts.scheme == "https":
                context = ssl.create_default_context()
                connection.sock = context.wrap_socket(
                    connection.sock, server_hostname=host, do_handshake_on_connect=False
                )
                connection.sock.do_handshake()
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", target, body, dict(headers))
            return connection.getresponse().status
        finally:
            end.cancel()


def _shut(connection: http.client.HTTPConnection) -> None:
    with contextlib.suppress(OSError):
        connection.sock.shutdown(socket.SHUT_RDWR)


def _addresses(url: str, settings: Settings) -> list[str]:
    """The addresses of a URL's host; raises UndeliveredError if there are none, or if one is
    internal and not allowed by the settings."""
    parts = urlsplit(url)
    host = str(parts.hostname)
    try:
        port = parts.port or _PORTS[parts.scheme]
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        raise UndeliveredError(f"has no address ({host})") from error
    addresses = [str(each[4][0]) for each in found]
    if host not in settings.webhook_hosts.split() and not all(map(_is_public, addresses)):
        raise UndeliveredError(
            f"must not lead into the server's own network ({host}); its operator can allow that "
            f"with {variable('webhook_hosts')}"
        )
    return addresses


def _is_public(address: str) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        within = found.ipv4_mapped or found.sixtofour
        if within is not None:
            return _is_public(str(within))
        if found not in _OUTWARD:
            return False
    return found.is_global and not found.is_multicast


def _key(secret: str) -> bytes:
    """The bytes of a signing secret; raises ValueError if it is malformed."""
    if secret.startswith("whsec_"):
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    return secret.encode()
