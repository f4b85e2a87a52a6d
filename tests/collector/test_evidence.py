"""What a page is, told from captured pages and from pages made to mislead."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.evidence import Dialect, Part, contradiction, evidence_of, read_everything
from collector.roles import Role, Signals, role_of, signals_of, together
from collector.versions import vllm_versions
from serving.errors import Unavailable
from serving.types import Phase

FIXTURES = Path(__file__).parents[1] / "fixtures"


def evidence(text: str | bytes):
    return evidence_of(read_everything(text if isinstance(text, bytes) else text.encode()))


def captured(name: str):
    return evidence((FIXTURES / name).read_bytes())


@pytest.mark.parametrize(
    ("name", "dialect", "part", "phase"),
    [
        ("vllm-0.32/prefill.prom", Dialect.VLLM, Part.REPLICA, Phase.PREFILL),
        ("vllm-0.32/prefill-under-load.prom", Dialect.VLLM, Part.REPLICA, Phase.PREFILL),
        ("vllm-0.32/decode.prom", Dialect.VLLM, Part.REPLICA, Phase.DECODE),
        ("vllm-0.32/decode-under-load.prom", Dialect.VLLM, Part.REPLICA, Phase.DECODE),
        ("vllm-0.32/decode-prefill-dead.prom", Dialect.VLLM, Part.REPLICA, Phase.DECODE),
        ("vllm-0.32/single.prom", Dialect.VLLM, Part.REPLICA, Phase.BOTH),
        ("vllm-legacy/v0-names.txt", Dialect.VLLM, Part.REPLICA, None),
        ("vllm-router-0.1.17/router.prom", Dialect.VLLM_ROUTER, Part.ROUTER, None),
        ("llm-d-router/llm_d_request_total_metric.txt", Dialect.EPP, Part.ROUTER, None),
        ("llm-d-router/request_ttft_seconds_metric.txt", Dialect.EPP, Part.ROUTER, None),
        ("llm-d-router/kv_cache_avg_metrics.txt", Dialect.EPP, Part.ROUTER, None),
        ("dynamo-1.6.1/dynamo-mocker-prefill.prom", Dialect.DYNAMO, Part.REPLICA, None),
        ("dynamo-1.6.1/dynamo-mocker-decode.prom", Dialect.DYNAMO, Part.REPLICA, None),
        ("dynamo-1.6.1/dynamo-planner.prom", Dialect.DYNAMO, Part.AUTOSCALER, None),
        ("nixl-1.5.1/prefill-nixl-agent.prom", Dialect.NIXL_AGENT, Part.OTHER, None),
        ("nixl-1.5.1/decode-nixl-agent.prom", Dialect.NIXL_AGENT, Part.OTHER, None),
    ],
)
def test_a_captured_page_is_what_it_was_captured_from(
    name: str, dialect: Dialect, part: Part, phase: Phase | None
) -> None:
    found = captured(name)

    assert (found.dialect, found.part, found.role.phase) == (dialect, part, phase)


def test_the_evidence_is_said_in_the_page_s_own_figures() -> None:
    assert captured("vllm-0.32/decode.prom").role.words == (
        "of 77,000 prompt tokens 100% came by KV transfer, 0% were computed here",
        "102 KV transfers pulled by NIXL",
        "it counts requests by stage of their KV fetch: started as a KV consumer",
        "4,730 gaps between tokens in 102 requests",
        "0 of 102 requests gave one token and no more",
    )
    assert captured("vllm-0.32/prefill.prom").role.words[0] == (
        "102 of 114 requests gave one token and no more"
    )


def test_a_page_names_its_version_and_model() -> None:
    assert captured("vllm-0.32/decode.prom").words == "vLLM 0.16 or newer, model tiny"
    assert captured("vllm-legacy/v0-names.txt").words == (
        "vLLM 0.8 or older (engine V0), model facebook/opt-125m"
    )


@pytest.mark.parametrize(
    ("names", "range_"),
    [
        (set(), None),
        ({"vllm:num_requests_running"}, None),
        ({"vllm:prompt_tokens_total", "vllm:gpu_cache_usage_perc"}, "0.8 or older"),
        ({"vllm:kv_cache_usage_perc"}, "0.9 or newer"),
        ({"vllm:prompt_tokens_total", "vllm:kv_cache_usage_perc"}, "0.9 to 0.10"),
        (
            {"vllm:kv_cache_usage_perc", "vllm:inter_token_latency_seconds"}
            | {"vllm:time_per_output_token_seconds", "vllm:prompt_tokens_total"},
            "0.11 to 0.12",
        ),
        (
            {"vllm:kv_cache_usage_perc", "vllm:inter_token_latency_seconds"}
            | {"vllm:prompt_tokens_total"},
            "0.11 to 0.15",
        ),
        ({"vllm:prompt_tokens_by_source_total"}, "0.16 or newer"),
        ({"vllm:num_requests_swapped"}, "0.10 or older (engine V0)"),
        ({"vllm:prompt_tokens_by_source_total", "vllm:gpu_cache_usage_perc"}, None),
    ],
)
def test_the_version_is_a_range_told_by_names(names: set[str], range_: str | None) -> None:
    assert vllm_versions(names) == range_


def lengths(finished: float, one: float) -> str:
    return (
        f'vllm:request_success_total{{finished_reason="length"}} {finished}\n'
        f'vllm:request_generation_tokens_bucket{{le="1.0"}} {one}\n'
        f'vllm:request_generation_tokens_bucket{{le="+Inf"}} {finished}\n'
        f"vllm:request_generation_tokens_count {finished}\n"
        f"vllm:request_generation_tokens_sum {finished}\n"
    )


def sources(computed: float, transferred: float) -> str:
    name = "vllm:prompt_tokens_by_source_total"
    return (
        f'{name}{{source="local_compute"}} {computed}\n'
        f'{name}{{source="local_cache_hit"}} 0\n'
        f'{name}{{source="external_kv_transfer"}} {transferred}\n'
    )


@pytest.mark.parametrize(
    ("page", "phase"),
    [
        pytest.param(lengths(20, 20) + sources(100, 0), Phase.PREFILL, id="just-enough"),
        pytest.param(lengths(19, 19) + sources(100, 0), None, id="one-too-few"),
        pytest.param(lengths(50, 0) + sources(40, 60), Phase.DECODE, id="mostly-pulled"),
        pytest.param(lengths(50, 0) + sources(90, 10), Phase.BOTH, id="some-pulled"),
        pytest.param(lengths(50, 50) + sources(40, 60), None, id="an-offloading-prefill"),
        pytest.param(lengths(50, 50), Phase.PREFILL, id="old-prefill-without-sources"),
        pytest.param(lengths(50, 0), None, id="old-engine-that-hides-where-kv-comes-from"),
        pytest.param(
            lengths(50, 0) + "vllm:prompt_tokens_total 100\n"
            "vllm:external_prefix_cache_hits_total 99\n",
            Phase.DECODE,
            id="decode-before-0.16",
        ),
    ],
)
def test_the_role_is_told_by_deeds(page: str, phase: Phase | None) -> None:
    assert evidence(page).role.phase is phase


def test_too_few_requests_are_no_evidence_and_it_says_so() -> None:
    assert evidence(lengths(19, 19) + sources(9, 0)).role.words == (
        "no evidence: 19 finished requests, 20 needed",
    )


def test_replicas_of_a_pool_add_up_to_enough_evidence() -> None:
    one = signals_of(read_everything((lengths(12, 12) + sources(50, 0)).encode()))

    assert role_of([one]).phase is None
    assert role_of([one, one]).phase is Phase.PREFILL


def test_the_simulator_is_told_by_its_own_label_and_its_hand_ons_are_prefill() -> None:
    found = evidence(
        'vllm:request_success_total{finish_reason="remote_decode",model_name="m"} 40\n'
        'vllm:request_success_total{finish_reason="stop",model_name="m"} 1\n'
    )

    assert found.dialect is Dialect.SIMULATOR
    assert found.role.phase is Phase.PREFILL
    assert any("simulated" in note for note in found.notes)


@pytest.mark.parametrize(
    ("page", "note"),
    [
        (
            'vllm:engine_sleep_state{sleep_state="weights_offloaded"} 1\n',
            "the engine sleeps: it is healthy and serves nothing",
        ),
        (
            'vllm:num_requests_running{engine="0"} 1\nvllm:num_requests_running{engine="1"} 1\n',
            "2 data-parallel ranks on one page; they are added up",
        ),
        (
            "llm_d_epp_request_total 1\ninference_objective_request_total 1\n",
            "the same numbers under several names (llm_d_epp_*, inference_objective_*): "
            "a regex over them counts twice",
        ),
        (
            'ray_vllm_num_requests_running{WorkerId="a"} 1\n',
            "Ray renames and relabels vLLM's series; scrape the engine's own /metrics instead",
        ),
    ],
)
def test_traps_are_named(page: str, note: str) -> None:
    assert note in evidence(page).notes


def test_dynamo_s_frontend_is_a_router_that_is_not_read() -> None:
    found = evidence('dynamo_frontend_active_requests{model="tiny"} 0\n')

    assert (found.part, found.readable, found.models) == (Part.ROUTER, False, ("tiny",))


@pytest.mark.parametrize(
    ("declared", "told", "wrong"),
    [
        (Phase.PREFILL, Phase.DECODE, True),
        (Phase.DECODE, Phase.PREFILL, True),
        (Phase.DECODE, Phase.DECODE, False),
        (Phase.DECODE, Phase.BOTH, False),
        (Phase.BOTH, Phase.PREFILL, False),
        (Phase.PREFILL, None, False),
        (None, Phase.PREFILL, False),
    ],
)
def test_only_the_other_phase_contradicts_a_label(
    declared: Phase | None, told: Phase | None, wrong: bool
) -> None:
    said = contradiction(declared, Role(phase=told, words=("so it is",)))

    assert (said is not None) is wrong


@pytest.mark.parametrize("body", [b"", b"\xff\xfe\n", b"a 1", b"a\x00 1\n"])
def test_a_page_that_cannot_be_read_is_unavailable(body: bytes) -> None:
    with pytest.raises(Unavailable):
        read_everything(body)


@pytest.mark.parametrize("text", ["<html>\n", "hello world\n", "# only a comment\n", "a 1\n"])
def test_what_is_no_page_of_ours_is_unknown(text: str) -> None:
    found = evidence(text)

    assert (found.dialect, found.part) == (Dialect.UNKNOWN, Part.OTHER)


def test_everything_is_read_also_names_in_braces() -> None:
    page = read_everything(b'{"vllm:a",x="1"} 2\nvllm:b 3\n  vllm:c 4\n')

    assert page.samples.keys() == {"vllm:a", "vllm:b", "vllm:c"}


counts = st.none() | st.floats(min_value=0, max_value=1e12)
any_signals = st.builds(
    Signals,
    finished=counts,
    one_token=counts,
    prompt=counts,
    computed=counts,
    cached=counts,
    transferred=counts,
    gaps=counts,
    transfers=counts,
    remote_decode=counts,
)


@given(any_signals)
def test_any_counts_give_a_role_or_say_why_not(seen: Signals) -> None:
    role = role_of([seen])

    assert role.words
    if role.phase is None:
        assert role.words[0].startswith(("no evidence", "not told"))
    if seen.finished is None or seen.finished < 20:
        assert role.phase is None


@given(st.lists(any_signals, min_size=1, max_size=4))
def test_what_nobody_counts_stays_unknown_together(parts: list[Signals]) -> None:
    whole = together(parts)

    assert (whole.finished is None) == all(part.finished is None for part in parts)
