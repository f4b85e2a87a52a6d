"""What is wrong with the sources, said in the log when it begins, changes or ends.

It does not say it again at every tick: a problem that only counts on (`30 s late`, `35 s late`) is
the same one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import structlog

from collector.observe import ROUTER
from serving.types import Observation

_log = structlog.get_logger("phasewise")
_SHOWN = 5
_NUMBER = re.compile(r"\d+(\.\d+)?")
SOURCE = "source"
"""What is wrong with the list of replicas, a scale endpoint, or the look as a whole."""
_CONSEQUENCE = {
    SOURCE: (
        "a source has a problem: what it tells is unknown and pools hold; see that it answers, or "
        "run `phasewise doctor`"
    ),
    ROUTER: (
        "the front end has a problem: what users get and ask is unknown, and demand is what "
        "replicas serve; see that its page answers, or run `phasewise doctor`"
    ),
}
_OF_POOL = (
    "a pool has a problem: what is not told is unknown, and a pool of which too little is known "
    "does not shrink; look at the pages named here, or run `phasewise doctor`"
)


class ProblemLog:
    """One tier's problems, by where they are: `source`, `router`, or a pool's name."""

    def __init__(self, tier: str) -> None:
        self._tier = tier
        self._said: dict[str, frozenset[str]] = {}

    def note(self, observations: Sequence[Observation]) -> None:
        """Log what is new since the observations before, and what is over."""
        now = problems_of(observations)
        for where, problems in now.items():
            known = self._said.get(where, frozenset())
            fresh = [text for text in problems if same(text) not in known]
            if fresh:
                _log.warning(
                    _CONSEQUENCE.get(where, _OF_POOL),
                    tier=self._tier,
                    where=where,
                    why="; ".join(fresh[:_SHOWN]),
                    more=max(0, len(fresh) - _SHOWN),
                )
        for where in self._said.keys() - now.keys():
            _log.info("the problem is over", tier=self._tier, where=where)
        self._said = {where: frozenset(map(same, texts)) for where, texts in now.items()}


def problems_of(observations: Sequence[Observation]) -> dict[str, list[str]]:
    """All problems of a tick by where they are, each once, in the order of their first coming."""
    found: dict[str, dict[str, str]] = {}

    def add(where: str, problems: Iterable[str]) -> None:
        for text in problems:
            found.setdefault(where, {}).setdefault(same(text), text)

    for seen in observations:
        add(SOURCE, seen.problems)
        for sample in seen.samples:
            add(sample.pool.name, sample.problems)
        if seen.router is not None:
            add(ROUTER, seen.router.problems)
    return {where: list(texts.values()) for where, texts in found.items()}


def same(text: str) -> str:
    """What two sayings of one problem share: the name before the colon, and all but numbers."""
    who, colon, what = text.partition(": ")
    return f"{who}{colon}{_NUMBER.sub('#', what)}"
