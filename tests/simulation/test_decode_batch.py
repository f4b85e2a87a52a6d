"""The counted batch against one that walks over its members."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.simulation.decode_batch import DecodeBatch
from serving.simulation.plan import PoolPlan
from serving.simulation.profile import load_profile
from serving.simulation.sequence import Flight, Sequence
from serving.simulation.tier import SimulatedTier, TierPlan
from serving.types import Phase

PLAN = PoolPlan(
    name="all", phase=Phase.BOTH, variant="v", profile=load_profile("llama-3.1-8b-l40s")
)
REPLICA = SimulatedTier(TierPlan(name="t", model="m", pools=(PLAN,)), [], seed=0).replicas()[0]


def sequence(index: int, prompt: int, answer: int) -> Sequence:
    flight = Flight(index=index, arrival_s=0.0, input_tokens=prompt, output_tokens=answer)
    return Sequence(flight, REPLICA, arrived_s=0.0, max_tokens=answer)


def ceil_blocks(tokens: int, block_size: int) -> int:
    return -(-tokens // block_size)


@given(
    block_size=st.sampled_from([1, 2, 3, 16]),
    joins=st.lists(
        st.tuples(st.integers(0, 30), st.integers(1, 40), st.integers(2, 50)), max_size=12
    ),
    put_out_at=st.sets(st.integers(0, 60), max_size=4),
)
def test_counts_equal_a_walk_over_the_members(block_size, joins, put_out_at):
    batch = DecodeBatch(block_size)
    stored: dict[int, int] = {}  # what a plain engine would keep for each member
    left: dict[int, int] = {}
    for step in range(90):
        needed = sum(
            ceil_blocks(stored[i] + 1, block_size) - ceil_blocks(stored[i], block_size)
            for i in stored
        )

        assert batch.growth[step % block_size] == needed

        for i in stored:
            stored[i] += 1
            left[i] -= 1
        batch.kv_tokens += batch.size
        ended = [s.flight.index for s in batch.finish_at.get(step, [])]
        assert ended == [i for i in stored if left[i] == 0]
        for member in batch.finish_at.pop(step, []):
            assert batch.leave(member, step) == ceil_blocks(stored[member.flight.index], block_size)
            del stored[member.flight.index]
        if step in put_out_at and stored:
            youngest = list(stored)[-1]
            member, blocks = batch.pop_youngest(step)
            assert member.flight.index == youngest
            assert blocks == ceil_blocks(stored[youngest], block_size)
            assert member.context_tokens == stored.pop(youngest) + 1  # its last token has no KV yet
        for index, (at, prompt, answer) in enumerate(joins):
            if at == step:
                batch.join(sequence(index, prompt, answer), step)
                stored[index], left[index] = prompt, answer - 1

        assert batch.size == len(stored)
        assert batch.kv_tokens == sum(stored.values())
    assert not any(batch.growth) or batch.size


def test_a_member_that_was_put_out_needs_only_the_rest_of_its_answer():
    batch = DecodeBatch(16)
    member = sequence(0, prompt=100, answer=10)
    batch.join(member, 5)  # first token in step 5
    put_out, blocks = batch.pop_youngest(7)  # and two more in 6 and 7

    assert put_out is member
    assert (member.generated_tokens, member.context_tokens) == (3, 103)
    assert blocks == 7  # 102 tokens stored in blocks of 16

    batch.join(member, 20)  # the fourth token in step 20, the tenth in step 26
    assert batch.finish_at[26] == [member]
    assert not batch.finish_at[14]  # its old last step


@pytest.mark.parametrize("block_size", [1, 16])
def test_an_emptied_batch_needs_nothing(block_size):
    batch = DecodeBatch(block_size)
    batch.join(sequence(0, 10, 5), 0)
    batch.kv_tokens += 2 * batch.size  # two steps
    batch.pop_youngest(2)

    assert (batch.size, batch.kv_tokens, sum(batch.growth)) == (0, 0, 0)
