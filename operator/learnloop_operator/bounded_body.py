"""Reading answers from outside without trusting their length."""

import aiohttp


class TooLarge(Exception):
    """The answer is longer than what anyone sane would send."""


async def read_bounded(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The whole body.

    Raises:
        TooLarge: more than `limit` bytes.
    """
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > limit:
            raise TooLarge(f"the answer exceeds {limit} bytes")
        parts.append(part)
    return b"".join(parts)
