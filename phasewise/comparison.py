"""All policies on the same requests: plays the peers beside ours and picks each one's fair row.

Simulations run in processes of their own; how many run at once changes when the table is ready
and never what is in it.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import (
    CancelledError,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from autoscaler.policies import Capacity
from phasewise.backtesting import PolicyChoice, backtest
from phasewise.ending import end_with_parent
from phasewise.scoring import Score
from phasewise.search import cheapest_match, sweep_headroom, sweep_sizes
from phasewise.workload import (
    SPREAD_S,
    MeanNeed,
    TraceMeans,
    automatic_volume,
    mean_need,
    scaled,
    trace_means,
)
from serving.errors import Misconfigured, Unavailable
from serving.schema.tier import Tier, load_tier
from serving.simulation.readings import RouterSource
from serving.simulation.trace_files import TRACES, packaged_trace
from serving.simulation.traffic import Request, load_trace, multiply
from serving.types import Slo

DEFAULT_TARGET_RATIO = 0.99  # what peers are matched to where phasewise does not play
# simulations that each row may take; with ours they are the twelve of the demo
STATIC_PEAK_RUNS, BEST_STATIC_RUNS, HEADROOM_RUNS = 1, 4, 3
COARSE_HEADROOM_RATIO = 0.05  # points further apart say little of what lies between


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is played, as plain values that name files, so that another process can load it."""

    tier_file: Path
    trace: str
    volume: float
    seed: int
    from_s: float | None = None
    to_s: float | None = None
    router: RouterSource | None = "epp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A workload in memory: tier, requests, and what their mean needs."""

    tier: Tier
    requests: Sequence[Request]
    means: TraceMeans
    need: MeanNeed


def trace_path(trace: str) -> Path:
    """A packaged trace by its name, else a file."""
    if not trace:
        raise Misconfigured(
            "no trace is named",
            where="--trace",
            found="nothing",
            expected=f"one of {', '.join(TRACES)}, or a .csv(.gz) file",
        )
    return packaged_trace(trace) if trace in TRACES else Path(trace)


def window(
    requests: Sequence[Request], *, from_s: float | None, to_s: float | None
) -> list[Request]:
    """The requests of a window of the trace, with times from its start."""
    start_s = 0.0 if from_s is None else from_s
    kept = [
        r._replace(arrival_s=r.arrival_s - start_s)
        for r in requests
        if r.arrival_s >= start_s and (to_s is None or r.arrival_s < to_s)
    ]
    if not kept:
        last_s = requests[-1].arrival_s
        raise Misconfigured(
            "the window holds no request",
            where="--from, --to",
            found=f"{start_s:g} to {'the end' if to_s is None else f'{to_s:g}'} s",
            expected=f"a part of 0 to {last_s:g} s",
        )
    return kept


def resolve_volume(tier: Tier, requests: Sequence[Request], volume: str) -> float:
    """The multiple of the traffic: a number, or `auto` (about eight replicas of each pool)."""
    if volume == "auto":
        return float(automatic_volume(tier, trace_means(requests)))
    try:
        number = float(volume)
    except ValueError:
        number = -1.0
    if not 0.0 < number <= 10_000.0:
        raise Misconfigured(
            "no such volume",
            where="--volume",
            found=repr(volume),
            expected="auto, or a number above 0 and up to 10000",
        )
    return number


@lru_cache(maxsize=1)
def load_workload(workload: Workload) -> Loaded:
    """Read and multiply the trace; the same workload gives the same requests in every process."""
    tier = load_tier(workload.tier_file)
    base = window(
        load_trace(trace_path(workload.trace)), from_s=workload.from_s, to_s=workload.to_s
    )
    means = scaled(trace_means(base), workload.volume)
    requests = multiply(base, copies=workload.volume, spread_s=SPREAD_S, seed=workload.seed)
    return Loaded(tier=tier, requests=requests, means=means, need=mean_need(tier, means))


def play(workload: Workload, choice: PolicyChoice) -> Score:
    """One simulation, in whatever process this is called."""
    loaded = load_workload(workload)
    return backtest(
        loaded.tier,
        loaded.requests,
        choice,
        loaded.need,
        seed=workload.seed,
        router=workload.router,
    )


