"""The doctor on folders of pages, on settings with a tier behind them, and on a Prometheus."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port
from rich.console import Console

from collector.evidence import read_everything
from phasewise import cli
from phasewise.doctor import DoctorRequest, diagnoses, run_doctor
from phasewise.doctor_prometheus import OURS, diagnose_prometheus
from phasewise.doctor_report import as_json, print_diagnosis
from phasewise.doctor_settings import diagnose_settings
from phasewise.doctor_targets import Diagnosis, Target, diagnose, examine
from phasewise.other_autoscalers import other_autoscalers
from phasewise.prometheus_api import Sample
from phasewise.settings import load_settings
from serving.errors import Misconfigured
from serving.schema.document import as_model
from serving.schema.strict_yaml import read_mapping
from serving.schema.tier import Tier, demo_tier_path, load_tier
from serving.types import Phase

FIXTURES = Path(__file__).parents[1] / "fixtures"
GOLDEN = Path(__file__).with_name("golden") / "doctor-pages.txt"
PAGES = {
    phase: (FIXTURES / f"vllm-0.32/{name}.prom").read_bytes()
    for phase, name in (
        (Phase.PREFILL, "prefill"),
        (Phase.DECODE, "decode"),
        (Phase.BOTH, "single"),
    )
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The captured pages of a pair, of a single engine, of routers and of strangers."""
    pages = tmp_path / "pages"
    for name in (
        *("vllm-0.32/prefill.prom", "vllm-0.32/decode.prom", "vllm-0.32/single.prom"),
        *("vllm-0.32/decode-prefill-dead.prom", "vllm-router-0.1.17/router.prom"),
        *("vllm-legacy/v0-names.txt", "nixl-1.5.1/prefill-nixl-agent.prom"),
        *("dynamo-1.6.1/dynamo-mocker-prefill.prom", "dynamo-1.6.1/dynamo-mocker-decode.prom"),
        "dynamo-1.6.1/dynamo-planner.prom",
    ):
        copy = pages / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(FIXTURES / name, copy)
    return pages


def shown(diagnosis: Diagnosis, width: int = 80) -> str:
    out = StringIO()
    print_diagnosis(diagnosis, Console(file=out, width=width, highlight=False))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def test_the_report_on_a_folder_reads_as_it_was_approved(folder: Path) -> None:
    """Where a change is meant: write what this shows into the golden file, and read it."""
    (found,) = diagnoses(DoctorRequest(pages=folder))

    assert shown(found) == GOLDEN.read_text()


def test_prefill_and_decode_are_told_apart_and_old_names_named(folder: Path) -> None:
    (found,) = diagnoses(DoctorRequest(pages=folder))
    phases = {each.target.name: each.evidence.role.phase for each in found.targets if each.evidence}
    legacy = next(each for each in found.targets if "legacy" in each.target.name)

    assert phases["vllm-0.32/prefill.prom"] is Phase.PREFILL
    assert phases["vllm-0.32/decode.prom"] is Phase.DECODE
    assert phases["vllm-0.32/single.prom"] is Phase.BOTH
    assert legacy.conformance is not None
    assert len(legacy.conformance.old_names) == 3
    assert not legacy.usable
    assert found.can_run


@pytest.mark.parametrize("width", [40, 80, 200])
def test_nothing_is_cut_off_at_any_width(folder: Path, width: int) -> None:
    (found,) = diagnoses(DoctorRequest(pages=folder))
    text = shown(found, width)
    whole = "".join(text.split())

    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text
    for each in found.targets:
        unsaid = [words for words in each.wrong if not words.endswith(" is missing")]
        words = [each.target.name, *unsaid, *each.advice]  # what is missing has its own lines
        if each.evidence is not None:
            words += [each.evidence.words, *each.evidence.notes]
        if each.conformance is not None:
            words += [old.name for old in each.conformance.old_names]
            words += [finding.name for finding in each.conformance.findings]
        assert [word for word in words if "".join(word.split()) not in whole] == []


