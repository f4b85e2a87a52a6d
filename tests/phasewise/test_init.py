"""A first tier document from pages: what is known stands there, what is not is marked."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from phasewise import cli
from phasewise.commands import init
from phasewise.init_tier import InitRequest, InitResult, run_init
from serving.errors import Misconfigured, Unavailable
from serving.schema.tier import Tier, load_tier
from serving.types import Phase

FIXTURES = Path(__file__).parents[1] / "fixtures"
PREFILL = (FIXTURES / "vllm-0.32/prefill.prom").read_bytes()
DECODE = (FIXTURES / "vllm-0.32/decode.prom").read_bytes()


def pages_of(folder: Path, *names: str) -> Path:
    for name in names:
        shutil.copy(FIXTURES / name, folder)
    return folder


def from_pages(folder: Path, **more: Any) -> InitResult:
    request = {"http_sd": None, "pages": folder, "urls": (), "output": folder / "out/tier.yaml"}
    return run_init(InitRequest(**{**request, **more}))


PAIR = ("vllm-0.32/prefill.prom", "vllm-0.32/decode-under-load.prom")


def test_a_pair_gives_a_whole_document_with_its_pools_by_evidence(tmp_path: Path) -> None:
    result = from_pages(pages_of(tmp_path, *PAIR, "vllm-router-0.1.17/router.prom"))
    tier = load_tier(tmp_path / "out/tier.yaml")
    prefill, decode = tier.spec.pools

    assert result.problem is None
    assert result.warnings == ()
    assert tier.spec.model == "tiny"
    assert tier.spec.router.kind == "vllm-router"
    assert (prefill.phase, decode.phase) == (Phase.PREFILL, Phase.DECODE)
    assert tier.variant_of(prefill).engine.kv_capacity_tokens == 1_048_576
    assert tier.variant_of(decode).engine.kv_capacity_tokens == 10_240
    assert tier.variant_of(decode).engine.block_size_tokens == 128
    assert tier.variant_of(decode).engine.max_model_len_tokens == 4096


def test_kv_bytes_of_a_token_are_what_was_moved_over_what_was_received(tmp_path: Path) -> None:
    from_pages(pages_of(tmp_path, *PAIR))
    moved = next(
        float(line.split()[-1])
        for line in (FIXTURES / PAIR[1]).read_text().splitlines()
        if line.startswith("vllm:nixl_bytes_transferred_sum")
    )

    found = load_tier(tmp_path / "out/tier.yaml").spec.kv_transfer.bytes_per_token
    assert found == pytest.approx(moved / 71_680, abs=0.5)


def test_equal_engines_share_a_variant(tmp_path: Path) -> None:
    from_pages(pages_of(tmp_path, "vllm-0.32/prefill.prom", "vllm-0.32/decode.prom"))
    tier = load_tier(tmp_path / "out/tier.yaml")

    assert [variant.name for variant in tier.spec.variants] == ["main"]


def test_an_aggregated_engine_gives_one_pool(tmp_path: Path) -> None:
    from_pages(pages_of(tmp_path, "vllm-0.32/single.prom"))
    (pool,) = load_tier(tmp_path / "out/tier.yaml").spec.pools

    assert pool.phase is Phase.BOTH


def test_every_value_that_nobody_could_know_is_marked(tmp_path: Path) -> None:
    result = from_pages(pages_of(tmp_path, *PAIR))
    lines = (tmp_path / "out/tier.yaml").read_text().splitlines()
    unknown = (
        *("name: tier", "ttftSeconds", "itlSeconds", "attainmentRatio", "acceleratorType"),
        *("acceleratorsPerReplica", "maxNumBatchedTokens", "maxNumSeqs", "replicas:", "startup:"),
        *("scaleTarget", "kind: none"),
    )
    known = ("model:", "blockSizeTokens", "kvCapacityTokens", "phase:", "variant:", "bytesPerToken")

    for key in unknown:
        found = [line for line in lines if key in line and line.lstrip("# ")]
        assert found, key
        assert all("# TODO" in line for line in found), key
    for key in known:
        found = [line for line in lines if key in line]
        assert found, key
        assert not any("# TODO" in line for line in found), key
    assert result.todo == sum(line.count("# TODO") for line in lines)


def test_a_role_without_evidence_is_left_open_and_check_says_so(tmp_path: Path) -> None:
    result = from_pages(pages_of(tmp_path, "vllm-legacy/v0-names.txt"))
    text = (tmp_path / "out/tier.yaml").read_text()

    assert "phase:   # TODO prefill, decode or both? no evidence" in text
    assert result.problem is not None
    assert "phase" in result.problem
    assert any("cannot be used" in words for words in result.warnings)


def test_half_a_tier_is_written_and_said_to_be_half(tmp_path: Path) -> None:
    result = from_pages(pages_of(tmp_path, "vllm-0.32/decode.prom"))

    assert result.problem is not None
    assert "half of a disaggregated tier" in result.problem


def test_a_file_is_only_replaced_by_force(tmp_path: Path) -> None:
    file = tmp_path / "tier.yaml"
    file.write_text("mine")
    pages_of(tmp_path, *PAIR)

    with pytest.raises(Misconfigured, match="--force"):
        from_pages(tmp_path, output=file)
    assert file.read_text() == "mine"
    from_pages(tmp_path, output=file, force=True)
    assert load_tier(file).spec.model == "tiny"


def test_no_engine_no_document(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no engine's page among 1 targets"):
        from_pages(pages_of(tmp_path, "vllm-router-0.1.17/router.prom"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("model", ['a"b', "a\nevil: 1", "a # b", "{x}", "ü", "null", "1e3"])
def test_a_strange_model_name_stays_a_name(tmp_path: Path, model: str) -> None:
    escaped = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    page = (FIXTURES / "vllm-0.32/single.prom").read_text()
    (tmp_path / "a.prom").write_text(page.replace('"tiny"', f'"{escaped}"'))
    (tmp_path / "b.prom").write_text(page)

    result = from_pages(tmp_path)
    tier = load_tier(tmp_path / "out/tier.yaml")
    assert result.problem is None
    assert tier.spec.model in (model, "tiny")


@asynccontextmanager
async def serving(groups: object) -> AsyncIterator[str]:
    async def sd(request: web.Request) -> web.Response:
        host = f"{request.host}"
        return web.json_response(json.loads(json.dumps(groups).replace("HOST", host)))

    async def page(request: web.Request) -> web.Response:
        return web.Response(body=PREFILL if request.path == "/prefill" else DECODE)

    app = web.Application()
    app.router.add_get("/sd", sd)
    app.router.add_get("/prefill", page)
    app.router.add_get("/decode", page)
    server = TestServer(app)
    await server.start_server()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        await server.close()


async def asked(folder: Path, **source: Any) -> tuple[Tier | None, InitResult]:
    """Run it as a person would, in a thread of its own: it starts its own event loop."""
    import asyncio

    output = folder / "tier.yaml"
    request = InitRequest(**{"http_sd": None, "pages": None, "urls": (), **source}, output=output)
    result = await asyncio.to_thread(run_init, request)
    return (load_tier(output) if result.problem is None else None), result


def group(path: str, **labels: str) -> dict[str, Any]:
    return {"targets": ["HOST"], "labels": {"__metrics_path__": path, **labels}}


async def test_pools_come_from_the_labels_of_a_target_list(tmp_path: Path) -> None:
    groups = [
        group("/prefill", __meta_phasewise_pool="fast.prefill", __meta_phasewise_phase="prefill"),
        group("/decode", pool="Big Decode", llm_d_ai_role="decode"),
        group("/decode", pool="Big Decode", llm_d_ai_role="decode", replica="two"),
        group("/decode", __meta_phasewise_state="starting", pool="Big Decode", phase="decode"),
    ]
    async with serving(groups) as url:
        tier, result = await asked(tmp_path, http_sd=f"{url}/sd")

    assert tier is not None
    assert [(pool.name, pool.phase) for pool in tier.spec.pools] == [
        ("fast.prefill", Phase.PREFILL),
        ("big-decode", Phase.DECODE),
    ]
    assert [pool.replicas for pool in result.draft.pools] == [1, 2]
    assert "by its label, and the evidence agrees" in (tmp_path / "tier.yaml").read_text()


async def test_swapped_labels_are_called_out(tmp_path: Path) -> None:
    groups = [group("/prefill", phase="decode"), group("/decode", phase="prefill")]
    async with serving(groups) as url:
        _, result = await asked(tmp_path, http_sd=f"{url}/sd")

    assert result.warnings[0].startswith("labels: the labels of prefill and decode are swapped")
    text = (tmp_path / "tier.yaml").read_text()
    assert "phase: prefill   # TODO by its label, but it works as decode" in text


async def test_pages_by_address_are_enough(tmp_path: Path) -> None:
    async with serving([]) as url:
        tier, _ = await asked(tmp_path, urls=[f"{url}/prefill", f"{url}/decode"])

    assert tier is not None
    assert [pool.phase for pool in tier.spec.pools] == [Phase.PREFILL, Phase.DECODE]


@pytest.mark.parametrize("groups", [{}, [1], [{"targets": 1}], "x", [{"labels": {}}]])
async def test_a_list_that_is_none_is_unavailable(tmp_path: Path, groups: object) -> None:
    async with serving(groups) as url:
        with pytest.raises(Unavailable, match=r"no list of targets|no engine's page"):
            await asked(tmp_path, http_sd=f"{url}/sd")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "one source at a time: found nothing"),
        (["--http-sd", "http://h", "--url", "http://h"], "found several"),
        (["--url", "nonsense"], "not an address"),
        (["--pages", "no-such-folder"], "no such folder"),
    ],
)
def test_bad_input_exits_with_2_and_one_sentence(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        cli.main(["init", *arguments])

    assert caught.value.code == 2
    assert sentence in capsys.readouterr().err


def test_the_command_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "made" / "tier.yaml"
    pages_of(tmp_path, *PAIR)
    with pytest.raises(SystemExit) as caught:
        cli.main(["init", "--pages", str(tmp_path), "-o", str(output)])

    assert caught.value.code == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line == f"{output}: pools prefill (1), decode (1); 19 TODOs"
    assert init.EXAMPLE.startswith("phasewise init")
