"""What goes wrong between a client and its server."""

from __future__ import annotations


class ApiError(Exception):
    """The server has answered with an error."""

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
        """What kind of error it is, for programs: `unknown_language`, `overloaded`..."""
        self.request_id = request_id
        """Under which the server's log has the request."""
        self.retry_after_s = retry_after_s
        """Seconds after which another try makes sense, where the server says so."""


class DocumentFailedError(Exception):
    """The server could not translate a document; the message says why."""


class BatchFailedError(Exception):
    """The server takes no line of a batch; the message says why."""


class ConnectionLostError(Exception):
    """The server was not reached, or its answer broke off, at the last try as well."""


LEFT = (ApiError, ConnectionLostError)
"""What may come of tidying up, and is not told in the place of what came of the work: the server
deletes by itself what is left."""
