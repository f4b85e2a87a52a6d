"""One engine, played iteration by iteration as vLLM V1 schedules: the heart of the simulation.

It keeps a FCFS queue, a token budget, KV blocks and a decode batch, and says when an iteration
ends. Who routes, pulls KV over a link and keeps the clock is outside (`Outside`).
Pure: no clock, no network, no log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

from serving.simulation.accounting import (
    count_admission,
    count_finish,
    count_first_token,
    count_never_scheduled,
)
from serving.simulation.decode_batch import DecodeBatch
from serving.simulation.outside import Outside
from serving.simulation.plan import PoolPlan
from serving.simulation.sequence import Sequence
from serving.simulation.telemetry import Histogram, ReplicaTelemetry
from serving.types import Phase


class Engine:
    """The scheduler and the KV cache of one replica.

    `turn` ends an iteration and begins the next one; `begin` wakes an idle engine. Both return
    when the iteration that now runs will end, or `None` if there is nothing to run.
    Blocks for a whole prompt are taken when it is admitted, those for its answer as it grows.
    """

    def __init__(
        self,
        plan: PoolPlan,
        telemetry: ReplicaTelemetry,
        outside: Outside,
        *,
        user_itl: Histogram,
        created_s: float,
    ) -> None:
        self.plan = plan
        self.telemetry = telemetry
        self.outside = outside
        self.user_itl = user_itl
        self.host_booted_s = created_s - HOST_UP_BEFORE_S
        profile = plan.profile
        self.decode_base_s = profile.decode_base_s
        self.decode_s_per_sequence = profile.decode_s_per_sequence
        self.decode_s_per_kv_token = profile.decode_s_per_kv_token
        self.is_prefill = plan.phase is Phase.PREFILL
        self.has_connector = plan.phase is not Phase.BOTH
        self.block_size = plan.block_size_tokens
        self.total_blocks = plan.kv_blocks
        self.free_blocks = plan.kv_blocks
        self.waiting: deque[Sequence] = deque()
        self.pulling: dict[int, Sequence] = {}
        self.pulled: deque[Sequence] = deque()
        self.prefilling: list[Sequence] = []
        self.batch = DecodeBatch(self.block_size)
        self.pinned: dict[int, Sequence] = {}
        self.step = 0
        self.running_step = False
        self.started_s = created_s
        self.busy_s = 0.0
        self.dead = False
        # of the iteration that runs
        self.firsts: list[Sequence] = []
        self.counted_prompt_tokens = 0
        self.queue_seen = False
        self.left_waiting = 0

    @property
    def held_requests(self) -> int:
        """Requests that are not done here; pinned KV is not among them."""
        return (len(self.waiting) + len(self.pulling) + len(self.pulled) + len(self.prefilling)) + (
            self.batch.size + sum(first not in self.prefilling for first in self.firsts)
        )

    @property
    def is_empty(self) -> bool:
        """Nothing queued, nothing running, no KV that somebody may still pull."""
        return not (self.running_step or self.pinned or self.held_requests)

    def turn(self, now_s: float) -> float | None:
        """End the iteration that runs and begin the next one; a dead engine does neither."""
        if self.dead:
            return None
        batch, telemetry = self.batch, self.telemetry
        gap_s = now_s - self.started_s
        self.busy_s += gap_s
        self.step = step = self.step + 1
        tokens = batch.size
        if tokens:
            itl, user_itl = telemetry.itl, self.user_itl
            weighted_s = gap_s * tokens
            itl.counts[bisect_left(itl.bounds, gap_s)] += tokens
            itl.sum += weighted_s
            itl.count += tokens
            user_itl.counts[bisect_left(user_itl.bounds, gap_s)] += tokens
            user_itl.sum += weighted_s
            user_itl.count += tokens
            telemetry.output_tokens += tokens
            batch.kv_tokens += tokens
            if step in batch.finish_at:
                for sequence in batch.finish_at.pop(step):
                    self.free_blocks += batch.leave(sequence, step)
                    self._finish(sequence, now_s)
        if self.firsts or self.counted_prompt_tokens:
            tokens += self.counted_prompt_tokens + len(self.firsts)
            self._emit_firsts(now_s)
        steps = telemetry.step_tokens
        steps.counts[bisect_left(steps.bounds, tokens)] += 1
        steps.sum += tokens
        steps.count += 1
        self.show_gauges()
        return self.begin(now_s)

    def begin(self, now_s: float) -> float | None:
        """Begin an iteration if there is anything to run; a pure decode step goes the short way."""
        batch = self.batch
        if not (self.waiting or self.prefilling or self.pulled):
            if not batch.size:
                self.running_step = False
                return None
            need = batch.growth[(self.step + 1) % self.block_size]
            if need <= self.free_blocks:
                self.free_blocks -= need
                self.started_s = now_s
                self.running_step = True
                return (
                    now_s
                    + self.decode_base_s
                    + self.decode_s_per_sequence * batch.size
                    + self.decode_s_per_kv_token * batch.kv_tokens
                )
        return self._begin_mixed(now_s)

    def _begin_mixed(self, now_s: float) -> float | None:
        """Decode first, then KV that has arrived, then prompts in order, within the budget."""
        preempted = self._make_room(now_s)
        batch = self.batch
        budget = self.plan.max_num_batched_tokens - batch.size
        decodes, kv_tokens = batch.size, batch.kv_tokens
        while self.pulled and budget > 0:
            sequence = self.pulled.popleft()
            sequence.scheduled_s = now_s
            self.firsts.append(sequence)
            budget -= 1
            decodes += 1
            kv_tokens += sequence.context_tokens
        chunk_tokens, squares = 0, 0
        if not preempted:
            self._admit(now_s, budget)
        for sequence in self.prefilling:
            if chunk_tokens >= budget:
                break
            done = sequence.computed_tokens
            chunk = min(sequence.context_tokens - done, budget - chunk_tokens)
            if sequence.scheduled_s < 0.0:
                sequence.scheduled_s = now_s
            sequence.computed_tokens = done + chunk
            chunk_tokens += chunk
            squares += (done + chunk) ** 2 - done**2
            if not sequence.preemptions:
                self.counted_prompt_tokens += chunk
            if sequence.computed_tokens == sequence.context_tokens:
                self.firsts.append(sequence)
        self.left_waiting = len(self.waiting)
        if not (decodes or chunk_tokens):
            self.running_step = False
            self.show_gauges()
            return None
        self.started_s = now_s
        self.running_step = True
        return now_s + self._duration_s(decodes, kv_tokens, chunk_tokens, squares)

    def _duration_s(self, decodes: int, kv_tokens: int, chunk_tokens: int, squares: int) -> float:
        profile = self.plan.profile
        base_s = max(
            profile.prefill_base_s if chunk_tokens else 0.0, self.decode_base_s if decodes else 0.0
        )
        return (
            base_s
            + profile.prefill_s_per_token * chunk_tokens
            + profile.prefill_s_per_token_squared * squares
            + self.decode_s_per_sequence * decodes
            + self.decode_s_per_kv_token * kv_tokens
        )

    def _make_room(self, now_s: float) -> bool:
        """Take the blocks that decode needs in the coming step; preempt the youngest if short."""
        batch, preempted = self.batch, False
        phase = (self.step + 1) % self.block_size
        while batch.growth[phase] > self.free_blocks:
            preempted = True
            self.telemetry.preemptions += 1
            if self.prefilling:
                sequence = self.prefilling.pop()
                self.free_blocks += -(-sequence.context_tokens // self.block_size)
                sequence.computed_tokens = 0
            else:
                sequence, blocks = batch.pop_youngest(self.step)
                self.free_blocks += blocks
                sequence.last_token_s = now_s
            sequence.preemptions += 1
            self.waiting.appendleft(sequence)
        self.free_blocks -= batch.growth[phase]
        return preempted

    def _admit(self, now_s: float, budget: int) -> None:
        """Take requests from the head of the queue; nobody overtakes one that lacks blocks.

        A request with remote KV gets its blocks and starts to pull; it costs no token yet.
        """
        budget -= sum(s.context_tokens - s.computed_tokens for s in self.prefilling)
        running = self.batch.size + len(self.prefilling) + len(self.firsts)
        while self.waiting and budget > 0:
            sequence = self.waiting[0]
            blocks = -(-sequence.context_tokens // self.block_size)
            if blocks > self.free_blocks or (
                running + len(self.pulling) + len(self.pulled) >= self.plan.max_num_seqs
            ):
                return
            self.waiting.popleft()
            if not sequence.preemptions:
                count_admission(self.telemetry, sequence, connector=self.has_connector)
            if sequence.source is not None and not sequence.generated_tokens:
                if self.outside.pull(sequence, now_s):
                    self.free_blocks -= blocks
                    self.pulling[sequence.flight.index] = sequence
                else:
                    self.fail_pull(sequence, now_s)
                continue
            self.free_blocks -= blocks
            self.prefilling.append(sequence)
            running += 1
            budget -= sequence.context_tokens

    def _emit_firsts(self, now_s: float) -> None:
        """Hand out the first tokens of the iteration that ended, and let their requests go on."""
        firsts, self.firsts, self.counted_prompt_tokens = self.firsts, [], 0
        if self.prefilling:
            self.prefilling = [s for s in self.prefilling if s.computed_tokens < s.context_tokens]
        telemetry = self.telemetry
        telemetry.output_tokens += len(firsts)
        for sequence in firsts:
            if sequence.first_token_s < 0.0:
                sequence.first_token_s = now_s
                count_first_token(telemetry, sequence, now_s)
                if not self.is_prefill:
                    self.outside.first_token(sequence, now_s)
            else:
                gap_s = now_s - sequence.last_token_s
                telemetry.itl.observe(gap_s)
                self.user_itl.observe(gap_s)
            if sequence.max_tokens - sequence.generated_tokens > 1:
                self.batch.join(sequence, self.step)
                continue
            if self.is_prefill:
                self.pinned[sequence.flight.index] = sequence
            else:
                self.free_blocks += -(-sequence.context_tokens // self.block_size)
            self._finish(sequence, now_s)

    def _finish(self, sequence: Sequence, now_s: float) -> None:
        sequence.last_token_s = now_s
        count_finish(self.telemetry, sequence, now_s)
        if self.is_prefill:
            self.telemetry.finished_length += 1
            self.outside.prefilled(sequence, now_s)
        else:
            self.telemetry.finished_stop += 1
            self.outside.finished(sequence, now_s)

    def arrive_kv(self, sequence: Sequence) -> None:
        """A pull is complete: the sequence joins at the next iteration."""
        del self.pulling[sequence.flight.index]
        self.pulled.append(sequence)

    def abort_pull(self, sequence: Sequence, now_s: float) -> None:
        """A pull broke off in flight: its blocks come back and the request fails."""
        del self.pulling[sequence.flight.index]
        self.free_blocks += -(-sequence.context_tokens // self.block_size)
        self.fail_pull(sequence, now_s)
        if not self.running_step:
            self.show_gauges()

    def fail_pull(self, sequence: Sequence, now_s: float) -> None:
        """Policy `fail`, vLLM's default: the request ends with an error."""
        self.telemetry.kv_transfer_failures += 1
        count_never_scheduled(
            self.telemetry, sequence, now_s, host_monotonic_s=now_s - self.host_booted_s
        )
        self.outside.failed(sequence, now_s)

    def unpin(self, sequence: Sequence) -> None:
        """Free the KV of a prompt that was pulled, or whose lease has ended."""
        del self.pinned[sequence.flight.index]
        self.free_blocks += -(-sequence.context_tokens // self.block_size)
        if not self.running_step:
            self.show_gauges()

    def show_gauges(self) -> None:
        """Set the gauges as of now: the end of an iteration, or an idle turn of the loop."""
        telemetry = self.telemetry
        telemetry.running_requests = self.batch.size + len(self.prefilling)
        telemetry.kv_used_ratio = 1.0 - self.free_blocks / self.total_blocks
        if self.left_waiting or self.pulling or self.pulled or self.queue_seen:
            pulling, pulled = len(self.pulling), len(self.pulled)
            waiting = self.left_waiting
            telemetry.waiting_capacity_requests = waiting
            telemetry.waiting_deferred_requests = pulling + pulled
            telemetry.kv_fetch_in_progress = pulling
            telemetry.kv_fetch_completed_waiting = pulled
            telemetry.kv_fetch_waiting_to_start = 0 if self.is_prefill else waiting
            self.queue_seen = bool(waiting or pulling or pulled)


HOST_UP_BEFORE_S = 1.0e6  # how long a host has been up when a replica comes to it
