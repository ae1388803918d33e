"""Log lines of the server process: JSON or text, each with the id of its trace.

Code that logs something about a request adds the request's id as the field `request_id`.
"""

from __future__ import annotations

import logging
import sys
import time

from opentelemetry import trace
from pythonjsonlogger.json import JsonFormatter

import serving
from serving.server.http.settings import Settings

_DATE = "%Y-%m-%dT%H:%M:%S"
_OTHERS = ("bentoml", "uvicorn.error", "circus")
"""Loggers to which BentoML has given handlers of their own."""


def configure_logs(settings: Settings) -> None:
    """Send all log lines of this process to stdout in one format."""
    handler = logging.StreamHandler(sys.stdout)
    handler.addFilter(_add_trace)
    handler.setFormatter(json_formatter() if settings.log_format == "json" else _TextFormatter())
    for name in _OTHERS:
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    logging.getLogger().handlers[:] = [handler]
    logging.getLogger(serving.__name__).setLevel(settings.log_level.upper())


def json_formatter() -> logging.Formatter:
    """A formatter that writes one JSON object per line: time (UTC), level, logger, message, and the
    line's further fields."""
    formatter = JsonFormatter(
        ["asctime", "levelname", "name", "message"],
        datefmt=_DATE + "Z",
        rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
    )
    formatter.converter = time.gmtime
    return formatter


class _TextFormatter(logging.Formatter):
    """The same fields as in JSON, for people: the message, then `name=value` for each field."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", _DATE)
        self._usual = set(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

    def format(self, record: logging.LogRecord) -> str:
        """Format a line; the fields that every record of Python's logging has are left out."""
        fields = {k: v for k, v in vars(record).items() if k not in self._usual}
        return " ".join([super().format(record), *(f"{k}={v}" for k, v in fields.items())])


def _add_trace(record: logging.LogRecord) -> bool:
    """Add the id of the trace that a line belongs to, if there is one."""
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        vars(record)["trace_id"] = trace.format_trace_id(span.trace_id)
    return True
