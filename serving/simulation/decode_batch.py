"""The requests that decode on one replica, so that a step costs the same for one or hundreds.

Every member emits one token in every step. So a member's length, its last step and the steps in
which it needs a new KV block are all known when it joins: they are counted by step number, and
nobody walks over the members. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from serving.simulation.sequence import Sequence


class DecodeBatch:
    """Members in order of joining, their KV tokens in all, and what each coming step will need.

    A member joins at the end of the step that emitted its first token here, with its
    `context_tokens` stored; each later step stores one more (whoever plays the steps adds `size`
    to `kv_tokens` and takes the finished out of `finish_at`).
    `growth[step % block_size]` is how many members need a new block in that step.
    """

    __slots__ = ("block_size", "finish_at", "growth", "kv_tokens", "members", "size")

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.size = 0
        self.kv_tokens = 0
        self.growth = [0] * block_size
        self.finish_at: dict[int, list[Sequence]] = {}
        self.members: dict[int, Sequence] = {}

    def join(self, sequence: Sequence, step: int) -> None:
        """Take in a request whose first token of this stay came in `step`; it needs more."""
        context = sequence.context_tokens
        last_step = step + sequence.max_tokens - sequence.generated_tokens - 1
        sequence.joined_step = step
        sequence.finish_step = last_step
        self.members[sequence.flight.index] = sequence
        self.size += 1
        self.kv_tokens += context
        self.growth[(step + 1 - context) % self.block_size] += 1
        if last_step in self.finish_at:
            self.finish_at[last_step].append(sequence)
        else:
            self.finish_at[last_step] = [sequence]

    def leave(self, sequence: Sequence, step: int) -> int:
        """Let a member go after `step`; how many blocks it held."""
        context = sequence.context_tokens
        stored = context + step - sequence.joined_step
        del self.members[sequence.flight.index]
        self.size -= 1
        self.kv_tokens -= stored
        self.growth[(sequence.joined_step + 1 - context) % self.block_size] -= 1
        return -(-stored // self.block_size)

    def pop_youngest(self, step: int) -> tuple[Sequence, int]:
        """Put out the member that joined last, after `step`; its blocks are given back.

        It keeps what it has generated and will have to compute its whole context again.
        """
        sequence = self.members[next(reversed(self.members))]
        self.finish_at[sequence.finish_step].remove(sequence)
        blocks = self.leave(sequence, step)
        sequence.generated_tokens += step - sequence.joined_step + 1
        sequence.context_tokens = sequence.prompt_tokens + sequence.generated_tokens
        sequence.computed_tokens = 0
        return sequence, blocks
