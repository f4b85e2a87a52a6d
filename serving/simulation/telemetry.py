"""The numbers that a simulated replica and its router keep, as the real ones would.

Mutable on purpose: the engine adds to them at every iteration. Pages are rendered from them and
readings are taken from them; nothing else knows how they are made. Pure: no clock, no network.
Bucket bounds are vLLM 0.32's and llm-d EPP's own.
"""

from __future__ import annotations

from bisect import bisect_left


class Histogram:
    """A Prometheus histogram with fixed bounds; counts are kept per bucket, not cumulated."""

    __slots__ = ("bounds", "count", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.count = 0

    def observe(self, value: float, times: int = 1) -> None:
        """Add `times` observations of one value."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times
        self.count += times


def one_two_five(limit: int) -> tuple[float, ...]:
    """vLLM's 1-2-5 series of bounds up to `limit` (its max_model_len)."""
    bounds: list[float] = []
    step = 1
    while True:
        for factor in (1, 2, 5):
            if step * factor > limit:
                return tuple(bounds)
            bounds.append(float(step * factor))
        step *= 10


TTFT_BOUNDS_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
ITL_BOUNDS_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0),
)
REQUEST_BOUNDS_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0),
    *(240.0, 480.0, 960.0, 1920.0, 7680.0),
)
STEP_TOKEN_BOUNDS = tuple(float(n) for n in (1, 8, *(2**k for k in range(4, 15))))
NIXL_TIME_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 5.0)
NIXL_BYTE_BOUNDS = tuple(float(2**k) for k in range(11, 34, 2))


class ReplicaTelemetry:
    """The counters, gauges and histograms of one engine process since its start.

    Gauges are as of the end of the last iteration, as vLLM keeps them: a prefill replica therefore
    shows no running request between steps, though its KV is pinned.
    """

    def __init__(self, *, process_start_time_s: float, max_model_len: int) -> None:
        tokens = one_two_five(max_model_len)
        self.process_start_time_s = process_start_time_s
        self.process_cpu_s = 0.0
        # gauges
        self.running_requests = 0
        self.waiting_capacity_requests = 0
        self.waiting_deferred_requests = 0
        self.kv_fetch_waiting_to_start = 0
        self.kv_fetch_in_progress = 0
        self.kv_fetch_completed_waiting = 0
        self.kv_used_ratio = 0.0
        # counters
        self.prompt_tokens = 0
        self.computed_prompt_tokens = 0
        self.cached_prompt_tokens = 0
        self.transferred_prompt_tokens = 0
        self.output_tokens = 0
        self.prefix_cache_queries = 0
        self.prefix_cache_hits = 0
        self.external_prefix_cache_queries = 0
        self.external_prefix_cache_hits = 0
        self.preemptions = 0
        self.finished_stop = 0
        self.finished_length = 0
        self.finished_error = 0
        self.kv_transfer_failures = 0
        self.kv_failed_notifications = 0
        self.kv_expired_requests = 0
        # histograms
        self.ttft = Histogram(TTFT_BOUNDS_S)
        self.itl = Histogram(ITL_BOUNDS_S)
        self.tpot = Histogram(ITL_BOUNDS_S)
        self.e2e = Histogram(REQUEST_BOUNDS_S)
        self.queue_time = Histogram(REQUEST_BOUNDS_S)
        self.inference_time = Histogram(REQUEST_BOUNDS_S)
        self.prefill_time = Histogram(REQUEST_BOUNDS_S)
        self.decode_time = Histogram(REQUEST_BOUNDS_S)
        self.request_prompt_tokens = Histogram(tokens)
        self.request_output_tokens = Histogram(tokens)
        self.request_max_tokens = Histogram(tokens)
        self.request_computed_tokens = Histogram(tokens)
        self.request_preemptions = Histogram((1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0))
        self.step_tokens = Histogram(STEP_TOKEN_BOUNDS)
        self.kv_transfer_time = Histogram(NIXL_TIME_BOUNDS_S)
        self.kv_post_time = Histogram((0.001, *NIXL_TIME_BOUNDS_S))
        self.kv_transfer_bytes = Histogram(NIXL_BYTE_BOUNDS)
        self.kv_descriptors = Histogram(
            (10, 20, 30, 50, 75, 100, 200, 400, 1000, 2000, 4000, 10000, 20000, 50000)
        )


EPP_TTFT_BOUNDS_S = (
    *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0),
    *(10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0),
    *(1200.0, 1800.0, 2700.0, 3600.0),
)
EPP_TPOT_BOUNDS_S = (
    *(0.0005, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.3, 0.4, 0.5),
    *(0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 4.5, 6.0, 12.0, 18.0, 24.0, 30.0, 36.0, 48.0, 60.0, 90.0),
    *(120.0, 180.0, 270.0, 360.0),
)
EPP_INPUT_TOKEN_BOUNDS = (
    # 32778 is the picker's own, not a slip here
    *(1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0),
    *(32778.0, 65536.0, 131072.0, 262144.0, 524288.0, 1048576.0),
)
EPP_OUTPUT_TOKEN_BOUNDS = (
    *(1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0),
)


class RouterTelemetry:
    """What the front end counts, by the user's clock: the source of both kinds of router page.

    `requests` counts arrivals. `ttft` is observed at the first token, `itl` at every token, the
    rest when a request finishes; a failed request is in `failed` and in no histogram but perhaps
    `ttft`. `running` counts what has arrived and not ended, held requests included. Keys of the
    mappings are replica names; a replica that is gone is gone from the gauges, not from the
    counters (`attempts`, `prefill_requests`, `decode_requests`).
    """

    def __init__(self) -> None:
        # counters
        self.requests = 0
        self.failed = 0
        self.attempts: dict[str, int] = {}
        self.failed_attempts = 0
        self.disaggregated_decisions = 0
        self.decode_only_decisions = 0
        self.prefill_requests: dict[str, int] = {}
        self.decode_requests: dict[str, int] = {}
        self.prefill_errors = 0
        self.decode_errors = 0
        self.decode_pending_s_sum = 0.0
        self.decode_pending_count = 0
        # gauges
        self.running = 0
        self.held = 0
        self.active_prefill_requests: dict[str, int] = {}
        self.active_prefill_tokens: dict[str, int] = {}
        self.active_decode_requests: dict[str, int] = {}
        self.pending_decode_requests: dict[str, int] = {}
        # histograms
        self.input_tokens = Histogram(EPP_INPUT_TOKEN_BOUNDS)
        self.cached_tokens = Histogram(EPP_INPUT_TOKEN_BOUNDS)
        self.output_tokens = Histogram(EPP_OUTPUT_TOKEN_BOUNDS)
        self.ttft = Histogram(EPP_TTFT_BOUNDS_S)
        self.itl = Histogram(EPP_TPOT_BOUNDS_S)
        self.tpot = Histogram(EPP_TPOT_BOUNDS_S)
        self.request_duration = Histogram(EPP_TTFT_BOUNDS_S)
