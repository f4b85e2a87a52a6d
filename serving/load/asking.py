"""What one request says: its prompt of token ids, its identifiers, its body.

Prompts are made of the seed and the request's number alone, so that a run can be repeated and no
two prompts of it share a prefix, unless a share is asked for.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass
from typing import Any

from serving.errors import Misconfigured

_SHARED = "shared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """Token-id prompts, told apart by seed and number.

    Ids are drawn uniformly from `first_id` to `last_id` (a range that every usual vocabulary has,
    without the special tokens at its beginning). The first `shared_ratio` (0 to 1) of each prompt
    is the same in all: 0 means that no prefix cache ever hits.
    """

    seed: int = 1
    first_id: int = 10
    last_id: int = 1999
    shared_ratio: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.shared_ratio <= 1.0:
            raise Misconfigured(
                "no such share of a prompt",
                where="--shared-prefix",
                found=f"{self.shared_ratio:g}",
                expected="0 to 1",
            )

    def ids(self, number: int, tokens: int) -> list[int]:
        """The prompt of request `number`, of exactly so many tokens."""
        shared = round(self.shared_ratio * tokens)
        return [*self._draw(_SHARED, shared), *self._draw(str(number), tokens - shared)]

    def _draw(self, whose: str, tokens: int) -> list[int]:
        rng = random.Random(f"{self.seed}/{whose}")
        return rng.choices(range(self.first_id, self.last_id + 1), k=tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """How a request is found again in logs and traces."""

    request_id: str
    trace_id: str
    span_id: str

    @property
    def headers(self) -> dict[str, str]:
        """X-Request-Id, and W3C Trace Context with the sampled flag set."""
        return {
            "X-Request-Id": self.request_id,
            "traceparent": f"00-{self.trace_id}-{self.span_id}-01",
        }


def identity(run_id: str, number: int) -> Identity:
    """The identity of request `number` of a run; runs with different ids share none."""
    digest = hashlib.sha256(f"{run_id}/{number}".encode()).hexdigest()
    return Identity(request_id=f"{run_id}-{number}", trace_id=digest[:32], span_id=digest[32:48])


def completion_body(
    *, model: str, prompt: list[int], output_tokens: int, temperature: float, stream: bool = True
) -> bytes:
    """The body of a /v1/completions request whose answer has exactly so many tokens.

    `return_token_ids` makes vLLM name each token that it sends, so that tokens can be counted where
    one chunk carries several, or none that is text yet.
    """
    body: dict[str, Any] = {
        "model": model,
        "prompt": prompt,
        "max_tokens": output_tokens,
        "temperature": temperature,
        "ignore_eos": True,
        "return_token_ids": True,
        "stream": stream,
    }
    if stream:
        body["stream_options"] = {"include_usage": True}
    return json.dumps(body, separators=(",", ":")).encode()
