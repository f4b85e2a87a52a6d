"""One replica of a simulated pool: its life around the engine. Pure: no clock, no network."""

from __future__ import annotations

from serving.simulation.engine import Engine
from serving.simulation.faults import PageFault
from serving.simulation.kv_link import KvLink
from serving.simulation.outside import Outside
from serving.simulation.plan import PoolPlan
from serving.simulation.startup import StartUp
from serving.simulation.telemetry import Histogram, ReplicaTelemetry
from serving.types import Phase, ReplicaState, StartKind, StartStage

IDLE_CPU_RATIO = 0.02  # of a core; an engine that waits still polls
BUSY_CPU_RATIO = 0.90


class SimulatedReplica:
    """A replica as its pool, the router and its page see it.

    `stage` says how far a start has come (`None` once ready), `ready_s` when it became ready.
    `load` is the router's own count: prompt tokens on prefill, requests elsewhere. `expected` are
    requests that are still being prefilled elsewhere and will come here.
    """

    def __init__(
        self,
        name: str,
        plan: PoolPlan,
        startup: StartUp | None,
        outside: Outside,
        *,
        user_itl: Histogram,
        created_s: float,
    ) -> None:
        self.name = name
        self.plan = plan
        self.pool = plan.name
        self.phase: Phase = plan.phase
        self.variant = plan.variant
        self.created_s = created_s
        self.startup = startup
        self.state = ReplicaState.READY if startup is None else ReplicaState.STARTING
        self.stage: StartStage | None = None if startup is None else startup.stage_at(0.0)
        self.ready_s: float | None = created_s if startup is None else None
        self.page_fault: PageFault = None
        self.kv_capacity_tokens = plan.kv_blocks * plan.block_size_tokens
        self.load = 0
        self.expected = 0
        self.lease_timer = False
        process_s = created_s + (startup.process_starts_s() if startup else 0.0)
        self._process_started_s = process_s
        self._telemetry = ReplicaTelemetry(
            process_start_time_s=process_s, max_model_len=plan.max_model_len
        )
        self.engine = Engine(plan, self._telemetry, outside, user_itl=user_itl, created_s=created_s)
        self.link = KvLink(
            bytes_per_s=plan.profile.kv_link_bytes_per_s, latency_s=plan.profile.kv_link_latency_s
        )

    @property
    def start_kind(self) -> StartKind | None:
        """Cold or warm; `None` for one of the beginning, and where all starts are alike."""
        return None if self.startup is None else self.startup.kind

    @property
    def start_stages(self) -> tuple[tuple[StartStage, float], ...]:
        """How long the stages of its start took; empty while it starts or where not known."""
        if self.startup is None or self.startup.kind is None or self.ready_s is None:
            return ()
        return self.startup.stages_s()

    @property
    def telemetry(self) -> ReplicaTelemetry | None:
        """The engine's numbers; `None` while it starts, when no page answers."""
        return None if self.state is ReplicaState.STARTING else self._telemetry

    @property
    def is_done(self) -> bool:
        """Draining, and nothing is left that anybody waits for."""
        return self.state is ReplicaState.DRAINING and not self.expected and self.engine.is_empty

    def become_ready(self, now_s: float) -> None:
        """The start has ended."""
        self.state = ReplicaState.READY
        self.stage = None
        self.ready_s = now_s

    def sync(self, now_s: float) -> None:
        """Bring up to date what moves with time alone: the start's stage and the CPU seconds."""
        if self.state is ReplicaState.STARTING and self.startup is not None:
            self.stage = self.startup.stage_at(now_s - self.created_s)
        busy_s = self.engine.busy_s
        if self.engine.running_step:
            busy_s += now_s - self.engine.started_s
        lived_s = max(0.0, now_s - self._process_started_s)
        self._telemetry.process_cpu_s = (
            IDLE_CPU_RATIO * lived_s + (BUSY_CPU_RATIO - IDLE_CPU_RATIO) * busy_s
        )