def test_json_says_the_same(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "out" / "doctor.json"
    code = run_doctor(
        DoctorRequest(pages=folder, json_file=file), Console(file=StringIO(), width=80)
    )
    found = json.loads(file.read_text())
    targets = {target["name"]: target for target in found["tiers"][0]["targets"]}

    assert code == 0
    assert found["can_run"] is True
    assert targets["vllm-0.32/decode.prom"]["identity"]["phase"] == "decode"
    assert targets["vllm-legacy/v0-names.txt"]["usable"] is False
    assert targets["nixl-1.5.1/prefill-nixl-agent.prom"]["usable"] is None
    assert "NaN" not in file.read_text()


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["vllm-0.32/prefill.prom"], "there is a page of prefill and none of decode"),
        (["vllm-0.32/decode.prom"], "there is a page of decode and none of prefill"),
        (["vllm-router-0.1.17/router.prom"], "no page of an engine was found"),
        (
            ["vllm-legacy/v0-names.txt"],
            "no replica's page can be used; v0-names.txt: "
            "vllm:prompt_tokens_by_source_total is missing",
        ),
    ],
)
def test_a_folder_on_which_the_loop_cannot_run_exits_with_1_and_says_why(
    tmp_path: Path, names: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in names:
        shutil.copy(FIXTURES / name, tmp_path)

    with pytest.raises(SystemExit) as caught:
        cli.main(["doctor", "--pages", str(tmp_path)])
    assert caught.value.code == 1
    shown_words = " ".join(capsys.readouterr().out.split())
    assert shown_words.endswith(f"the loop cannot run: {why}")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "one thing at a time: found nothing"),
        (["--pages", "x", "--prometheus", "http://h"], "found --pages and --prometheus"),
        (["-c", "x", "--tier", "y"], "found -c and --tier"),
        (["--pages", "no-such-folder"], "no such folder"),
        (["--prometheus", "nonsense"], "not an address"),
        (["--prometheus", "http://me:secret@h"], "a user or password"),
        (["-c", "no-such.yaml"], "no such file"),
    ],
)
def test_bad_input_exits_with_2_and_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["doctor", *arguments])
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert sentence in line
    assert "secret" not in line


def test_an_empty_folder_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="no pages to look at"):
        diagnoses(DoctorRequest(pages=tmp_path))


def test_pages_that_cannot_be_read_are_said_and_the_others_go_on(folder: Path) -> None:
    (folder / "cut.prom").write_bytes(b"vllm:num_requests_running 1")
    (folder / "binary.prom").write_bytes(b"\x00\n")
    (found,) = diagnoses(DoctorRequest(pages=folder))
    wrong = {each.target.name: each.wrong for each in found.targets}

    assert wrong["cut.prom"][0].startswith("the page is cut off")
    assert wrong["binary.prom"][0].startswith("the page is binary")
    assert found.can_run


def test_a_tier_gives_an_slo_and_a_model_to_hold_pages_against(folder: Path) -> None:
    (found,) = diagnoses(DoctorRequest(pages=folder, tier=demo_tier_path()))
    single = next(each for each in found.targets if each.target.name.endswith("single.prom"))

    assert "it serves tiny; the tier says llama-3.1-8b" in single.advice
    assert not any("ttftSeconds" in words for words in single.advice)  # 2.5 is a bound of vLLM's


def labelled(pool: str, declared: Phase, page: bytes | None, name: str = "r") -> Target:
    if page is None:
        return Target(name=name, where="", pool=pool, declared=declared, problem="refused")
    return Target(name=name, where="", pool=pool, declared=declared, page=read_everything(page))


def diagnosed(*targets: Target) -> Diagnosis:
    return diagnose("test", [examine(target, slo=None) for target in targets], ())


def test_labels_that_fit_the_evidence_are_fine() -> None:
    found = diagnosed(
        labelled("p", Phase.PREFILL, PAGES[Phase.PREFILL]),
        labelled("d", Phase.DECODE, PAGES[Phase.DECODE]),
    )

    assert found.can_run
    assert [check.ok for check in found.checks] == [True, True]


def test_swapped_labels_are_called_swapped_and_stop_the_loop() -> None:
    found = diagnosed(
        labelled("p", Phase.PREFILL, PAGES[Phase.DECODE]),
        labelled("d", Phase.DECODE, PAGES[Phase.PREFILL]),
    )

    assert not found.can_run
    assert found.why == (
        "labels: the labels of prefill and decode are swapped: pools p and d do each other's work"
    )
    assert all("but it works as" in each.wrong[0] for each in found.targets)


def test_one_wrong_label_stops_the_loop_too() -> None:
    found = diagnosed(
        labelled("p", Phase.PREFILL, PAGES[Phase.DECODE]),
        labelled("d", Phase.DECODE, PAGES[Phase.DECODE]),
    )

    assert not found.can_run
    assert found.why.startswith("role of pool p: labelled prefill, but it works as decode")


