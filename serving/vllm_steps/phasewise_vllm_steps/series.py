"""The series `phasewise_step_*` in prometheus_client's default registry, which vLLM's page shows.

Sums over steps, by kind of step: of each quantity, and of each product of two. A least-squares fit
of step time needs no more than how these grew. vLLM clears only collectors named `vllm:*` from the
registry, so these stay; with several API servers they are files like vLLM's own, and are added up.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import Counter, Gauge, Histogram

from phasewise_vllm_steps.step import KINDS, Step

BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
LABELS = ("model_name", "engine")

SUMS: dict[str, tuple[str, Callable[[Step], float]]] = {
    "phasewise_steps_total": ("Engine steps that scheduled tokens", lambda s: 1),
    "phasewise_step_prefill_requests_total": (
        "Requests of which prompt tokens were scheduled, over steps",
        lambda s: s.prefill_requests,
    ),
    "phasewise_step_decode_tokens_total": (
        "Tokens scheduled for running sequences, over steps",
        lambda s: s.decode_tokens,
    ),
    "phasewise_step_prefill_tokens_total": ("Prompt tokens scheduled, over steps", lambda s: s[1]),
    "phasewise_step_sequences_total": ("Running sequences scheduled, over steps", lambda s: s[2]),
    "phasewise_step_kv_tokens_total": ("Tokens whose KV was resident, over steps", lambda s: s[4]),
    "phasewise_step_seconds_total": ("Time that steps kept the engine", lambda s: s[5]),
    "phasewise_step_prefill_tokens_squared_total": (
        "Square of a step's prompt tokens, over steps",
        lambda s: s[1] * s[1],
    ),
    "phasewise_step_sequences_squared_total": (
        "Square of a step's sequences, over steps",
        lambda s: s[2] * s[2],
    ),
    "phasewise_step_kv_tokens_squared_total": (
        "Square of a step's resident KV tokens, over steps",
        lambda s: s[4] * s[4],
    ),
    "phasewise_step_seconds_squared_total": (
        "Square of a step's time, over steps",
        lambda s: s[5] * s[5],
    ),
    "phasewise_step_prefill_tokens_sequences_total": (
        "A step's prompt tokens times its sequences, over steps",
        lambda s: s[1] * s[2],
    ),
    "phasewise_step_prefill_tokens_kv_tokens_total": (
        "A step's prompt tokens times its KV tokens, over steps",
        lambda s: s[1] * s[4],
    ),
    "phasewise_step_sequences_kv_tokens_total": (
        "A step's sequences times its KV tokens, over steps",
        lambda s: s[2] * s[4],
    ),
    "phasewise_step_seconds_prefill_tokens_total": (
        "A step's prompt tokens times its time, over steps",
        lambda s: s[1] * s[5],
    ),
    "phasewise_step_seconds_sequences_total": (
        "A step's sequences times its time, over steps",
        lambda s: s[2] * s[5],
    ),
    "phasewise_step_seconds_kv_tokens_total": (
        "A step's KV tokens times its time, over steps",
        lambda s: s[4] * s[5],
    ),
}
"""Counter names, what they count, and what one step adds."""


class StepSeries:
    """All series, made once in a process however many engines it speaks for."""

    _only: StepSeries | None = None

    def __init__(self) -> None:
        labels = (*LABELS, "kind")
        self._sums = {name: Counter(name, words, labels) for name, (words, _) in SUMS.items()}
        self._times = Histogram(
            "phasewise_step_time_seconds",
            "Time that a step kept the engine",
            labels,
            buckets=BOUNDS_S,
        )
        self._untimed = Counter(
            "phasewise_step_untimed_tokens_total",
            "Tokens scheduled in steps whose time nobody could tell; they are in no other sum",
            (*LABELS, "phase"),
        )
        self._info = Gauge(
            "phasewise_step_exporter_info",
            "1 for what holds now: an empty problem, or why step times are unknown",
            (*LABELS, "version", "problem"),
            multiprocess_mode="mostrecent",
        )

    @classmethod
    def of_process(cls) -> StepSeries:
        """The series of this process; a name can be registered only once."""
        if cls._only is None:
            cls._only = cls()
        return cls._only

    def say(self, model_name: str, engine: str, version: str, problem: str, before: str) -> None:
        """State a problem (empty: none) in place of the one before."""
        if before != problem:
            self._info.labels(model_name, engine, version, before).set(0)
        self._info.labels(model_name, engine, version, problem).set(1)

    def left_out(self, model_name: str, engine: str) -> Callable[[int, int], None]:
        """What adds the prompt and running tokens of a step whose time is not known."""
        prefill = self._untimed.labels(model_name, engine, "prefill")
        decode = self._untimed.labels(model_name, engine, "decode")

        def add(prefill_tokens: int, decode_tokens: int) -> None:
            prefill.inc(prefill_tokens)
            decode.inc(decode_tokens)

        return add

    def adder(self, model_name: str, engine: str) -> Callable[[Step], None]:
        """What adds one step of an engine; from now on its series are there, from 0."""
        cells = {
            kind: (
                [
                    (self._sums[name].labels(model_name, engine, kind).inc, amount)
                    for name, (_, amount) in SUMS.items()
                ],
                self._times.labels(model_name, engine, kind).observe,
            )
            for kind in KINDS
        }

        def add(step: Step) -> None:
            sums, observe = cells[step.kind]
            for increase, amount in sums:
                value = amount(step)
                if value:
                    increase(value)
            observe(step.seconds)

        return add
