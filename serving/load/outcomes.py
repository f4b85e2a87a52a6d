"""What came of a load: each request as its sender saw it, and the whole in a few numbers.

A failed request is never good, whatever it showed before it failed. The time to first token counts
from when the request was due, so that a sender that is late, or a server that makes it late, cannot
hide what users would have waited; it is given from the sending too.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from serving.errors import Misconfigured
from serving.types import Slo


class Failure(StrEnum):
    """How a request failed."""

    CONNECTION = "connection"
    REFUSED = "refused"
    SERVER_ERROR = "server error"
    CUT_SHORT = "cut short"
    TOO_FEW_TOKENS = "too few tokens"
    TIMED_OUT = "timed out"
    BAD_ANSWER = "bad answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutcome:
    """One request. Times are seconds since the load began; `None` is what never came.

    `counted_tokens` are those that arrived, `usage_*` what the server says it read and wrote.
    `gaps_s` are the times between tokens, so one fewer than tokens. `words` says how it failed.
    `answer_id` is the server's own name of the answer; behind vllm-router it names both replicas.
    """

    request_id: str
    trace_id: str
    input_tokens: int
    output_tokens: int
    scheduled_s: float
    sent_s: float
    ended_s: float
    first_token_s: float | None = None
    gaps_s: tuple[float, ...] = ()
    counted_tokens: int = 0
    usage_prompt_tokens: int | None = None
    usage_output_tokens: int | None = None
    status: int | None = None
    failure: Failure | None = None
    words: str = ""
    answer_id: str | None = None

    @property
    def lag_s(self) -> float:
        """How late the sender itself was."""
        return self.sent_s - self.scheduled_s

    @property
    def ttft_s(self) -> float | None:
        """Time to first token, from when it was due."""
        return None if self.first_token_s is None else self.first_token_s - self.scheduled_s

    @property
    def ttft_from_sending_s(self) -> float | None:
        """Time to first token, from when it was sent."""
        return None if self.first_token_s is None else self.first_token_s - self.sent_s

    @property
    def mean_gap_s(self) -> float | None:
        """The request's own mean gap between tokens; 0 for an answer of one token.

        `None` where several were asked for, counted or told and no gap was seen: then it is not
        known, and the request is not good.
        """
        if self.first_token_s is None:
            return None
        if self.gaps_s:
            return sum(self.gaps_s) / len(self.gaps_s)
        tokens = max(self.output_tokens, self.counted_tokens, self.usage_output_tokens or 0)
        return 0.0 if tokens <= 1 else None

    def good(self, slo: Slo) -> bool:
        """Whether it was served whole and met both targets."""
        ttft_s, gap_s = self.ttft_s, self.mean_gap_s
        if self.failure is not None or ttft_s is None or gap_s is None:
            return False
        return ttft_s <= slo.ttft_s and gap_s <= slo.itl_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """A whole load. `wall_s` from its begin to the last answer, `sender_cpu_s` the sender's CPU."""

    requests: tuple[RequestOutcome, ...]
    wall_s: float
    sender_cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over a load. Tokens are those of requests that were served whole, except where told."""

    requests: int
    served: int
    failed: int
    prompt_tokens: int
    output_tokens: int
    output_tokens_of_failed: int
    failures: tuple[tuple[Failure, int], ...]


def totals(requests: Iterable[RequestOutcome]) -> Totals:
    """Count them."""
    everything = tuple(requests)
    served = [one for one in everything if one.failure is None]
    failed = [one for one in everything if one.failure is not None]
    kinds = Counter(one.failure for one in failed if one.failure is not None)
    return Totals(
        requests=len(everything),
        served=len(served),
        failed=len(failed),
        prompt_tokens=sum(one.input_tokens for one in served),
        output_tokens=sum(one.counted_tokens for one in served),
        output_tokens_of_failed=sum(one.counted_tokens for one in failed),
        failures=tuple(kinds.most_common()),
    )


def attainment_ratio(requests: Sequence[RequestOutcome], slo: Slo) -> float | None:
    """The share of all requests, failed ones included, that were good; `None` of none."""
    if not requests:
        return None
    return sum(one.good(slo) for one in requests) / len(requests)


def percentile(values: Iterable[float | None], ratio: float) -> float | None:
    """The smallest value that at least `ratio` (0-1) of those known do not exceed.

    `None` if none is known.
    """
    if not 0.0 <= ratio <= 1.0:
        raise ValueError(f"{ratio} is not a ratio")
    known = sorted(value for value in values if value is not None)
    return known[max(0, math.ceil(ratio * len(known)) - 1)] if known else None


def json_lines(requests: Iterable[RequestOutcome]) -> Iterator[str]:
    """One JSON object of ASCII for each request, in order, without line ends."""
    for one in requests:
        yield json.dumps(asdict(one), ensure_ascii=True, separators=(",", ":"))


def read_json_lines(lines: Iterable[str], *, where: str) -> tuple[RequestOutcome, ...]:
    """What `json_lines` wrote. Raises Misconfigured with the line's number."""
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            row: dict[str, Any] = json.loads(line)
            row["gaps_s"] = tuple(row["gaps_s"])
            row["failure"] = None if row["failure"] is None else Failure(row["failure"])
            found.append(RequestOutcome(**row))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise Misconfigured(
                "not a request of a load",
                where=f"{where}, line {number}",
                found=repr(line[:80]),
                expected="what phasewise load --requests-file writes",
            ) from error
    return tuple(found)