def test_before_twenty_requests_nobody_contradicts_a_label() -> None:
    new = PAGES[Phase.DECODE].replace(b" 102.0\n", b" 5.0\n")
    found = diagnosed(
        labelled("p", Phase.PREFILL, PAGES[Phase.PREFILL]), labelled("d", Phase.PREFILL, new)
    )
    (_, check) = found.checks

    assert check.ok is None
    assert "no evidence: 5 finished requests" in check.words


def test_a_pool_that_is_seen_too_little_stops_the_loop() -> None:
    good = labelled("p", Phase.PREFILL, PAGES[Phase.PREFILL])
    decode = [labelled("d", Phase.DECODE, PAGES[Phase.DECODE], name=f"d{i}") for i in range(2)]
    lost = [labelled("d", Phase.DECODE, None, name=f"lost{i}") for i in range(2)]

    assert diagnosed(good, *decode, lost[0]).can_run
    found = diagnosed(good, *decode, *lost)
    assert not found.can_run
    assert found.why == ("decode: 2 of 4 pages can be used, under the floor of 60%; lost0: refused")


def test_a_starting_replica_is_no_fault() -> None:
    starting = Target(name="new", where="", pool="d", declared=Phase.DECODE, starting=True)
    found = diagnosed(
        labelled("p", Phase.PREFILL, PAGES[Phase.PREFILL]),
        labelled("d", Phase.DECODE, PAGES[Phase.DECODE]),
        starting,
    )

    assert found.can_run
    assert "a replica that starts" in shown(found)


class FakeTier:
    """A target list, pages and scale endpoints; what a test changes is what is wrong with it."""

    def __init__(self) -> None:
        self.pages = {"prefill-1": PAGES[Phase.PREFILL], "decode-1": PAGES[Phase.DECODE]}
        self.phases = {"prefill-1": "prefill", "decode-1": "decode"}
        self.moves = True
        self.scales = True
        self.lists = True
        self.looks = 0
        self.port = 0

    async def sd(self, _: web.Request) -> web.Response:
        if not self.lists:
            return web.Response(status=503)
        groups = [
            {
                "targets": [f"127.0.0.1:{self.port}"],
                "labels": {
                    "__metrics_path__": f"/pages/{name}",
                    "__meta_phasewise_replica": name,
                    "__meta_phasewise_pool": name.split("-")[0],
                    "__meta_phasewise_phase": phase,
                    "__meta_phasewise_state": "ready",
                },
            }
            for name, phase in self.phases.items()
        ]
        return web.json_response(groups)

    async def page(self, request: web.Request) -> web.Response:
        self.looks += 1
        body = self.pages[request.match_info["name"]]
        if self.moves:
            body = body.replace(
                b"process_cpu_seconds_total ", b"process_cpu_seconds_total %d" % self.looks
            )
        return web.Response(body=body)

    async def scale(self, request: web.Request) -> web.Response:
        if not self.scales:
            return web.Response(status=404)
        return web.json_response({"kind": "Scale", "spec": {"replicas": 3}})

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_get("/sd", self.sd)
        app.router.add_get("/pages/{name}", self.page)
        app.router.add_get("/apis/{rest:.*}/scale", self.scale)
        server = TestServer(app)
        await server.start_server()
        self.port = server.port or 0
        try:
            yield f"http://127.0.0.1:{self.port}"
        finally:
            await server.close()

    async def diagnosed(self, folder: Path, *, mode: str = "act", **more: Any) -> Diagnosis:
        shutil.copy(demo_tier_path(), folder / "tier.yaml")
        async with self.serving() as url:
            settings: dict[str, Any] = {
                "tiers": [{"file": "tier.yaml", "mode": mode}],
                "source": {"httpSd": f"{url}/sd"},
                "actuator": {"kind": "scale-endpoint", "url": url},
                **more,
            }
            file = folder / "phasewise.yaml"
            file.write_text(json.dumps(settings))
            paused: list[float] = []

            async def pause(seconds: float) -> None:
                paused.append(seconds)

            (found,) = await diagnose_settings(load_settings(file), where="here", pause=pause)
            assert paused in ([], [5.0])
        return found


def said(diagnosis: Diagnosis, what: str) -> str:
    return next(check.words for check in diagnosis.checks if check.what.startswith(what))


