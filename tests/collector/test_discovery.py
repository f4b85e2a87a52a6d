"""Who is there: from an http_sd list, which is believed whole or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from collector.discovery import Discovered, RouterTarget, discover, read_groups, static
from collector.observe import Member
from collector.scrape import Scraper, Target
from serving.errors import Unavailable
from serving.target_labels import replica_group
from serving.types import Phase, ReplicaState, StartKind, StartStage


def group(name: str, port: int, **labels: str) -> dict[str, Any]:
    plain = {
        "__meta_phasewise_replica": name,
        "__meta_phasewise_pool": "prefill",
        "__meta_phasewise_phase": "prefill",
        "__meta_phasewise_variant": "l40s",
        "__meta_phasewise_state": "ready",
        "__meta_phasewise_created_s": "1000.5",
        "replica": name,
        "pool": "prefill",
        "phase": "prefill",
        "job": "vllm",
    }
    meta = {f"__meta_phasewise_{key}": value for key, value in labels.items()}
    return {"targets": [f"127.0.0.1:{port}"], "labels": plain | meta}


ROUTER: dict[str, Any] = {
    "targets": ["127.0.0.1:29000"],
    "labels": {"job": "router", "__meta_phasewise_router": "epp"},
}


def router(name: str) -> dict[str, Any]:
    return {**ROUTER, "labels": {**ROUTER["labels"], "router": name}}


LIST = [
    group("prefill-0001", 8001),
    group("prefill-0002", 8002, state="starting", stage="weights", created_s="1200"),
    group("prefill-0003", 8003, state="draining"),
    group("decode-0001", 8004, pool="decode", phase="decode"),
    ROUTER,
]


def test_a_list_gives_members_pages_and_routers() -> None:
    found = read_groups(LIST)

    assert found.members["prefill-0002"] == Member(
        pool="prefill", state=ReplicaState.STARTING, created_s=1200.0
    )
    assert found.phases["decode-0001"] is Phase.DECODE
    assert found.targets == (
        Target(name="prefill-0001", url="http://127.0.0.1:8001/metrics"),
        Target(name="prefill-0003", url="http://127.0.0.1:8003/metrics"),
        Target(name="decode-0001", url="http://127.0.0.1:8004/metrics"),
    )
    assert found.routers == (
        RouterTarget(name="router", url="http://127.0.0.1:29000/metrics", dialect="epp"),
    )
    assert found.pages[-1] == Target(name="router", url="http://127.0.0.1:29000/metrics")
    assert found.stages == {"prefill-0002": StartStage.WEIGHTS}
    assert found.count("prefill", ReplicaState.READY) == 1
    assert found.starting_since_s("prefill") == (1200.0,)
    assert found.starting_since_s("decode") == ()


def test_how_a_replica_started_and_the_next_will_start_are_read() -> None:
    found = read_groups(
        [
            group(
                "a", 1, start_kind="cold", start_stages="weights=145.25,process=3", next_start=""
            ),
            group("b", 2, state="starting", start_kind="warm", next_start="warm"),
            group("c", 3),
        ]
    ).members

    assert found["a"].start_kind is StartKind.COLD
    assert found["a"].start_stages == ((StartStage.PROCESS, 3.0), (StartStage.WEIGHTS, 145.25))
    assert (found["b"].start_kind, found["b"].next_start) == (StartKind.WARM, StartKind.WARM)
    assert (found["c"].start_kind, found["c"].start_stages) == (None, ())


def test_what_our_own_tiers_say_of_a_start_is_read_back() -> None:
    stages = ((StartStage.PROCESS, 3.25), (StartStage.WEIGHTS, 0.0), (StartStage.READY, 145.0))
    one = replica_group(
        "127.0.0.1:1",
        tier="t",
        name="a",
        pool="decode",
        phase=Phase.DECODE,
        variant="v",
        state=ReplicaState.READY,
        created_s=12.5,
        start_kind=StartKind.WARM,
        start_stages=stages,
        next_start=StartKind.COLD,
    )

    assert read_groups([one]).members["a"] == Member(
        pool="decode",
        state=ReplicaState.READY,
        created_s=12.5,
        start_kind=StartKind.WARM,
        start_stages=stages,
        next_start=StartKind.COLD,
    )


def test_an_empty_list_is_a_tier_without_replicas() -> None:
    assert read_groups([]) == Discovered()


def test_scheme_and_path_of_a_page_may_be_given() -> None:
    one = group("a", 1)
    one["labels"] |= {"__scheme__": "https", "__metrics_path__": "/m"}

    assert read_groups([one]).targets[0].url == "https://127.0.0.1:1/m"


def changed(**labels: str | None) -> dict[str, Any]:
    one = group("a", 1)
    for key, value in labels.items():
        for full in (f"__meta_phasewise_{key}", key):
            one["labels"].pop(full, None)
        if value is not None:
            one["labels"][f"__meta_phasewise_{key}"] = value
    return one


@pytest.mark.parametrize(
    ("document", "words"),
    [
        pytest.param({"targets": []}, "a list of groups, found dict", id="no-list"),
        pytest.param(None, "found NoneType", id="null"),
        pytest.param(["127.0.0.1"], "group 0: expected an object", id="group-is-text"),
        pytest.param([{"labels": {}}], "expected one target", id="no-targets"),
        pytest.param([{"targets": ["a:1", "b:2"]}], "expected one target", id="two-targets"),
        pytest.param([{"targets": [8001]}], "expected one target", id="target-is-a-number"),
        pytest.param(
            [{"targets": ["a:1"], "labels": {"pool": 3}}], "labels that are strings", id="number"
        ),
        pytest.param([changed(replica=None)], "replica is missing", id="no-replica"),
        pytest.param([changed(pool=None)], "pool is missing", id="no-pool"),
        pytest.param([changed(state=None)], "state is missing", id="no-state"),
        pytest.param([changed(state="asleep")], "expected one of starting, ready", id="state"),
        pytest.param([changed(phase="encode")], "expected one of prefill, decode", id="phase"),
        pytest.param([changed(created_s="now")], "a Unix time, found 'now'", id="time"),
        pytest.param([changed(created_s="inf")], "a Unix time, found 'inf'", id="time-inf"),
        pytest.param([changed(start_kind="hot")], "expected one of cold, warm", id="kind"),
        pytest.param([changed(next_start="hot")], "expected one of cold, warm", id="next-kind"),
        pytest.param([changed(start_stages="weights")], "found 'weights'", id="stage-no-time"),
        pytest.param([changed(start_stages="weights=1,")], "found ''", id="stage-empty"),
        pytest.param([changed(start_stages="load=1")], "found 'load=1'", id="stage-unknown"),
        pytest.param([changed(start_stages="weights=-1")], "'weights=-1'", id="stage-negative"),
        pytest.param([changed(start_stages="weights=nan")], "'weights=nan'", id="stage-nan"),
        pytest.param([changed(start_stages="ready=1,ready=2")], "at most once", id="stage-twice"),
        pytest.param(
            [group("a", 1, next_start="cold"), group("b", 2, next_start="warm")],
            "differ about what the next start is",
            id="next-kinds-differ",
        ),
        pytest.param([group("a", 1), group("a", 2)], "'a' is listed twice", id="twice"),
        pytest.param([group("a", 1), router("a")], "both named 'a'", id="router-named-as-replica"),
        pytest.param([router("a"), group("a", 1)], "both named 'a'", id="replica-named-as-router"),
        pytest.param([router("r"), router("r")], "router 'r' is listed twice", id="router-twice"),
    ],
)
def test_half_a_list_is_no_list(document: object, words: str) -> None:
    with pytest.raises(Unavailable, match=words):
        read_groups(document)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values)
def test_no_document_raises_anything_but_unavailable(document: object) -> None:
    try:
        found = read_groups(document)
    except Unavailable:
        return

    assert found == Discovered()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(b"[{", "not JSON", id="cut-off"),
        pytest.param(b"\xff", "not JSON", id="binary"),
        pytest.param(b"[" * 100_000, "not JSON", id="deep"),
        pytest.param(b"{}", "expected a list", id="object"),
    ],
)
async def test_an_endpoint_that_lists_nothing_readable_is_unavailable(
    body: bytes, words: str
) -> None:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(body=body)

    app = web.Application()
    app.router.add_get("/sd", handle)
    async with TestServer(app) as server, Scraper() as scraper:
        with pytest.raises(Unavailable, match=words):
            await discover(scraper, str(server.make_url("/sd")))


async def test_an_endpoint_is_asked_over_http() -> None:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(body=json.dumps(LIST).encode())

    app = web.Application()
    app.router.add_get("/sd", handle)
    async with TestServer(app) as server, Scraper() as scraper:
        assert await discover(scraper, str(server.make_url("/sd"))) == read_groups(LIST)
        with pytest.raises(Unavailable, match="answered 404"):
            await discover(scraper, str(server.make_url("/other")))


def test_a_fixed_list_counts_as_ready() -> None:
    target = Target(name="a", url="http://127.0.0.1:1/metrics")
    found = static([(target, "decode", Phase.DECODE)])

    assert found.members == {"a": Member(pool="decode", state=ReplicaState.READY)}
    assert found.targets == (target,)