def peak_sizes(requests: Sequence[Request], capacity: Capacity) -> tuple[int, int]:
    """The fixed size that carries the busiest minute of each pool, by its capacity in the SLO."""
    tokens_in: dict[int, int] = {}
    tokens_out: dict[int, int] = {}
    for arrival_s, input_tokens, output_tokens in requests:
        minute = int(arrival_s // 60.0)
        tokens_in[minute] = tokens_in.get(minute, 0) + input_tokens
        tokens_out[minute] = tokens_out.get(minute, 0) + output_tokens
    prefill = max(tokens_in.values()) / 60.0 / capacity.prefill_tokens_per_s
    decode = max(tokens_out.values()) / 60.0 / capacity.decode_tokens_per_s
    return int(-(-prefill // 1)), int(-(-decode // 1))


def likely_size(peak: tuple[int, int], need: MeanNeed) -> tuple[int, int]:
    """Where the search for the best fixed size starts: between the mean need and the peak."""
    return (
        round(0.4 * need.prefill_replicas + 0.6 * peak[0]),
        round(0.4 * need.decode_replicas + 0.6 * peak[1]),
    )


class Peers:
    """Plays the peers while ours runs elsewhere. `on_played` is called after each simulation.

    `say` is told if simulations have to be ended. One at a time in a process: it ends them all.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        processes: int,
        on_played: Callable[[Score], None],
        say: Callable[[str], None],
    ) -> None:
        self._workload = workload
        self._on_played = on_played
        self._say = say
        self._playing = 0
        self._count = threading.Lock()
        self._pool = ProcessPoolExecutor(
            max_workers=processes,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=end_with_parent,
        )
        self._threads = ThreadPoolExecutor(max_workers=4)

    def close(self) -> None:
        """End the processes, also those that still play; what was not begun is dropped."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._playing:
            self._say("stopping…")
        # waited for, or the interpreter would close a pipe under the pool's own thread
        ending = threading.Thread(
            target=self._pool.shutdown, kwargs={"wait": True, "cancel_futures": True}
        )
        ending.start()
        while ending.is_alive():
            if self._playing:  # each time anew: the pool may just have been starting some
                for process in multiprocessing.active_children():
                    process.kill()
            ending.join(0.1)

    def submit(self, work: Callable[..., Score], *arguments: Any) -> Future[Score]:
        """Let some of it run while the caller does something else."""
        return self._threads.submit(work, *arguments)

    def play(self, choice: PolicyChoice) -> Score:
        """One simulation in a process of its own; waits for it."""
        self._counts(1)  # first: the process may be seen, and all be ended, before it is submitted
        try:
            row = self._begin(choice).result()
        except BrokenProcessPool as error:
            raise Unavailable(
                "a simulation was ended from outside, as the system does when memory is short"
            ) from error
        finally:
            self._counts(-1)
        self._on_played(row)
        return row

    def _begin(self, choice: PolicyChoice) -> Future[Score]:
        try:
            return self._pool.submit(play, self._workload, choice)
        except BrokenProcessPool:
            raise
        except RuntimeError as error:  # closed before this one was begun
            raise CancelledError from error

    def _counts(self, more: int) -> None:
        with self._count:
            self._playing += more

    def static_peak(self, size: tuple[int, int]) -> Score:
        """The fixed size for the busiest minute."""
        row = self.play(
            PolicyChoice(name="static_peak", prefill_replicas=size[0], decode_replicas=size[1])
        )
        return replace(row, sizes={"prefill": size[0], "decode": size[1]})

    def rows(
        self, target_ratio: float, *, peers: Sequence[str], start: tuple[int, int]
    ) -> dict[str, Score]:
        """Each peer's fair row against a target attainment."""

        def headroom(name: str) -> Score:
            scores = sweep_headroom(
                lambda h: self.play(PolicyChoice(name=name, headroom_ratio=h)),
                target_ratio=target_ratio,
                at_most=HEADROOM_RUNS,
            )
            return _fair(scores, target_ratio)

        def best_static() -> Score:
            def at(prefill: int, decode: int) -> Score:
                choice = PolicyChoice(
                    name="best_static", prefill_replicas=prefill, decode_replicas=decode
                )
                return replace(self.play(choice), sizes={"prefill": prefill, "decode": decode})

            scores = sweep_sizes(
                at, start=start, target_ratio=target_ratio, at_most=BEST_STATIC_RUNS
            )
            return _fair(scores, target_ratio)

        waiting = {
            name: self._threads.submit(best_static)
            if name == "best_static"
            else self._threads.submit(headroom, name)
            for name in peers
        }
        return {name: job.result() for name, job in waiting.items()}


def _fair(scores: Sequence[Score], target_ratio: float) -> Score:
    row, matched = cheapest_match(scores, target_ratio)
    bracket = headroom_bracket(row, scores, target_ratio) if matched else None
    return replace(row, matched=matched, headroom_bracket=bracket)


def headroom_bracket(
    row: Score, scores: Sequence[Score], target_ratio: float
) -> tuple[float, float] | None:
    """The next smaller headroom that misses the target, and a matching row's own.

    `None` where they are close, and where no smaller one was played: nothing is known below then.
    """
    high = row.headroom_ratio
    if high is None:
        return None
    under = [
        s.headroom_ratio
        for s in scores
        if s.attainment_ratio < target_ratio
        and s.headroom_ratio is not None
        and s.headroom_ratio < high
    ]
    if not under or high - max(under) <= COARSE_HEADROOM_RATIO + 1e-9:
        return None
    return max(under), high


def comparison_json(
    rows: Sequence[Score], *, trace: str, slo: Slo, seed: int, extra: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The comparison as one document; phases are in lower case, unknown quantiles are null.

    `replicas` is over `replicas_window_s`, and null where nothing was played in it.
    """
    policies: dict[str, Any] = {}
    for row in rows:
        policy: dict[str, Any] = {
            "attainment_ratio": row.attainment_ratio,
            "goodput_requests": row.good_requests,
            "requests": row.requests,
            "accelerator_hours": row.accelerator_hours,
            "ttft_s": row.ttft_s,
            "itl_s": row.itl_s,
            "scaling_actions": row.scaling_actions,
            "reversals": row.reversals,
            "unfinished_requests": row.unfinished_requests,
            "replicas": {
                phase: None if spread is None else asdict(spread)
                for phase, spread in row.replicas.items()
            },
        }
        if row.headroom_ratio is not None:
            policy["headroom_ratio"] = row.headroom_ratio
        if row.headroom_bracket is not None:
            policy["headroom_bracket"] = list(row.headroom_bracket)
        if row.matched is not None:
            policy["matched"] = row.matched
        if row.sizes:
            policy["sizes"] = row.sizes
        policies[row.policy] = policy
    return {
        "trace": trace,
        "slo": {"ttft_s": slo.ttft_s, "itl_s": slo.itl_s},
        "seed": seed,
        "replicas_window_s": list(rows[0].replicas_window_s) if rows else None,
        **(extra or {}),
        "policies": policies,
    }
