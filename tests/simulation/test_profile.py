"""Profiles and plans: the packaged figures add up, and faulty ones are refused."""

from dataclasses import replace
from importlib.resources import files

import pytest
import yaml

from serving.errors import Misconfigured
from serving.simulation.plan import PoolPlan, TierPlan
from serving.simulation.profile import load_profile, parse_profile, profile_names, profile_text
from serving.simulation.startup import StartUp
from serving.types import Phase, StartStage

NAMES = ("llama-3.1-8b-h100", "llama-3.1-8b-l40s", "qwen3-32b-2xh200", "qwen3-tiny-cpu")
TEXT = files("serving.simulation").joinpath("profiles", f"{NAMES[1]}.yaml").read_text("utf-8")


def test_the_packaged_profiles_are_known():
    assert profile_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_that_was_written_reads_back_to_five_digits(name):
    profile = load_profile(name)
    again = parse_profile(profile_text(profile, comment="two\nlines"), name=name)
    assert again.figures.keys() == profile.figures.keys()
    for key, figure in profile.figures.items():
        assert again.figures[key].value == pytest.approx(figure.value, rel=1e-4)
        assert (again.figures[key].tag, again.figures[key].source) == (figure.tag, figure.source)
    assert (again.model, again.accelerator) == (profile.model, profile.accelerator)


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_says_where_it_comes_from(name):
    profile = load_profile(name)
    assert {"prefill_s_per_token", "start_cold_s.weights"} <= set(profile.figures)
    assert all(len(figure.source) > 10 for figure in profile.figures.values())
    assert sum(profile.start_warm_s.values()) < sum(profile.start_cold_s.values())
    assert list(profile.start_cold_s) == list(StartStage)
    assert profile.kv_capacity_tokens % 16 == 0


@pytest.mark.parametrize(
    ("name", "layers", "heads", "weights_gb", "memory_gb", "bandwidth_gb_per_s", "flop_per_s"),
    [
        (NAMES[1], 32, 32, 16.06, 48.0 * 0.9 - 2.0, 864.0, 362e12 * 0.42),
        (NAMES[2], 64, 64, 65.6, 282.0 * 0.9 - 8.0, 9600.0, 2 * 989e12 * 0.40),
    ],
)
def test_a_roofline_profile_is_the_sum_that_it_states(
    name, layers, heads, weights_gb, memory_gb, bandwidth_gb_per_s, flop_per_s
):
    profile = load_profile(name)
    attention = 2 * 2 * layers * heads * 128 / flop_per_s / 2
    assert profile.prefill_s_per_token == pytest.approx(weights_gb * 1e9 / flop_per_s, rel=1e-3)
    assert profile.prefill_s_per_token_squared == pytest.approx(attention, rel=1e-3)
    assert profile.kv_bytes_per_token == 2 * layers * 8 * 128 * 2
    kv_tokens = (memory_gb - weights_gb) * 1e9 / profile.kv_bytes_per_token
    assert profile.kv_capacity_tokens == pytest.approx(kv_tokens, abs=16)
    kv_s = profile.kv_bytes_per_token / (bandwidth_gb_per_s * 1e9 * 0.70)
    assert profile.decode_s_per_kv_token == pytest.approx(kv_s, rel=1e-3)


def test_the_published_profile_keeps_its_published_latencies():
    profile = load_profile(NAMES[0])
    assert (profile.prefill_base_s, profile.prefill_s_per_token) == (0.030, 0.00025)
    assert profile.decode_base_s + 256 * profile.decode_s_per_sequence == pytest.approx(0.024)
    assert profile.kv_bytes_per_token / profile.kv_link_bytes_per_s == pytest.approx(3e-6, rel=1e-3)
    assert profile.figures["decode_base_s"].tag == "published"


def changed(**entries):
    return yaml.safe_dump({**yaml.safe_load(TEXT), **entries})


