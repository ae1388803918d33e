"""Errors of the client."""

from __future__ import annotations


class ApiError(Exception):
    """The server answered with an error."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str = "",
        request_id: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status."""
        self.code = code
        """Code of the error, for programs: `unknown_language`, `overloaded`..."""
        self.request_id = request_id
        """Id of the request in the server's log."""
        self.retry_after_s = retry_after_s
        """Seconds until a retry makes sense, if the server gives them."""


class DocumentFailedError(Exception):
    """The server could not translate a document; the message says why."""


class BatchFailedError(Exception):
    """The server refuses a whole batch; the message says why."""


class ConnectionLostError(Exception):
    """The server was not reached, or its answer broke off, at the last try as well."""


LEFT = (ApiError, ConnectionLostError)
"""Errors of tidying up. They do not take the place of the work's own error: the server deletes by
itself what is left."""
