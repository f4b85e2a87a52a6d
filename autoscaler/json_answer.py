"""The JSON object in an answer over HTTP, whatever the other side sends instead.

Bounded in size; what is too large, too deep, not an object or has a number that is not finite is
`Unavailable` with one sentence.
"""

from __future__ import annotations

import json
import math
from typing import Any

import aiohttp

from serving.errors import Unavailable

MAX_BYTES = 64 * 1024
AS_IS = {"Accept-Encoding": "identity"}
"""Headers for such a request: what comes is not compressed, so its size is what is read."""


async def json_object(answer: aiohttp.ClientResponse, *, who: str) -> dict[str, Any]:
    """The answer's body as an object; `who` begins the sentence of what is wrong with it."""
    encoding = answer.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise Unavailable(f"{who} answered in encoding {encoding[:40]!r}, which was not asked for")
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > MAX_BYTES:
            raise Unavailable(f"{who} answered with more than {MAX_BYTES} bytes")
    return parse_object(bytes(body), who=who)


def parse_object(body: bytes, *, who: str) -> dict[str, Any]:
    """A JSON object from bytes of any kind."""
    try:
        found = json.loads(body, parse_constant=_finite, parse_float=_finite)
    except RecursionError as error:
        raise Unavailable(f"{who} answered with JSON that is nested too deeply") from error
    except ValueError as error:  # also bytes that are no text, and numbers of thousands of digits
        raise Unavailable(f"{who} did not answer with JSON: {str(error)[:120]}") from error
    if not isinstance(found, dict):
        raise Unavailable(f"{who} answered with {type(found).__name__}, not an object")
    return found


def number_in(found: dict[str, Any], name: str, *, who: str) -> float:
    """A finite number of the object, by name."""
    value = found.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            pass
    raise Unavailable(f"{who} gave {name} {repr(value)[:40]}, not a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is not a finite number")
    return value