async def test_a_sound_settings_file_can_run(tmp_path: Path) -> None:
    tier = FakeTier()
    found = await tier.diagnosed(tmp_path)

    assert found.can_run, found.why
    assert tier.looks == 4  # each page twice
    assert said(found, "scale endpoint of prefill") == "answers: 3 replicas desired"
    assert said(found, "mode") == "act: phasewise changes the pools"
    assert said(found, "ledger") == "can be written"
    assert said(found, "role of pool decode").startswith("labelled decode, and the evidence agrees")
    assert not (tmp_path / "phasewise.sqlite").exists()
    assert "advice" in shown(found)  # it serves another model than the tier says


async def test_a_page_that_stands_still_cannot_be_used(tmp_path: Path) -> None:
    tier = FakeTier()
    tier.moves = False
    found = await tier.diagnosed(tmp_path)

    assert not found.can_run
    assert "its process clock stands still" in found.why


async def test_under_a_lockstep_clock_nothing_is_waited_for(tmp_path: Path) -> None:
    tier = FakeTier()
    tier.moves = False
    clock = {"kind": "lockstep", "url": "http://127.0.0.1:1"}
    found = await tier.diagnosed(tmp_path, clock=clock)

    assert found.can_run
    assert tier.looks == 2


async def test_a_target_list_that_does_not_answer_stops_the_loop(tmp_path: Path) -> None:
    tier = FakeTier()
    tier.lists = False
    found = await tier.diagnosed(tmp_path)

    assert not found.can_run
    assert found.why.startswith("target list: ")
    assert found.why.endswith("answered 503, not 200")


@pytest.mark.parametrize(("mode", "can_run"), [("act", False), ("advise", True)])
async def test_only_mode_act_needs_scale_endpoints(
    tmp_path: Path, mode: str, can_run: bool
) -> None:
    tier = FakeTier()
    tier.scales = False
    found = await tier.diagnosed(tmp_path, mode=mode)

    assert found.can_run is can_run
    assert "answered 404" in said(found, "scale endpoint of prefill")


async def test_a_pool_that_nobody_lists_stops_the_loop(tmp_path: Path) -> None:
    tier = FakeTier()
    tier.phases = {"prefill-1": "prefill", "decoder-1": "decode"}
    tier.pages["decoder-1"] = PAGES[Phase.DECODE]
    found = await tier.diagnosed(tmp_path)

    assert not found.can_run
    assert found.why == (
        "pool decode: the target list names no replica of it: check the label pool"
    )
    assert said(found, "other pools") == "listed, but not in the tier document: decoder"


async def test_a_list_that_gives_a_pool_another_phase_stops_the_loop(tmp_path: Path) -> None:
    tier = FakeTier()
    tier.phases["decode-1"] = "both"
    found = await tier.diagnosed(tmp_path)

    assert not found.can_run
    assert found.why == "pool decode: the target list says both, the tier says decode"


async def test_a_missing_router_is_said_but_stops_nothing(tmp_path: Path) -> None:
    found = await FakeTier().diagnosed(tmp_path)

    assert said(found, "router").startswith("the tier says epp, none is listed")


def spoil_file(folder: Path) -> None:
    (folder / "phasewise.sqlite").write_text("something else, and long enough")


def spoil_folder(folder: Path) -> None:
    (folder / "deep").write_text("a file where a folder should be")


@pytest.mark.parametrize(
    ("spoil", "file"), [(spoil_file, "phasewise.sqlite"), (spoil_folder, "deep/l.sqlite")]
)
async def test_a_ledger_that_cannot_be_written_stops_the_loop(
    tmp_path: Path, spoil: Callable[[Path], None], file: str
) -> None:
    spoil(tmp_path)
    found = await FakeTier().diagnosed(tmp_path, ledger={"file": file})

    assert not found.can_run
    assert found.why.startswith("ledger ")


Metric = Mapping[str, str]


