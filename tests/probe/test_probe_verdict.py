"""Rates, judgement and capacity of a probe, from what was measured and said."""

from __future__ import annotations

import dataclasses

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from serving.local.probe_verdict import (
    Machines,
    capacity,
    capacity_yaml,
    case_of,
    judge,
    largest,
    machines_of,
    spread,
)
from serving.local.ucx_words import Carried, PathKind

MIB = 1 << 20
EVENT = {
    "backend": "UCX",
    "operation": "READ",
    "bytes": MIB,
    "handles": 4,
    "first_s": 0.5,
    "seconds": [0.001, 0.002, 0.004],
    "nixl_seconds": [0.001, 0.0016, 0.004],
    "nixl_bytes": [4 * MIB],
}
SHM = Carried(kind=PathKind.SHARED_MEMORY, transports=("cma",), one_host=True)
TCP = Carried(kind=PathKind.TCP, transports=("tcp",), devices=("eth0",))
RDMA = Carried(kind=PathKind.RDMA, transports=("rc_mlx5",), devices=("mlx5_0:1",))
NONE = Carried(kind=PathKind.UNKNOWN)
HERE, APART, SOMEWHERE = Machines(same=True), Machines(same=False), Machines(same=None)
WITH_RDMA = Machines(same=False, rdma_devices=("mlx5_0",))
WITH_EFA = Machines(same=False, efa_devices=("rdmap0s6",))


def test_a_rate_is_of_all_transfers_in_flight_and_without_the_first():
    case = case_of(EVENT, ())

    # 4 MiB in 2 ms; NIXL's own median is 1.6 ms
    assert case.bytes_per_s.median == pytest.approx(4 * MIB / 0.002)
    assert case.nixl_bytes_per_s == pytest.approx(4 * MIB / 0.0016)
    assert (case.repetitions, case.first_s) == (3, 0.5)


@pytest.mark.parametrize(
    "odd", [{"nixl_bytes": [MIB]}, {"nixl_bytes": []}, {"nixl_seconds": [0.0, 1.0, 1.0]}]
)
def test_telemetry_that_cannot_be_is_unknown(odd):
    assert case_of(EVENT | odd, ()).nixl_bytes_per_s is None


@given(st.lists(st.floats(min_value=1.0, max_value=1e12), min_size=1, max_size=50))
def test_deciles_lie_about_the_median_and_within_what_was_seen(values):
    found = spread(values)

    assert min(values) <= found.p10 <= found.median <= found.p90 <= max(values)


@pytest.mark.parametrize(
    ("over", "machines", "tls", "is_fallback", "words"),
    [
        (SHM, HERE, None, False, "says nothing of the network"),
        (TCP, APART, None, False, "TCP is what there is"),
        (TCP, WITH_RDMA, None, True, "RDMA devices (mlx5_0): it fell back"),
        (TCP, WITH_EFA, None, True, "(rdmap0s6)"),
        (TCP, WITH_RDMA, "tcp,self", False, "as UCX_TLS=tcp,self asks for"),
        (TCP, HERE, None, True, "fell back from shared memory"),
        (TCP, HERE, "tcp,self", False, "TCP over eth0"),
        (TCP, SOMEWHERE, None, None, "is not known"),
        (dataclasses.replace(TCP, one_host=False), SOMEWHERE, None, False, "what there is"),
        (RDMA, WITH_RDMA, None, False, "RDMA over mlx5_0:1"),
        (NONE, APART, None, None, "cannot be told"),
        (NONE, HERE, "tcp", None, "cannot be told"),
    ],
)
def test_whether_it_is_a_fallback(over, machines, tls, is_fallback, words):
    found = judge(over, machines, ucx_tls=tls)

    assert found.is_fallback is is_fallback
    assert words in found.words


@pytest.mark.parametrize("over", [SHM, NONE, Carried(kind=PathKind.GPU_LINK)])
def test_no_capacity_for_the_tier_from_what_is_not_its_network(over):
    assert capacity(dataclasses.replace(case_of(EVENT, ()), over=over)) is None


@pytest.mark.parametrize("over", [TCP, RDMA])
def test_the_capacity_is_a_piece_of_a_tier_file(over):
    found = capacity(dataclasses.replace(case_of(EVENT, ()), over=over))

    assert found is not None
    spec = yaml.safe_load(capacity_yaml(found))["spec"]
    assert spec == {"kvTransfer": {"bytesPerSecondPerReplica": round(4 * MIB / 0.002)}}


def test_a_loopback_figure_says_that_it_is_one():
    over = dataclasses.replace(TCP, devices=("lo",))

    found = capacity(dataclasses.replace(case_of(EVENT, ()), over=over))

    assert found is not None
    assert "loopback" in found.words


def test_the_largest_read_stands_for_the_link():
    small = case_of(EVENT, ())
    large = case_of(EVENT | {"bytes": 4 * MIB, "nixl_bytes": [16 * MIB]}, ())
    written = case_of(EVENT | {"operation": "WRITE", "bytes": 8 * MIB}, ())

    assert largest([small, large, written]) is large
    assert largest([written]) is written
    assert largest([]) is None


def test_efa_is_told_from_other_rdma_by_its_driver():
    event = {
        "same_machine": False,
        "here": {"rdma": [{"name": "mlx5_0", "driver": "mlx5_core"}]},
        "there": {"rdma": [{"name": "rdmap0s6", "driver": "efa"}]},
    }

    found = machines_of(event)

    assert (found.rdma_devices, found.efa_devices) == (("mlx5_0",), ("rdmap0s6",))
