"""What became of every request, by the user's clock. Pure: no clock, no network, no log.

Arrays, one entry a request in the order of the trace: a run has hundreds of thousands of them.
"""

from __future__ import annotations

from array import array
from math import isnan, nan

from serving.types import Slo


class Outcomes:
    """Latencies and ends of requests; NaN where there is none (yet).

    `ttft_s` is arrival to first token of the replica that answers, so it includes prefill and the
    KV transfer. `mean_itl_s` is the request's own mean gap; it stays NaN for one-token answers.
    `finished` and `failed` hold 0 or 1; a request with neither is still on its way.
    """

    __slots__ = ("failed", "finished", "mean_itl_s", "ttft_s")

    def __init__(self, requests: int) -> None:
        self.ttft_s = array("d", [nan]) * requests
        self.mean_itl_s = array("d", [nan]) * requests
        self.finished = bytearray(requests)
        self.failed = bytearray(requests)

    def __len__(self) -> int:
        return len(self.finished)

    def is_good(self, index: int, slo: Slo) -> bool:
        """Finished, first token and mean gap in time; one-token answers have no gap."""
        if not self.finished[index] or self.ttft_s[index] > slo.ttft_s:
            return False
        itl_s = self.mean_itl_s[index]
        return isnan(itl_s) or itl_s <= slo.itl_s

    def good_requests(self, slo: Slo) -> int:
        """How many requests met both targets. Those that never finished did not."""
        return sum(self.is_good(index, slo) for index in range(len(self)))

    def attainment_ratio(self, slo: Slo) -> float | None:
        """The share of all requests that met both targets; `None` if there were none."""
        return self.good_requests(slo) / len(self) if len(self) else None
