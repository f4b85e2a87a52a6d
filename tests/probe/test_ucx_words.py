"""What UCX says of itself is read as it means it: only tables between two processes count."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.local.ucx_words import PathKind, carried, kind_of, protocol_tables

WORDS = Path(__file__).parent / "words"
KIB, MIB = 1 << 10, 1 << 20


def said(name: str):
    return protocol_tables((WORDS / name).read_text().splitlines())


def table(where: str, operation: str, *rows: str) -> list[str]:
    """A table as UCX draws one, for lanes that no machine of ours has."""
    rule = "[1.2] [host:1:0]   +----+----+----+"
    return [
        rule,
        f"[1.2] [host:1:0]   | probe {where} cfg#3 |",
        f"[1.2] [host:1:0]   | {operation} |",
        rule,
        "[1.2] [host:1:0]   | Range | Description | Config |",
        *(f"[1.2] [host:1:0]   | {row} |" for row in rows),
        rule,
    ]


READ = "remote memory read by ucp_get*(multi) into host memory from host"


@pytest.mark.parametrize(
    ("file", "operation", "kind", "transports", "devices"),
    [
        ("ucx-1.23-cma.txt", "READ", PathKind.SHARED_MEMORY, ("cma",), ()),
        ("ucx-1.23-cma.txt", "WRITE", PathKind.SHARED_MEMORY, ("cma",), ()),
        ("ucx-1.23-tcp.txt", "READ", PathKind.TCP, ("tcp",), ("lo",)),
        ("ucx-1.23-tcp.txt", "WRITE", PathKind.TCP, ("tcp",), ("lo", "eth0")),
    ],
)
def test_captured_words_tell_what_carried_the_bytes(file, operation, kind, transports, devices):
    over = carried(said(file), operation, 64 * MIB)

    assert (over.kind, over.transports, over.devices) == (kind, transports, devices)
    assert over.one_host is True
    assert transports[0] in over.evidence


def test_lanes_that_are_only_there_for_wire_up_are_not_what_carried():
    # the endpoint's line lists "rma_am(tcp/lo)" though every byte goes by cma
    lines = (WORDS / "ucx-1.23-cma.txt").read_text()

    assert "rma_am(tcp/lo)" in lines
    assert carried(said("ucx-1.23-cma.txt"), "READ", MIB).kind is PathKind.SHARED_MEMORY


@pytest.mark.parametrize(
    ("transport", "kind"),
    [
        ("cma", PathKind.SHARED_MEMORY),
        ("sysv", PathKind.SHARED_MEMORY),
        ("tcp", PathKind.TCP),
        ("rc_mlx5", PathKind.RDMA),
        ("dc_mlx5", PathKind.RDMA),
        ("ud_verbs", PathKind.RDMA),
        ("srd", PathKind.EFA),
        ("cuda_ipc", PathKind.GPU_LINK),
        ("of_another_world", PathKind.UNKNOWN),
    ],
)
def test_transports_have_kinds(transport, kind):
    assert kind_of(transport) is kind


@pytest.mark.parametrize(
    ("size", "kind", "devices"),
    [
        (8 * KIB, PathKind.TCP, ("eth0",)),
        (8 * KIB + 1, PathKind.RDMA, ("mlx5_0:1", "mlx5_1:1")),
        (64 * MIB, PathKind.RDMA, ("mlx5_0:1", "mlx5_1:1")),
    ],
)
def test_each_size_has_its_own_way(size, kind, devices):
    lines = table(
        "inter-node",
        READ,
        "0..8K | short | tcp/eth0",
        "8193..inf | zero-copy | 50% on rc_mlx5/mlx5_0:1/path0 and 50% on rc_mlx5/mlx5_1:1/path0",
    )

    over = carried(protocol_tables(lines), "READ", size)

    assert (over.kind, over.devices, over.one_host) == (kind, devices, False)


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([], id="silence"),
        pytest.param(["Backend UCX was instantiated", "| half a table"], id="other-words"),
        pytest.param(table("self", READ, "0..inf | zero-copy | cma/memory"), id="to-itself"),
        pytest.param(
            table("inter-node", "active message by ucp_am_send*", "0..inf | short | tcp/lo"),
            id="another-operation",
        ),
        pytest.param(table("inter-node", READ, "0..4K | short | tcp/lo"), id="no-such-size"),
        pytest.param(
            table("inter-node", READ, "0..inf | zero-copy | 50% on tcp/eth0 and 50% on srd/efa_0"),
            id="two-kinds",
        ),
        pytest.param(table("inter-node", READ, "0..inf | zero-copy | warp/drive0"), id="new-lane"),
    ],
)
def test_what_cannot_be_told_is_unknown(lines):
    assert carried(protocol_tables(lines), "READ", MIB).kind is PathKind.UNKNOWN


def test_the_last_choice_counts():
    lines = [
        *table("intra-node", READ, "0..inf | zero-copy | cma/memory"),
        *table("intra-node", READ, "0..inf | software emulation | tcp/eth0"),
    ]

    assert carried(protocol_tables(lines), "READ", MIB).kind is PathKind.TCP
