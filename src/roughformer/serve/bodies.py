"""The body of a request, of bounded size and in bounded time."""

import asyncio

from starlette.requests import ClientDisconnect, Request

from roughformer.serve.limits import Limits
from roughformer.serve.refusal import Refusal

__all__ = ["read_body"]


async def read_body(request: Request, limits: Limits) -> bytes:
    """All of it, or a refusal: 413 as soon as it is known to be too large, 408 if it does not
    arrive in time. No more than the limit is ever kept.
    """
    packed = request.headers.get("content-encoding", "identity")
    if packed.strip().lower() != "identity":
        raise Refusal(415, f"bodies are taken as they are, not packed as {packed[:20]!r}")
    told = request.headers.get("content-length")
    # h11 has refused lengths that are no numbers before.
    if told is not None and told.isdecimal() and int(told) > limits.max_body:
        raise _too_large(limits, int(told))
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                size += len(part)
                if size > limits.max_body:
                    raise _too_large(limits, None)
                parts.append(part)
    except TimeoutError:
        raise Refusal(
            408,
            f"the body did not arrive within {limits.body_seconds:g} s ({size} bytes did); send it "
            "faster or in smaller requests",
        ) from None
    except ClientDisconnect:
        raise Refusal(400, "the connection was closed before the body was complete") from None
    return b"".join(parts)


def _too_large(limits: Limits, size: int | None) -> Refusal:
    got = "more" if size is None else f"{size}"
    return Refusal(
        413, f"a body may have {limits.max_body} bytes, got {got}; send fewer series in a request"
    )
