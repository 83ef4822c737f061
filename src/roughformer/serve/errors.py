"""Errors returned to API clients."""

from typing import Any

Position = dict[str, Any]  # where in the request: {"series": 3, "row": 17}


class APIError(Exception):
    """An HTTP status, a message that is safe to show, and the position of the fault in the request.

    ``retry_after``: seconds after which it is worth trying again.
    """

    def __init__(
        self,
        status: int,
        message: str,
        position: Position | None = None,
        retry_after: int | None = None,
    ) -> None:
        """See the class."""
        super().__init__(message)
        self.status, self.message = status, message
        self.position, self.retry_after = position, retry_after

    @property
    def headers(self) -> dict[str, str]:
        """Headers that go with the status."""
        headers = {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        if self.retry_after is not None:
            headers["Retry-After"] = str(self.retry_after)
        return headers

    @property
    def body(self) -> dict[str, Any]:
        """The JSON of the response."""
        return {"error": {"message": self.message, "position": self.position}}


def invalid(message: str, position: Position | None = None) -> APIError:
    """Build a 400 whose message begins with the position."""
    where = ", ".join(f"{name} {number}" for name, number in (position or {}).items())
    return APIError(400, f"{where}: {message}" if where else message, position or None)
