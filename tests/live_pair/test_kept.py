"""The kept recording of a real pair: the profile fits it, and the simulator's pages are like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasewise.reality.compared import Compared, compared, write_profile
from phasewise.reality.comparing import Row, families
from phasewise.reality.quirks import QUIRKS, Quirk
from phasewise.reality.reasons import REASONS, is_far, reason_of
from phasewise.reality.recording import TARGETS, read_recording
from phasewise.reality.report import quirk_answers
from phasewise.reality.wiring import CompareRequest, compare_engines
from phasewise.terminal import wide_console
from serving.simulation.profile import parse_profile

KEPT = Path(__file__).parents[1] / "fixtures" / "live_pair"
FIT_TOLERANCE = 0.25  # of a mean: the machine was shared, and steps are played one by one


@pytest.fixture(scope="module")
def kept() -> Compared:
    return compared(read_recording(KEPT))


def mean_ratio(kept: Compared, target: str, name: str) -> float:
    (found,) = [r for r in kept.rows if (r.target, r.spec.name) == (target, name)]
    assert found.mean_ratio is not None
    return found.mean_ratio


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("prefill", "vllm:request_prefill_time_seconds"),
        ("decode", "vllm:inter_token_latency_seconds"),
        ("decode", "vllm:nixl_xfer_time_seconds"),
        ("decode", "vllm:nixl_bytes_transferred"),
    ],
)
def test_the_fitted_profile_plays_the_means_that_it_was_fitted_to(
    kept: Compared, target: str, name: str
) -> None:
    assert mean_ratio(kept, target, name) == pytest.approx(1.0, abs=FIT_TOLERANCE)


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("prefill", "vllm:prompt_tokens_total"),
        ("prefill", "vllm:generation_tokens_total"),
        ("decode", "vllm:prompt_tokens_total"),
        ("decode", "vllm:generation_tokens_total"),
        ("decode", "vllm:external_prefix_cache_hits_total"),
        ("router", "vllm_router_pd_requests_total"),
    ],
)
def test_tokens_and_requests_are_counted_exactly_alike(
    kept: Compared, target: str, name: str
) -> None:
    assert mean_ratio(kept, target, name) == 1.0


def test_every_catalogued_series_of_the_live_pair_is_simulated_or_its_lack_has_a_reason(
    kept: Compared,
) -> None:
    lacking = [
        (row.target, row.spec.name)
        for row in kept.rows
        if row.live is not None
        and row.simulated is None
        and reason_of(row.target, row.spec.name, of_figures=False) is None
    ]

    assert len([row for row in kept.rows if row.live is not None]) > 60
    assert lacking == []


def test_whatever_differs_in_kind_has_a_reason(kept: Compared) -> None:
    def unexplained(row: Row) -> bool:
        return reason_of(row.target, row.spec.name, of_figures=False) is None

    assert [
        (row.target, row.spec.name, row.differences)
        for row in kept.rows
        if row.differences and unexplained(row)
    ] == []


def test_whatever_is_far_apart_has_a_reason(kept: Compared) -> None:
    assert [
        (row.target, row.spec.name, row.mean_ratio)
        for row in kept.rows
        if is_far(row.mean_ratio) and reason_of(row.target, row.spec.name, of_figures=True) is None
    ] == []


def test_a_family_that_only_one_of_the_two_has_has_a_reason(kept: Compared) -> None:
    assert [
        (target, name)
        for target in TARGETS
        for name in sorted(families(kept.live, target) ^ families(kept.simulated, target))
        if reason_of(target, name.removesuffix("_created"), of_figures=False) is None
    ] == []


@pytest.mark.parametrize("quirk", QUIRKS, ids=lambda quirk: quirk.words)
def test_live_and_simulated_pair_share_every_quirk(kept: Compared, quirk: Quirk) -> None:
    assert quirk.check(kept.live) is True
    assert quirk.check(kept.simulated) is True


def test_no_reason_for_a_difference_in_kind_is_left_over(kept: Compared) -> None:
    kinds = [reason for reason in REASONS if not reason.of_figures]
    differing = [(row.target, row.spec.name) for row in kept.rows if row.differences] + [
        (target, name)
        for target in TARGETS
        for name in families(kept.live, target) ^ families(kept.simulated, target)
    ]

    left_over = [r.series for r in kinds if not any(r.is_of(*place) for place in differing)]
    assert left_over == []


def test_one_command_writes_profile_and_page(tmp_path: Path) -> None:
    profile, page = tmp_path / "p" / "fitted.yaml", tmp_path / "d" / "page.md"

    compare_engines(
        CompareRequest(recording=KEPT, profile_file=profile, report_file=page), wide_console()
    )

    fitted = parse_profile(profile.read_text(), name="fitted")
    assert fitted.figures["prefill_base_s"].tag == "measured"
    text = page.read_text()
    assert "$" not in text
    assert "no reason stated" not in text
    assert all(row in text for row in ("### prefill", "### decode", "### router", "## Quirks"))


def test_the_page_in_docs_is_that_of_the_kept_recording(kept: Compared) -> None:
    docs = Path(__file__).parents[2] / "docs" / "simulator-against-reality.md"

    assert docs.read_text() == kept.text(profile_file="qwen3-tiny-cpu.yaml")


def test_the_packaged_profile_is_that_of_the_kept_recording(kept: Compared, tmp_path: Path) -> None:
    packaged = Path(__file__).parents[2] / "serving/simulation/profiles/qwen3-tiny-cpu.yaml"
    write_profile(tmp_path / "p.yaml", kept.profile)

    assert packaged.read_text() == (tmp_path / "p.yaml").read_text()


def test_every_quirk_is_answered(kept: Compared) -> None:
    assert len(quirk_answers(kept.live, kept.simulated)) == len(QUIRKS)
