"""What a client is told when it does not get what it asked for."""

from typing import Any

__all__ = ["Refusal", "error_body"]


class Refusal(Exception):
    """A status of HTTP, words that are safe to show, and the place in what was sent.

    ``position``: for instance ``{"series": 3, "row": 17}``. ``retry_after``: seconds after which it
    is worth trying again.
    """

    def __init__(
        self,
        status: int,
        message: str,
        position: dict[str, Any] | None = None,
        retry_after: int | None = None,
    ) -> None:
        """See the class."""
        super().__init__(message)
        self.status, self.message = status, message
        self.position, self.retry_after = position, retry_after

    @property
    def headers(self) -> dict[str, str]:
        """Those that go with the status."""
        found = {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        if self.retry_after is not None:
            found["Retry-After"] = str(self.retry_after)
        return found


def error_body(message: str, position: dict[str, Any] | None = None) -> dict[str, Any]:
    """The JSON of every answer that is an error."""
    return {"error": {"message": message, "position": position}}
