"""How long reading a page takes, against the reference parser, as a curve over page size.

python bench/exposition.py [--runs 20]
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from collector.exposition import read_page
from serving.dialects import vllm

FIXTURE = Path(__file__).parents[1] / "tests/fixtures/vllm-0.32/decode-under-load.prom"


def several_ranks(page: bytes, ranks: int) -> bytes:
    """The page of an instance with several data-parallel ranks: every engine series once a rank."""
    out: list[bytes] = []
    for line in page.splitlines(keepends=True):
        out.extend(
            line.replace(b'engine="0"', b'engine="%d"' % rank)
            for rank in range(ranks if b'engine="0"' in line else 1)
        )
    return b"".join(out)


def median_ms(work, runs: int) -> float:
    """Median of several runs in ms, after one to warm up."""
    work()
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        work()
        times.append((time.perf_counter() - begin) * 1000.0)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    print("| ranks | page | reader | reference parser | ratio |\n| --- | --- | --- | --- | --- |")
    for ranks in (1, 2, 4, 8):
        page = several_ranks(FIXTURE.read_bytes(), ranks)
        text = page.decode()
        ours = median_ms(lambda page=page: read_page(page, vllm.WANTED), runs)
        theirs = median_ms(lambda text=text: list(text_string_to_metric_families(text)), runs)
        size = f"{len(page) / 1024:.0f} KiB"
        print(f"| {ranks} | {size} | {ours:.2f} ms | {theirs:.1f} ms | {theirs / ours:.0f} x |")


if __name__ == "__main__":
    main()
