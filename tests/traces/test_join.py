"""The two halves of a request become one, whatever comes in between."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.traces.join import BY_REQUEST, BY_TRACE, Joiner
from collector.traces.otlp_json import decode_json
from collector.traces.own_spans import own_spans
from collector.traces.parts import TTFT_PARTS, Outcome, Part, RequestTrace
from collector.traces.spans import EngineSpan, engine_span
from collector.traces.summary import summarise
from serving.types import Phase
from tests.traces.given_spans import ID, halves, later, span

CAPTURED = Path(__file__).parents[1] / "fixtures" / "vllm-0.32" / "traces" / "pair.jsonl"


def _captured() -> list[EngineSpan]:
    lines = CAPTURED.read_bytes().splitlines()
    raws = [one for line in lines for one in decode_json(line, max_spans=1_000)]
    return [one for one in map(engine_span, raws) if one is not None]


def _joined(spans: list[EngineSpan], joiner: Joiner | None = None) -> list[RequestTrace]:
    joiner = joiner or Joiner()
    found = [trace for one in spans for trace in joiner.take(one, 0.0)]
    return [*found, *joiner.rest()]


def test_a_requests_parts_touch_and_are_the_whole_time_to_the_first_token() -> None:
    (trace,) = _joined(list(halves()))

    assert trace.outcome is Outcome.JOINED
    assert [one.part for one in trace.parts] == list(Part)
    # front end 0.02 + queue 0.1; prefill; router 0.05 + front end 0.01 + decode's wait 0.2
    assert [one.duration_s for one in trace.parts] == pytest.approx([0.12, 0.18, 0.26, 0.04, 2.0])
    assert (trace.handoff_s, trace.decode_wait_s) == pytest.approx((0.05, 0.2), abs=1e-06)
    assert trace.ttft_s == pytest.approx(0.6)
    for one, following in zip(trace.parts, trace.parts[1:], strict=False):
        assert one.end_s == pytest.approx(following.start_s, abs=1e-06)


def test_the_captured_pair_is_joined_with_all_five_parts() -> None:
    joiner = Joiner()
    traces = _joined(_captured(), joiner)
    joined = [one for one in traces if one.outcome is Outcome.JOINED]

    assert len(joined) == 27
    assert joiner.counts["aggregated"] == 2  # sent to the decode engine itself
    assert joiner.counts["no decode span"] == 29  # clients that left before the answer's end
    for one in joined:
        assert [part.part for part in one.parts] == list(Part)
        assert one.joined_by == BY_REQUEST
        assert one.clock_skew_s == 0.0
        assert one.ttft_s is not None
        parts_s = sum(one.seconds(part) or 0.0 for part in TTFT_PARTS)
        assert parts_s == pytest.approx(one.ttft_s, abs=1e-05)


def test_the_captured_parts_are_what_the_users_waited_less_the_way_to_the_router() -> None:
    users_s = json.loads((CAPTURED.parent / "users-ttft.json").read_text())
    joined = {one.request_id: one for one in _joined(_captured()) if one.joined_by}
    outside_s = []
    for request_id, waited_s in users_s.items():
        parts_s = sum(joined[request_id].seconds(part) or 0.0 for part in TTFT_PARTS)
        outside_s.append(waited_s - parts_s)

    assert len(outside_s) == 27
    assert min(outside_s) > 0.0
    assert median(outside_s) < 0.02
    assert max(outside_s) < 0.25  # two busy cores


@given(st.integers(0, 2**32), st.lists(st.sampled_from(range(12)), max_size=6))
def test_order_and_repetition_change_nothing(seed: int, repeated: list[int]) -> None:
    spans = [half for number in range(6) for half in halves(number)]
    expected = sorted(one.first.arrival_s for one in _joined(spans))
    given_spans = [*spans, *(spans[index] for index in repeated)]
    Random(seed).shuffle(given_spans)
    joiner = Joiner()
    traces = _joined(given_spans, joiner)

    assert sorted(one.first.arrival_s for one in traces) == expected
    assert all(one.outcome is Outcome.JOINED for one in traces)
    assert all(one.prefill == one.first and one.first.looks_like_prefill for one in traces)
    assert joiner.counts["duplicate"] == len(repeated)
    assert joiner.waiting == 0


@given(st.floats(-3600.0, 3600.0))
def test_a_wrong_clock_never_gives_a_negative_time(behind_s: float) -> None:
    prefill, decode = halves()
    (trace,) = _joined([prefill, later(decode, -behind_s)])

    assert trace.prefill == prefill
    assert all(one.duration_s >= 0.0 for one in trace.parts)
    assert trace.clock_skew_s == pytest.approx(max(0.0, behind_s - 0.05), abs=1e-05)
    assert trace.seconds(Part.FIRST_DECODE_STEP) == pytest.approx(0.04, abs=1e-05)
    if behind_s > 0.05:  # the handoff is taken as none
        assert trace.handoff_s == pytest.approx(0.0, abs=1e-05)
        assert trace.ttft_s == pytest.approx(0.55, abs=1e-05)


def test_a_half_is_told_as_such_when_its_time_is_over_and_not_before() -> None:
    prefill, decode = halves()
    joiner = Joiner(wait_s=300.0)

    assert joiner.take(prefill, 0.0) == ()
    assert joiner.due(299.0) == ()
    (trace,) = joiner.due(300.0)
    assert trace.outcome is Outcome.NO_DECODE
    assert [one.part for one in trace.parts] == [Part.QUEUE, Part.PREFILL]
    assert trace.ttft_s is None
    assert joiner.take(decode, 301.0) == ()  # too late: it is over
    assert joiner.counts["extra span"] == 1


def test_a_decode_half_alone_has_its_own_two_parts() -> None:
    (trace,) = _joined([halves()[1]])

    assert trace.outcome is Outcome.NO_PREFILL
    assert [one.part for one in trace.parts] == [Part.FIRST_DECODE_STEP, Part.DECODE]
    assert trace.decode_wait_s == pytest.approx(0.2)


@pytest.mark.parametrize("resource", [{}, {"phasewise.phase": "both"}], ids=["untold", "told"])
def test_an_aggregated_engines_span_has_no_transfer(resource: dict[str, str]) -> None:
    whole = span(request_id="cmpl-x-0", max_tokens=9, output_tokens=9, e2e=1.0, resource=resource)
    joiner = Joiner()
    at_once = joiner.take(whole, 0.0)

    assert len(at_once) == (1 if resource else 0)
    (trace,) = [*at_once, *joiner.rest()]
    assert trace.outcome is Outcome.AGGREGATED
    assert [one.part for one in trace.parts] == [Part.QUEUE, Part.PREFILL, Part.DECODE]
    assert trace.ttft_s == pytest.approx(0.3)


def test_different_ids_are_joined_by_the_callers_span_after_a_while() -> None:
    caller = {"trace_id": "0b" * 16, "parent": "0c" * 8}
    prefill, decode = halves(**caller)
    spans = (replace(prefill, request_id="cmpl-1-0"), replace(decode, request_id="cmpl-2-0"))
    joiner = Joiner(settle_s=15.0)
    for one in spans:
        assert joiner.take(one, 0.0) == ()

    assert joiner.due(14.0) == ()
    (trace,) = joiner.due(15.0)
    assert (trace.outcome, trace.joined_by) == (Outcome.JOINED, BY_TRACE)


def test_several_requests_under_one_callers_span_are_joined_by_their_ids_only() -> None:
    caller = {"trace_id": "0b" * 16, "parent": "0c" * 8}
    first, second = halves(1, **caller), halves(2, **caller)
    joiner = Joiner()
    joiner.take(first[0], 0.0)
    joiner.take(second[1], 0.0)

    assert joiner.due(20.0) == ()  # the router names both: they are two requests
    joined = [*joiner.take(first[1], 20.0), *joiner.take(second[0], 20.0)]
    assert [one.joined_by for one in joined] == [BY_REQUEST, BY_REQUEST]
    assert [one.prefill for one in joined] == [first[0], second[0]]


def test_two_unnamed_requests_under_one_callers_span_are_not_guessed() -> None:
    caller = {"trace_id": "0b" * 16, "parent": "0c" * 8}
    spans = [
        replace(half, request_id=f"cmpl-{number}{half.span_id}-0")
        for number in (1, 2)
        for half in halves(number, **caller)
    ]
    traces = _joined(spans)

    assert len(traces) == 4
    assert {one.joined_by for one in traces} == {None}


def test_a_user_who_asks_for_one_token_is_told_by_what_engines_say_or_by_time() -> None:
    prefill, decode = halves()
    decode = replace(decode, max_tokens=1, output_tokens=1)
    (by_time,) = _joined([decode, prefill])
    told = [replace(decode, phase=Phase.DECODE), replace(prefill, phase=Phase.PREFILL)]
    (by_word,) = _joined([later(told[0], -100.0), told[1]])

    assert by_time.prefill == prefill
    assert by_word.prefill == told[1]
    assert by_word.clock_skew_s > 99.0


def test_a_replica_that_changed_its_role_is_known_by_what_it_did() -> None:
    prefill, decode = halves()
    both_say_decode = [replace(one, phase=Phase.DECODE) for one in (decode, prefill)]
    (trace,) = _joined(both_say_decode)

    assert trace.outcome is Outcome.JOINED
    assert trace.prefill == both_say_decode[1]


def test_a_leg_that_the_router_repeated_counts_once() -> None:
    prefill, decode = halves()
    again = replace(later(decode, 1.0), span_id="ff" * 8)
    joiner = Joiner()
    traces = _joined([decode, again, prefill], joiner)

    assert [one.decode for one in traces] == [again]
    assert joiner.counts["extra span"] == 1


def test_memory_is_bounded_and_the_oldest_goes_first() -> None:
    joiner = Joiner(max_waiting=10)
    told = [one for n in range(50) for one in joiner.take(halves(n)[0], 0.0)]

    assert joiner.waiting == 10
    assert len(told) == 40
    assert told[0].first == halves(0)[0]
    assert joiner.counts["crowded out"] == 40


def test_own_spans_are_the_request_with_its_parts_under_the_callers_span() -> None:
    caller = {"trace_id": "0b" * 16, "parent": "0c" * 8}
    told = {"phasewise.pool": "p", "service.instance.id": "p-1"}
    (trace,) = _joined(list(halves(resource=told, **caller)))
    root, *parts = own_spans(trace, default_model="tiny")

    assert root.name == "text_completion tiny"
    assert (root.trace_id, root.parent_span_id) == (caller["trace_id"], caller["parent"])
    expected = {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "tiny",
        "gen_ai.request.max_tokens": 16,
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 16,
        "phasewise.prefill.address": "10.0.0.1:8000",
        "phasewise.decode.address": "10.0.0.2:8000",
        "phasewise.prefill.replica": "p-1",
    }
    assert {key: root.attributes[key] for key in expected} == expected
    assert root.attributes["gen_ai.response.time_to_first_chunk"] == pytest.approx(0.6)
    assert [one.name for one in parts] == [part.value for part in Part]
    assert {one.parent_span_id for one in parts} == {root.span_id}
    assert len({one.span_id for one in (root, *parts)}) == 6
    phases = [one.attributes["phasewise.phase"] for one in parts]
    assert phases == ["prefill", "prefill", "decode", "decode", "decode"]
    assert all(root.start_ns <= one.start_ns <= one.end_ns <= root.end_ns for one in parts)
    assert own_spans(trace, default_model="tiny") == (root, *parts)


def test_the_names_are_those_of_the_conventions() -> None:
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

    known = {value for value in vars(gen_ai_attributes).values() if isinstance(value, str)}
    (trace,) = _joined(list(halves()))
    used = {name for one in own_spans(trace, default_model="m") for name in one.attributes}

    assert {name for name in used if not name.startswith("phasewise.")} - known == set()


def test_a_summary_is_by_part_and_pool_and_leaves_out_what_is_not_whole() -> None:
    spans = [half for number in range(10) for half in halves(number)]
    alone = halves(99)[0]
    found = {(one.part, one.pool): one for one in summarise(_joined([*spans, alone]))}

    assert [part for part, _ in found] == [*(part.value for part in Part), "ttft"]
    assert found["prefill", None].requests == 10
    assert found["prefill", None].p90_s == pytest.approx(0.18, abs=1e-05)
    assert found["ttft", None].mean_s == pytest.approx(0.6, abs=1e-05)


def test_the_routers_id_is_kept_as_the_responses() -> None:
    (trace,) = _joined(list(halves()))

    assert own_spans(trace)[0].attributes["gen_ai.response.id"] == ID
