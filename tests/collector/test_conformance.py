"""What a page lacks and what that costs, on captured pages and on spoiled ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.conformance import Conformance, Fault, conformance_of, standing_still
from collector.costs import EXPECTED, OUTDATED, Weight
from collector.evidence import Dialect, evidence_of, read_everything
from collector.slo_bounds import slo_off_bounds
from serving.catalogue import BY_NAME, CATALOGUE, Owner
from serving.recorded import RECORDED_BY_NAME
from serving.types import Phase, Slo

FIXTURES = Path(__file__).parents[1] / "fixtures"
DECODE = (FIXTURES / "vllm-0.32/decode.prom").read_text()
PREFILL = (FIXTURES / "vllm-0.32/prefill.prom").read_text()
SLO = Slo(ttft_s=2.0, itl_s=0.05, attainment_ratio=0.99)


def judged(text: str, phase: Phase | None) -> Conformance:
    page = read_everything(text.encode())
    return conformance_of(page, evidence_of(page).dialect, phase)


def without(text: str, *names: str) -> str:
    kept = [line for line in text.splitlines() if not line.startswith(names)]
    return "\n".join(kept) + "\n"


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("vllm-0.32/prefill.prom", Phase.PREFILL),
        ("vllm-0.32/prefill-under-load.prom", Phase.PREFILL),
        ("vllm-0.32/decode.prom", Phase.DECODE),
        ("vllm-0.32/decode-under-load.prom", Phase.DECODE),
        ("vllm-0.32/decode-prefill-dead.prom", Phase.DECODE),
        ("vllm-0.32/single.prom", Phase.BOTH),
    ],
)
def test_a_page_of_the_newest_vllm_lacks_nothing(name: str, phase: Phase) -> None:
    found = judged((FIXTURES / name).read_text(), phase)

    assert found.findings == ()
    assert found.old_names == ()
    assert found.present == found.expected > 10
    assert found.usable


def test_the_legacy_page_s_removed_names_are_named_with_what_they_cost() -> None:
    found = judged((FIXTURES / "vllm-legacy/v0-names.txt").read_text(), None)
    said = {old.name: (old.words, old.costs) for old in found.old_names}

    assert said.keys() == {
        "vllm:gpu_cache_usage_perc",
        "vllm:time_per_output_token_seconds",
        "vllm:num_requests_swapped",
    }
    assert "now vllm:kv_cache_usage_perc" in said["vllm:gpu_cache_usage_perc"][0]
    assert "read in its place" in said["vllm:gpu_cache_usage_perc"][0]
    assert "now vllm:inter_token_latency_seconds" in said["vllm:time_per_output_token_seconds"][0]
    assert said["vllm:num_requests_swapped"][0].startswith("removed")
    assert all(costs for _, costs in said.values())
    assert not found.usable
    assert found.findings[0].name == "vllm:prompt_tokens_by_source_total"
    assert found.findings[0].recorded == ("phase:prompt_tokens_computed:rate1m",)


def test_an_old_name_beside_its_new_one_costs_nothing() -> None:
    found = judged((FIXTURES / "dynamo-1.6.1/dynamo-mocker-decode.prom").read_text(), Phase.DECODE)
    (old,) = found.old_names

    assert old.name == "vllm:gpu_cache_usage_perc"
    assert old.costs is None


def test_a_missing_series_says_what_goes_blind_and_what_mends_it() -> None:
    found = judged(without(DECODE, "vllm:nixl_xfer_time_seconds"), Phase.DECODE)
    (finding,) = found.findings

    assert (finding.fault, finding.weight) == (Fault.MISSING, Weight.WANTED)
    assert finding.blind == "how long a KV transfer takes"
    assert finding.recorded == ("phase:kv_transfer_seconds:mean1m",)
    assert "NixlConnector" in finding.mend
    assert found.present == found.expected - 1
    assert found.usable


@pytest.mark.parametrize(
    ("text", "phase", "name"),
    [
        (PREFILL, Phase.PREFILL, "vllm:prompt_tokens_by_source_total"),
        (DECODE, Phase.DECODE, "vllm:generation_tokens_total"),
    ],
)
def test_without_a_phase_s_own_work_its_pool_cannot_be_sized(
    text: str, phase: Phase, name: str
) -> None:
    hits = ("vllm:prefix_cache_hits",) if phase is Phase.PREFILL else ()

    assert judged(text, phase).usable
    assert not judged(without(text, name, *hits), phase).usable


def test_old_prefill_tells_its_work_by_difference() -> None:
    found = judged(without(PREFILL, "vllm:prompt_tokens_by_source"), Phase.PREFILL)

    assert found.usable
    assert "computed_prompt_tokens" not in {finding.field for finding in found.findings}


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("vllm:generation_tokens_total NaN\n", Fault.NOT_A_NUMBER),
        ("vllm:generation_tokens_total +Inf\n", Fault.NOT_A_NUMBER),
        ("vllm:generation_tokens_total -1\n", Fault.NEGATIVE),
        ("vllm:generation_tokens_total one\n", Fault.UNREADABLE),
    ],
)
def test_a_spoiled_number_is_as_bad_as_none(line: str, fault: Fault) -> None:
    found = judged(without(DECODE, "vllm:generation_tokens_total") + line, Phase.DECODE)

    assert [(f.name, f.fault) for f in found.findings] == [("vllm:generation_tokens_total", fault)]
    assert not found.usable


def test_a_histogram_without_one_of_its_parts_is_unreadable() -> None:
    found = judged(without(DECODE, "vllm:inter_token_latency_seconds_sum"), Phase.DECODE)

    assert [(f.field, f.fault) for f in found.findings] == [("itl", Fault.UNREADABLE)]


def test_a_negative_sum_is_explained_and_does_not_stop_anything() -> None:
    text = without(PREFILL, "vllm:request_queue_time_seconds_sum")
    text += 'vllm:request_queue_time_seconds_sum{engine="0",model_name="tiny"} -1056.2\n'
    found = judged(text, Phase.PREFILL)

    assert [(f.fault, f.weight) for f in found.findings] == [(Fault.NEGATIVE_SUM, Weight.NICE)]
    assert found.usable


def test_what_a_front_end_has_not_counted_yet_is_not_called_missing() -> None:
    text = (FIXTURES / "vllm-router-0.1.17/router.prom").read_text()
    (finding,) = judged(text, None).findings

    assert (finding.field, finding.fault) == ("failed_requests", Fault.NOT_YET)


def test_no_one_is_told_to_upgrade_vllm_where_none_runs() -> None:
    page = read_everything(b'vllm:request_success_total{finish_reason="stop"} 1\n')
    found = conformance_of(page, Dialect.SIMULATOR, Phase.DECODE)

    assert found.findings
    assert all("upgrade" not in finding.mend for finding in found.findings)


def test_a_page_of_nobody_is_not_usable() -> None:
    assert not judged("a 1\n", None).usable


@pytest.mark.parametrize("row", EXPECTED, ids=lambda row: f"{row.owner}-{row.field}")
def test_every_row_of_the_costs_is_of_the_catalogue_and_says_all_three(row) -> None:
    assert row.names
    assert all(name in BY_NAME for name in row.names)
    assert all(name in RECORDED_BY_NAME for name in row.recorded)
    assert row.blind
    assert row.mend
    assert row.phases


def test_every_word_that_pages_fill_has_its_cost() -> None:
    costed = {(row.owner, row.field) for row in EXPECTED}
    owners = {Owner.VLLM, Owner.PROCESS, Owner.EPP, Owner.VLLM_ROUTER}
    words = {(spec.owner, spec.field) for spec in CATALOGUE if spec.owner in owners}

    assert words - costed == set()


def test_old_names_that_are_read_are_in_the_catalogue() -> None:
    for old in OUTDATED:
        assert old.read == (old.name in BY_NAME), old.name
        assert old.costs


CPU = "process_cpu_seconds_total {}\n"
BUSY = "vllm:num_requests_running {}\nvllm:generation_tokens_total {}\n"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (CPU.format(1), CPU.format(1), "its process clock stands still"),
        (CPU.format(1), CPU.format(1.01), None),
        (BUSY.format(3, 7), BUSY.format(3, 7), "3 requests run, but no counter moves"),
        (BUSY.format(3, 7), BUSY.format(3, 8), None),
        (BUSY.format(0, 7), BUSY.format(0, 7), None),
        (CPU.format(1) + BUSY.format(0, 7), CPU.format(1) + BUSY.format(0, 8), None),
        ("a 1\n", "a 1\n", None),
    ],
)
def test_two_pages_that_are_one_are_stale(before: str, after: str, words: str | None) -> None:
    said = standing_still(read_everything(before.encode()), read_everything(after.encode()))

    assert (words in said) if words is not None and said is not None else said is words


def test_the_same_captured_page_twice_is_stale() -> None:
    page = read_everything(DECODE.encode())

    assert standing_still(page, page) is not None


@pytest.mark.parametrize(
    ("slo", "said"),
    [
        (SLO, []),
        (Slo(ttft_s=2.0, itl_s=0.06, attainment_ratio=0.9), [("itlSeconds", 0.05, 0.075)]),
        (Slo(ttft_s=2.0, itl_s=0.001, attainment_ratio=0.9), [("itlSeconds", None, 0.01)]),
        (Slo(ttft_s=2.0, itl_s=100.0, attainment_ratio=0.9), [("itlSeconds", 80.0, None)]),
    ],
)
def test_an_slo_off_the_buckets_names_its_neighbours(
    slo: Slo, said: list[tuple[str, float | None, float | None]]
) -> None:
    page = read_everything(DECODE.encode())
    found = slo_off_bounds(page, Dialect.VLLM, Phase.DECODE, slo)

    assert [(off.key, off.below_s, off.above_s) for off in found] == said


def test_a_user_s_slo_is_held_against_the_front_end_s_own_buckets() -> None:
    file = FIXTURES / "llm-d-router/llm_d_request_ttft_seconds_metric.txt"
    page = read_everything(file.read_bytes())
    (off,) = slo_off_bounds(
        page, Dialect.EPP, None, Slo(ttft_s=2.5, itl_s=0.05, attainment_ratio=0.9)
    )

    assert off.words == (
        "SLO ttftSeconds 2.5 is no bucket bound of inference_model_request_ttft_seconds "
        "(nearest 2 and 3): attainment lies between theirs, and is unknown where those differ"
    )
    assert slo_off_bounds(page, Dialect.EPP, None, SLO) == ()


def test_prefill_s_own_first_token_is_not_the_user_s() -> None:
    page = read_everything(PREFILL.encode())
    odd = Slo(ttft_s=2.3, itl_s=0.06, attainment_ratio=0.9)

    assert slo_off_bounds(page, Dialect.VLLM, Phase.PREFILL, odd) == ()
    assert len(slo_off_bounds(page, Dialect.VLLM, Phase.BOTH, odd)) == 2