FIGURE = {"value": 1.0, "tag": "estimated", "source": "a test"}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[", id="not-yaml"),
        pytest.param("3", id="not-a-mapping"),
        pytest.param(changed(extra=FIGURE), id="unknown-key"),
        pytest.param(changed(decode_base_s=1.0), id="bare-number"),
        pytest.param(changed(decode_base_s={**FIGURE, "value": "1e-3"}), id="text"),
        pytest.param(changed(decode_base_s={**FIGURE, "value": True}), id="truth"),
        pytest.param(changed(decode_base_s={**FIGURE, "value": float("nan")}), id="nan"),
        pytest.param(changed(decode_base_s={**FIGURE, "value": -1.0}), id="negative"),
        pytest.param(changed(kv_link_bytes_per_s={**FIGURE, "value": 0.0}), id="zero"),
        pytest.param(changed(decode_base_s={**FIGURE, "tag": "guessed"}), id="tag"),
        pytest.param(changed(decode_base_s={**FIGURE, "source": " "}), id="no-source"),
        pytest.param(changed(start_cold_s={"node": FIGURE}), id="missing-stages"),
    ],
)
def test_a_faulty_profile_is_refused(text):
    with pytest.raises(Misconfigured, match="profile p"):
        parse_profile(text, name="p")


def test_an_unknown_profile_is_refused_with_the_known_names():
    with pytest.raises(Misconfigured, match=NAMES[0]):
        load_profile("gpt-7")


# ---- start-up


def test_stages_follow_one_another_and_keep_their_shares_when_scaled():
    stages = {StartStage.NODE: 60.0, StartStage.PROCESS: 20.0, StartStage.WEIGHTS: 20.0}
    plain, scaled = StartUp(stages), StartUp(stages, total_s=50.0)

    assert (plain.total_s, scaled.total_s) == (100.0, 50.0)
    assert [plain.stage_at(t) for t in (0.0, 59.9, 60.0, 80.0, 100.0)] == [
        StartStage.NODE,
        StartStage.NODE,
        StartStage.PROCESS,
        StartStage.WEIGHTS,
        StartStage.READY,
    ]
    assert scaled.stage_at(30.0) is StartStage.PROCESS
    assert (plain.process_starts_s(), scaled.process_starts_s()) == (60.0, 30.0)


def test_stages_of_no_duration_cannot_be_scaled():
    with pytest.raises(Misconfigured):
        StartUp({StartStage.NODE: 0.0}, total_s=10.0)


# ---- plans


def pool(phase=Phase.BOTH, name="a", **changes):
    return PoolPlan(name=name, phase=phase, variant="v", profile=load_profile(NAMES[1]), **changes)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"initial_replicas": -1}, id="negative"),
        pytest.param({"max_num_seqs": 0}, id="no-sequences"),
        pytest.param({"max_num_batched_tokens": 100}, id="budget-below-sequences"),
        pytest.param({"block_size_tokens": 0}, id="no-blocks"),
        pytest.param({"kv_capacity_tokens": 1000}, id="cache-below-one-request"),
    ],
)
def test_engine_arguments_that_cannot_work_are_refused(changes):
    with pytest.raises(Misconfigured):
        pool(**changes)


@pytest.mark.parametrize(
    "pools",
    [
        pytest.param((), id="none"),
        pytest.param((pool(Phase.PREFILL),), id="prefill-alone"),
        pytest.param((pool(), pool(Phase.DECODE, "b")), id="mixed"),
        pytest.param((pool(), pool()), id="same-name"),
    ],
)
def test_pools_that_cannot_serve_together_are_refused(pools):
    with pytest.raises(Misconfigured):
        TierPlan(name="t", model="m", pools=pools)


def test_an_unknown_policy_is_refused():
    plan = TierPlan(name="t", model="m", pools=(pool(),))
    with pytest.raises(Misconfigured):
        replace(plan, router_policy="best")