class FakePrometheus:
    """Answers the doctor's instant queries by what they ask for."""

    def __init__(self) -> None:
        self.up: list[tuple[Metric, float]] = []
        self.pages: dict[str, bytes] = {}
        self.more: dict[str, list[tuple[Metric, float]]] = {}
        self.errors: list[dict[str, Any]] | None = []

    def scrape(self, instance: str, page: bytes | None, **labels: str) -> None:
        self.up.append(({"job": "vllm", "instance": instance, **labels}, float(page is not None)))
        if page is not None:
            self.pages[instance] = page

    def answer(self, query: str) -> list[tuple[Metric, float]]:
        if query == "up":
            return [({"__name__": "up", **labels}, value) for labels, value in self.up]
        if query.startswith("count by (job, instance)"):
            assert OURS in query
            return [
                ({"job": labels["job"], "instance": labels["instance"]}, 9.0)
                for labels, value in self.up
                if value
            ]
        if query.startswith("{job="):
            return [sample for i in self.pages if f'"{i}"' in query for sample in self._series(i)]
        return next((found for word, found in self.more.items() if word in query), [])

    def _series(self, instance: str) -> list[tuple[Metric, float]]:
        target = next(labels for labels, _ in self.up if labels["instance"] == instance)
        page = read_everything(self.pages[instance])
        return [
            ({"__name__": name, **target, **dict(labels)}, value)
            for name, series in page.samples.items()
            for labels, value in series.items()
        ]

    async def handle_query(self, request: web.Request) -> web.Response:
        found = self.answer(request.query["query"])
        result = [{"metric": dict(metric), "value": [1.0, str(value)]} for metric, value in found]
        return web.json_response(
            {"status": "success", "data": {"resultType": "vector", "result": result}}
        )

    async def handle_targets(self, _: web.Request) -> web.Response:
        if self.errors is None:
            return web.Response(status=404)
        return web.json_response({"status": "success", "data": {"activeTargets": self.errors}})

    async def diagnosed(self, tier: Tier | None = None) -> Diagnosis:
        app = web.Application()
        app.router.add_get("/api/v1/query", self.handle_query)
        app.router.add_get("/api/v1/targets", self.handle_targets)
        server = TestServer(app)
        await server.start_server()
        try:
            return await diagnose_prometheus(f"http://127.0.0.1:{server.port}/", tier=tier)
        finally:
            await server.close()


@pytest.fixture
def prometheus() -> FakePrometheus:
    fake = FakePrometheus()
    fake.scrape("p:1", PAGES[Phase.PREFILL], pool="prefill", phase="prefill", namespace="llm")
    fake.scrape("d:1", PAGES[Phase.DECODE], pool="decode", phase="decode", namespace="llm")
    return fake


async def test_a_prometheus_gives_pages_back_as_they_were_scraped(
    prometheus: FakePrometheus,
) -> None:
    found = await prometheus.diagnosed()

    assert found.can_run, found.why
    for each in found.targets:
        assert each.target.page is not None
        assert each.target.declared is not None
        whole = read_everything(PAGES[each.target.declared])
        assert each.target.page.samples == {**whole.samples}
        assert each.conformance is not None
        assert each.conformance.findings == ()


async def test_a_target_that_is_down_is_said_with_the_scraper_s_own_words(
    prometheus: FakePrometheus,
) -> None:
    prometheus.scrape("d:2", None, pool="decode", phase="decode")
    labels = {"job": "vllm", "instance": "d:2"}
    prometheus.errors = [{"labels": labels, "lastError": "connection refused"}]
    found = await prometheus.diagnosed()

    assert not found.can_run
    assert "1 of 2 pages can be used" in found.why
    assert found.why.endswith("d:2: down: connection refused")


async def test_a_store_without_a_list_of_targets_is_enough(prometheus: FakePrometheus) -> None:
    prometheus.scrape("d:2", None, pool="decode", phase="decode")
    prometheus.errors = None
    found = await prometheus.diagnosed()

    assert found.why.endswith("d:2: down: the last scrape failed")


async def test_a_clock_that_does_not_move_in_prometheus_is_stale(
    prometheus: FakePrometheus,
) -> None:
    prometheus.more["changes("] = [({"job": "vllm", "instance": "p:1"}, 0.0)]
    found = await prometheus.diagnosed()

    assert not found.can_run
    assert "its process clock has not moved" in found.why


async def test_recorded_series_are_counted_and_two_suppliers_told(
    prometheus: FakePrometheus,
) -> None:
    assert said(await prometheus.diagnosed(), "recorded series").startswith("there are none")
    pool = {"tier": "t", "pool": "prefill", "phase": "prefill"}
    prometheus.more["phase:.+"] = [
        ({"__name__": "phase:output_tokens:rate1m", **pool}, 2.0),
        ({"__name__": "phase:requests_running:sum", **pool}, 1.0),
    ]
    found = await prometheus.diagnosed()

    assert said(found, "recorded series").startswith("2 of ")
    assert "phase:kv_used:ratio_max" in said(found, "recorded series")
    assert said(found, "suppliers").startswith(
        "several suppliers of phase:output_tokens:rate1m at once"
    )


