"""A small S3 server in this process, for tests: objects in memory, put, given, listed, deleted."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape


class ObjectStore(ThreadingHTTPServer):
    """A server with one bucket, `files`; a request for another bucket finds none. Signatures are
    not checked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Asked)
        self.objects: dict[str, tuple[bytes, float]] = {}
        """Contents by key, each with the time when it was put."""
        self.away = False
        """Whether every request is refused with 503."""

    @property
    def environment(self) -> dict[str, str]:
        """The variables that tell an S3 client where the server is."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server_port}",
            "AWS_ACCESS_KEY_ID": "a-key",
            "AWS_SECRET_ACCESS_KEY": "a-secret",
            "AWS_MAX_ATTEMPTS": "1",
            "AWS_DEFAULT_REGION": "us-east-1",
        }


@contextmanager
def running_object_store() -> Iterator[ObjectStore]:
    """A server that runs while the context does."""
    server = ObjectStore()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Asked(BaseHTTPRequestHandler):
    server: ObjectStore
    protocol_version = "HTTP/1.1"

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def do_PUT(self) -> None:
        content = self._content()
        if self._key and not self.server.away:
            self.server.objects[self._key] = content, time.time()
        self._answer(200, b"")

    def do_GET(self) -> None:
        self._content()
        if not self._key:
            self._list()
        elif self._key not in self.server.objects:
            self._answer(404, _error("NoSuchKey"))
        else:
            self._answer(200, *self.server.objects[self._key])

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        self._content()
        if not self.server.away:
            self.server.objects.pop(self._key, None)
        self._answer(204, b"")

    def do_POST(self) -> None:
        """Answer the only supported kind of post, which deletes several objects."""
        for key in re.findall("<Key>(.*?)</Key>", self._content().decode()):
            if not self.server.away:
                self.server.objects.pop(unescape(key), None)
        self._answer(200, b"<DeleteResult></DeleteResult>")

    def log_message(self, *_: object) -> None:
        pass

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix("/files").lstrip("/")

    def _content(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        content = self._chunks()
        if "aws-chunked" in self.headers.get("Content-Encoding", ""):
            content = content[: int(self.headers["X-Amz-Decoded-Content-Length"])]
        return content

    def _chunks(self) -> bytes:
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def _list(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        prefix, until = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        files, folders = [], set()
        for key, (content, put) in sorted(self.server.objects.items()):
            if not key.startswith(prefix):
                continue
            rest = key.removeprefix(prefix)
            if until and until in rest:
                folders.add(prefix + rest.partition(until)[0] + until)
            else:
                moment = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(put))
                files.append(
                    f"<Contents><Key>{escape(key)}</Key><LastModified>{moment}</LastModified>"
                    f'<ETag>"e"</ETag><Size>{len(content)}</Size></Contents>'
                )
        inner = "".join(files) + "".join(
            f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            for folder in sorted(folders)
        )
        count = f"<KeyCount>{len(files) + len(folders)}</KeyCount><IsTruncated>false</IsTruncated>"
        self._answer(200, f"<ListBucketResult>{count}{inner}</ListBucketResult>".encode())

    def _answer(self, status: int, content: bytes, put: float = 0.0) -> None:
        if self.server.away:
            status, content = 503, _error("SlowDown")
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Last-Modified", formatdate(put, usegmt=True))
        self.send_header("ETag", '"e"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
