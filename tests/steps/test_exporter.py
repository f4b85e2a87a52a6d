"""The vLLM plugin: what it adds to the page for each step, and that it never harms the engine."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import REGISTRY, generate_latest

from collector.exposition import read_page
from serving.dialects.steps import step_reading
from serving.dialects.vllm import WANTED
from serving.step_catalogue import STEP_SERIES_BY_NAME
from serving.step_sums import StepSums, added, one_step

ROOT = Path(__file__).parents[2]


def config(*, details=True, capacity=12_800, **scheduler):
    observability = SimpleNamespace()
    if details is not None:
        observability.enable_logging_iteration_details = details
    return SimpleNamespace(
        observability_config=observability,
        model_config=SimpleNamespace(served_model_name="tiny"),
        cache_config=SimpleNamespace(kv_cache_size_tokens=capacity, num_gpu_blocks=None),
        scheduler_config=SimpleNamespace(**scheduler),
        parallel_config=SimpleNamespace(pipeline_parallel_size=1),
    )


def told(index, *, prefill=0, sequences=0, elapsed_s=0.01, kv=0.5, running=1, dummy=False):
    return SimpleNamespace(
        kv_cache_usage=kv,
        num_running_reqs=running,
        num_waiting_reqs=0,
        iteration_details=SimpleNamespace(
            iteration_index=index,
            num_ctx_requests=1 if prefill else 0,
            num_ctx_tokens=prefill,
            num_generation_requests=sequences,
            num_generation_tokens=sequences,
            elapsed_ms=elapsed_s * 1000.0,
            is_dummy=dummy,
        ),
    )


def gaps(*gaps_s):
    return SimpleNamespace(inter_token_latencies_iter=list(gaps_s))


def page():
    return read_page(generate_latest(REGISTRY), wanted=WANTED)


def test_the_page_of_real_steps_reads_back_as_their_sums(exporter):
    logger = exporter.logger.StepLogger(config())
    logger.record(told(0, prefill=300, elapsed_s=0.04), None)
    logger.record(told(1, sequences=3, elapsed_s=0.02), gaps(0.025, 0.4))
    logger.record(told(2, sequences=4, elapsed_s=0.02, kv=0.75), gaps(0.03, 0.03))
    logger.record(told(3, prefill=100, sequences=4), gaps(0.05))

    found = step_reading(page())

    assert found is not None
    kv = {"kv_tokens": 6_400.0}
    assert found.prefill == one_step(prefill_tokens=300, sequences=0, seconds=0.04, **kv)
    first = one_step(prefill_tokens=0, sequences=3, seconds=0.025, **kv)
    second = one_step(prefill_tokens=0, sequences=4, seconds=0.03, kv_tokens=9_600.0)
    assert found.decode == added(first, second)
    # the KV of what ended in the step was there while it ran
    assert found.mixed.kv_tokens == 9_600.0
    assert found.mixed.prefill_tokens_sequences == 400.0


def test_before_the_first_step_every_sum_is_there_and_nothing(exporter):
    exporter.logger.StepLogger(config())

    found = step_reading(page())

    assert found is not None
    assert (found.prefill, found.decode, found.mixed) == (StepSums(), StepSums(), StepSums())


def test_every_series_is_in_the_catalogue_and_no_other(exporter):
    logger = exporter.logger.StepLogger(config())
    logger.record(told(0, prefill=300), None)
    families = {
        family.name + ("_total" if family.type == "counter" else ""): family
        for family in REGISTRY.collect()
        if family.name.startswith("phasewise_step")
    }

    assert families.keys() == STEP_SERIES_BY_NAME.keys()
    for name, family in families.items():
        spec = STEP_SERIES_BY_NAME[name]
        labels = {key for sample in family.samples for key in sample.labels} - {"le"}
        assert family.type == spec.type.value
        assert labels == set(spec.labels)


def test_the_series_follow_the_conventions_of_promtool(exporter):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    exporter.logger.StepLogger(config()).record(told(0, prefill=300), None)
    lines = [
        line
        for line in generate_latest(REGISTRY).decode().splitlines(keepends=True)
        if "phasewise_step" in line and "_created" not in line
    ]

    checked = subprocess.run(
        [promtool, "check", "metrics"], input="".join(lines), capture_output=True, text=True
    )

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("details", "words"),
    [
        pytest.param(False, "--enable-logging-iteration-details", id="flag-off"),
        pytest.param(None, "tells nothing of single steps", id="older-vllm"),
    ],
)
def test_steps_that_are_not_told_are_unknown_and_never_zero(exporter, details, words):
    logger = exporter.logger.StepLogger(config(details=details))
    logger.record(SimpleNamespace(kv_cache_usage=0.1, num_running_reqs=1), gaps(0.02))
    (problem,) = [
        sample.labels["problem"]
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name == "phasewise_step_exporter_info" and sample.value == 1.0
    ]

    assert words in problem
    assert step_reading(page()) is None


def test_what_breaks_in_the_plugin_stays_in_it_and_is_said(exporter):
    logger = exporter.logger.StepLogger(config())
    logger.record(SimpleNamespace(), None)  # another vLLM: the fields have other names
    logger.record(told(0, prefill=300), None)
    info = [
        (sample.labels["problem"], sample.value)
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name == "phasewise_step_exporter_info"
    ]

    assert [value for problem, value in info if problem == ""] == [0.0]
    assert [value for problem, value in info if problem.startswith("stopped: Attr")] == [1.0]
    found = step_reading(page())
    assert found is not None
    assert found.prefill == StepSums()


@pytest.mark.parametrize(
    "nothing",
    [
        pytest.param(None, id="no-statistics"),
        pytest.param(
            SimpleNamespace(iteration_details=None, kv_cache_usage=0.0), id="nothing-scheduled"
        ),
        pytest.param(told(0, prefill=1, dummy=True), id="rank-that-keeps-step"),
        pytest.param(told(0, prefill=1, elapsed_s=0.0), id="no-time"),
    ],
)
def test_what_is_no_step_is_not_counted(exporter, nothing):
    exporter.logger.StepLogger(config()).record(nothing, None)

    found = step_reading(page())

    assert found is not None
    assert found.prefill == StepSums()


def test_until_the_size_of_the_cache_is_known_no_step_is_counted(exporter):
    settings = config(capacity=None)
    logger = exporter.logger.StepLogger(settings)
    logger.record(told(0, prefill=300), None)
    settings.cache_config.num_gpu_blocks, settings.cache_config.block_size = 100, 128
    logger.record(told(1, prefill=200), None)

    found = step_reading(page())

    assert found is not None
    assert found.prefill == one_step(
        prefill_tokens=200, sequences=0, kv_tokens=6_400.0, seconds=0.01
    )


def test_a_second_engine_of_the_process_has_its_own_label_and_both_are_summed(exporter):
    for index in (0, 1):
        exporter.logger.StepLogger(config(), index).record(told(0, prefill=300), None)

    found = step_reading(page())

    assert found is not None
    assert (found.prefill.steps, found.prefill.prefill_tokens) == (2.0, 600.0)


def test_clearing_vllms_own_series_leaves_these(exporter):
    """What vLLM does at its start, `unregister_vllm_metrics`, by the names of collectors."""
    exporter.logger.StepLogger(config())
    gone = [
        collector
        for collector in list(REGISTRY._collector_to_names)
        if getattr(collector, "_name", "").startswith("vllm:")
    ]

    assert gone == []
    assert step_reading(page()) is not None


def test_several_processes_are_added_up_by_the_multiprocess_files(tmp_path):
    """Two API servers write into vLLM's multiprocess folder; its page adds them."""
    script = """
import sys, types
from abc import ABC
for name in ("vllm", "vllm.v1", "vllm.v1.metrics", "vllm.v1.metrics.loggers"):
    sys.modules[name] = types.ModuleType(name); sys.modules[name].__path__ = []
sys.modules["vllm.v1.metrics.loggers"].StatLoggerBase = ABC
sys.path[:0] = [sys.argv[1], sys.argv[2]]
from phasewise_vllm_steps.logger import StepLogger
from test_exporter import config, told
StepLogger(config()).record(told(0, prefill=300), None)
if len(sys.argv) > 3:
    from prometheus_client import CollectorRegistry, generate_latest, multiprocess
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)
    print(generate_latest(registry).decode())
"""
    arguments = [str(ROOT / "serving" / "vllm_steps"), str(Path(__file__).parent)]
    pages = [
        subprocess.run(
            [sys.executable, "-c", script, *arguments, *last],
            env={"PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for last in ([], ["read"])
    ]

    found = step_reading(read_page(pages[1].encode(), wanted=WANTED))

    assert found is not None
    assert (found.prefill.steps, found.prefill.prefill_tokens_squared) == (2.0, 180_000.0)


def test_the_raw_log_has_one_line_for_each_step(exporter, tmp_path, monkeypatch):
    file = tmp_path / "steps.jsonl"
    monkeypatch.setenv("PHASEWISE_STEP_LOG", str(file))
    logger = exporter.logger.StepLogger(config())
    logger.record(told(0, prefill=300, elapsed_s=0.04), None)
    logger.record(told(1, sequences=3), gaps(0.025))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    logger._raw._file.close()

    assert [(line["seconds"], line["told_by"]) for line in lines] == [
        (0.04, "elapsed"),
        (0.025, "gap"),
    ]
    assert lines[0].keys() == {
        *("t", "engine", "prefill_tokens", "prefill_requests", "decode_tokens"),
        *("decode_sequences", "kv_tokens", "seconds", "elapsed_seconds", "told_by"),
    }


@pytest.mark.parametrize("name", ["vllm_steps", "local/inside/step_delay"])
def test_a_distribution_names_an_entry_point_that_is_there(name):
    folder = ROOT / "serving" / name
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    ((_, entries),) = project["entry-points"].items()
    ((_, target),) = entries.items()
    module, attribute = target.split(":")
    path = folder / module.replace(".", "/")
    source = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"

    assert f" {attribute}(" in source.read_text()
    assert project["license"] == "Apache-2.0"
    assert (folder / "README.md").is_file()
