"""What differs between a live and a simulated pair and stays so, with the reason.

Whatever differs and is not here is to be mended in the simulator. Only a table.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from dataclasses import dataclass

FAR_RATIO = 2.0
"""A mean that is further apart than this, up or down, wants a reason too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """`target` is `""` for all; `series` a name, or the beginning of names where it ends in `*`.

    `of_figures` says whether it explains figures that are far apart, or a difference in kind.
    """

    series: str
    words: str
    target: str = ""
    of_figures: bool = True

    def is_of(self, target: str, name: str) -> bool:
        """Whether it speaks of this series on this target."""
        if self.target not in ("", target):
            return False
        if self.series.endswith("*"):
            return name.startswith(self.series[:-1])
        return name == self.series


REASONS: tuple[Reason, ...] = (
    Reason(
        series="vllm:request_success_total",
        target="decode",
        of_figures=False,
        words="the load asks for lengths and ignores the end mark, so answers end by `length`; "
        "simulated answers end on their own, by `stop`",
    ),
    Reason(
        series="vllm:request_success_total",
        target="decode",
        words="the same: live by `length`, simulated by `stop`",
    ),
    Reason(
        series="vllm_router_pd_active_prefill_tokens",
        target="router",
        of_figures=False,
        words="the load's prompts are token ids, whose number the router does not know: it counts "
        "such requests as `pd_unknown_prefill_requests` and no tokens",
    ),
    Reason(
        series="vllm_router_worker_health",
        target="router",
        of_figures=False,
        words="the router checks and lists only workers that it was started with; those that "
        "register with it, as the live ones did, are not on its page",
    ),
    Reason(
        series="process_cpu_seconds_total",
        words="a live page counts the API server alone, the engine has processes of its own; the "
        "simulated one has one process",
    ),
    Reason(
        series="vllm:request_prefill_time_seconds",
        target="decode",
        words="the first step here computes the last prompt token again, which live costs more "
        "than a step of decode; simulated it costs one sequence more",
    ),
    Reason(
        series="vllm:request_queue_time_seconds",
        target="decode",
        words="live, most of the wait is for the engine's loop to notice that a transfer has "
        "ended; simulated, only for the end of the step",
    ),
    Reason(
        series="vllm:time_to_first_token_seconds",
        target="decode",
        words="the sum of both: the wait for a transfer to be noticed, and the first step",
    ),
    Reason(
        series="vllm:num_requests_waiting*",
        target="decode",
        words="a page a second catches few of the requests whose KV is under way",
    ),
    Reason(
        series="vllm:request_queue_time_seconds",
        target="prefill",
        words="a queue lives off what varies: on a shared machine live steps stall now and then, "
        "simulated ones of one kind all last alike",
    ),
    Reason(
        series="vllm:num_requests_kv_fetch_by_stage",
        target="prefill",
        of_figures=False,
        words="live engines were started with kv_role `kv_both`, so that they can change roles; "
        "simulated prefill is a `kv_producer`, which has it not",
    ),
    Reason(
        series="http_*",
        of_figures=False,
        words="durations and sizes of HTTP requests, which nobody reads",
    ),
    Reason(
        series="phasewise_step*",
        of_figures=False,
        words="written by the step exporter, a plugin that the live engines had",
    ),
)


def reason_of(target: str, name: str, *, of_figures: bool) -> str | None:
    """Why this series differs; `None` where nobody has said."""
    return next(
        (r.words for r in REASONS if r.of_figures is of_figures and r.is_of(target, name)), None
    )


def is_far(ratio: float | None) -> bool:
    """Whether two figures are so far apart that a reason is wanted."""
    return ratio is not None and not 1.0 / FAR_RATIO <= ratio <= FAR_RATIO
