"""llm-d's endpoint picker (EPP) in our words: the user's own clock in front of both pools.

Names are of llm-d/llm-d-router (Apache-2.0), `pkg/epp/metrics/`. The picker emits the names of
several generations side by side: of each number only the newest name on the page is counted.
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from serving.dialects.page import (
    Keep,
    Labels,
    Page,
    first_present,
    histogram,
    histogram_name,
    label,
    total,
)
from serving.types import HistogramReading, RouterReading

SOURCE = "epp"
_NEW, _ROUTER, _OBJECTIVE, _MODEL = (
    "llm_d_epp",
    "llm_d_router_epp",
    "inference_objective",
    "inference_model",
)
COUNTERS: dict[str, tuple[str, ...]] = {
    "requests": tuple(f"{g}_request_total" for g in (_NEW, _ROUTER, _OBJECTIVE, _MODEL)),
    "failed_requests": tuple(
        f"{g}_request_error_total" for g in (_NEW, _ROUTER, _OBJECTIVE, _MODEL)
    ),
    "running_requests": (
        f"{_NEW}_request_running",
        *(f"{g}_running_requests" for g in (_ROUTER, _OBJECTIVE, _MODEL)),
    ),
}
HISTOGRAMS: dict[str, tuple[str, ...]] = {
    "input_tokens": (
        f"{_NEW}_request_input_tokens",
        *(f"{g}_input_tokens" for g in (_ROUTER, _OBJECTIVE, _MODEL)),
    ),
    "cached_tokens": (
        f"{_NEW}_request_cached_tokens",
        *(f"{g}_prompt_cached_tokens" for g in (_ROUTER, _OBJECTIVE)),
    ),
    "output_tokens": (
        f"{_NEW}_request_output_tokens",
        *(f"{g}_output_tokens" for g in (_ROUTER, _OBJECTIVE, _MODEL)),
    ),
    "ttft": tuple(f"{g}_request_ttft_seconds" for g in (_NEW, _ROUTER, _OBJECTIVE, _MODEL)),
    "tpot": (
        *(f"{g}_request_streaming_tpot_seconds" for g in (_NEW, _ROUTER)),
        *(f"{g}_request_tpot_seconds" for g in (_OBJECTIVE, _MODEL)),
    ),
    "itl": (
        *(f"{g}_request_streaming_itl_seconds" for g in (_NEW, _ROUTER)),
        f"{_OBJECTIVE}_inter_token_latency_seconds",
    ),
}

WANTED: frozenset[str] = frozenset(
    [
        *(name for names in COUNTERS.values() for name in names),
        *(
            f"{name}_{part}"
            for names in HISTOGRAMS.values()
            for name in names
            for part in ("bucket", "sum", "count")
        ),
    ]
)
"""Every sample name that this dialect asks the page for."""


def router_reading(page: Page, *, at_s: float, model: str | None = None) -> RouterReading:
    """What the picker's page says, for one model or (`model=None`) for all that it serves.

    Its series appear with the first request that touches them: absent ones are `None`, not zero.
    """
    keep = _keep(model)
    number = {field: _total(page, names, keep) for field, names in COUNTERS.items()}
    spread = {field: _histogram(page, names, keep) for field, names in HISTOGRAMS.items()}
    return RouterReading(
        at_s=at_s,
        source=SOURCE,
        requests=number["requests"],
        failed_requests=number["failed_requests"],
        running_requests=number["running_requests"],
        input_tokens=spread["input_tokens"],
        cached_tokens=spread["cached_tokens"],
        output_tokens=spread["output_tokens"],
        ttft=spread["ttft"],
        itl=spread["itl"],
        tpot=spread["tpot"],
    )


def _keep(model: str | None) -> Keep:
    """Label sets of the model. TTFT of a request that is not streamed is its whole duration."""

    def keep(labels: Labels) -> bool:
        if label(labels, "streaming") == "false":
            return False
        return model is None or model in (
            label(labels, "model_name"),
            label(labels, "target_model_name"),
        )

    return keep


def _total(page: Page, names: tuple[str, ...], keep: Keep) -> float | None:
    name = first_present(page, names)
    return total(page, name, keep=keep) if name is not None else None


def _histogram(page: Page, names: tuple[str, ...], keep: Keep) -> HistogramReading | None:
    name = histogram_name(page, names)
    return histogram(page, name, keep=keep) if name is not None else None