HPA = {
    "__name__": "kube_horizontalpodautoscaler_info",
    "horizontalpodautoscaler": "mine",
    "namespace": "llm",
    "scaletargetref_kind": "Deployment",
    "scaletargetref_name": "decode",
}


@pytest.fixture
def placed(tmp_path: Path) -> Tier:
    """The demo tier with a scale target for its decode pool."""
    document: dict[str, Any] = read_mapping(demo_tier_path())
    target = {"kind": "Deployment", "name": "decode", "namespace": "llm"}
    document["spec"]["pools"][1]["scaleTarget"] = target
    return as_model(document, Tier, where="test")


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (HPA, "HPA llm/mine scales Deployment decode too: delete it"),
        ({**HPA, "horizontalpodautoscaler": "keda-hpa-x"}, "made by KEDA"),
        ({**HPA, "namespace": "other"}, None),
        ({**HPA, "scaletargetref_kind": "StatefulSet"}, None),
        ({**HPA, "scaletargetref_name": "frontend"}, None),
        ({"scaledObject": "decode", "namespace": "llm"}, "KEDA's ScaledObject llm/decode"),
        ({"variant_name": "decode", "exported_namespace": "llm"}, "llm-d's autoscaler wants 7"),
        ({"__name__": "dynamo_planner_num_prefill_replicas"}, "Dynamo's planner"),
    ],
)
def test_another_autoscaler_on_the_same_target_is_named(
    placed: Tier, labels: dict[str, str], words: str | None
) -> None:
    found = other_autoscalers([Sample(labels=labels, value=7.0)], tier=placed, targets=[])

    assert bool(found) is (words is not None)
    assert words is None or words in found[0].words


async def test_without_a_tier_an_autoscaler_is_told_by_the_pool_s_name(
    prometheus: FakePrometheus,
) -> None:
    prometheus.more["kube_horizontalpodautoscaler_info"] = [(HPA, 1.0)]
    found = await prometheus.diagnosed()

    assert said(found, "another autoscaler").startswith("HPA llm/mine scales Deployment decode")
    assert found.can_run


async def test_a_prometheus_that_does_not_answer_is_a_reason_not_a_crash() -> None:
    found = await diagnose_prometheus(f"http://127.0.0.1:{unused_port()}", tier=None)

    assert not found.can_run
    assert found.why.startswith("query: ")
    assert "cannot connect" in found.why


@pytest.mark.parametrize(
    "body",
    [
        "nonsense",
        "[]",
        '{"status": "error"}',
        '{"status": "success", "data": {"resultType": "matrix", "result": []}}',
        '{"status": "success", "data": {"resultType": "vector", "result": [{"metric": 1}]}}',
    ],
)
async def test_an_answer_that_is_not_prometheus_s_is_a_reason(body: str) -> None:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(text=body)

    app = web.Application()
    app.router.add_get("/api/v1/{rest:.*}", handle)
    server = TestServer(app)
    await server.start_server()
    try:
        found = await diagnose_prometheus(f"http://127.0.0.1:{server.port}", tier=None)
    finally:
        await server.close()

    assert not found.can_run
    assert found.why.startswith("query: ")


async def test_an_slo_off_the_buckets_is_advice(prometheus: FakePrometheus) -> None:
    ttft = (FIXTURES / "llm-d-router/request_ttft_seconds_metric.txt").read_bytes()
    prometheus.scrape("r:1", ttft)
    found = await prometheus.diagnosed(load_tier(demo_tier_path()))
    router = next(each for each in found.targets if each.target.name == "r:1")

    assert any("SLO ttftSeconds 2.5 is no bucket bound" in words for words in router.advice)


def test_replicas_of_a_pool_about_which_there_is_the_same_to_say_are_said_once() -> None:
    many = [labelled("d", Phase.DECODE, PAGES[Phase.DECODE], name=f"d-{i}") for i in range(40)]
    text = shown(diagnosed(*many, labelled("p", Phase.PREFILL, PAGES[Phase.PREFILL])))

    assert "d-5 and 34 more" in " ".join(text.split())
    assert len(text.splitlines()) < 40


def test_what_is_written_as_json_is_json() -> None:
    found = diagnosed(labelled("d", Phase.DECODE, None))

    assert json.loads(json.dumps(as_json(found), allow_nan=False))["targets"][0]["identity"] is None
