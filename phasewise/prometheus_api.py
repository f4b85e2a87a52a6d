"""Instant queries to a Prometheus over its HTTP API, and the targets that it scrapes. Reads only.

Bounded in size and time by the scraper that it is given; any other answer than a vector is
Unavailable. https://prometheus.io/docs/prometheus/latest/querying/api/
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from collector.scrape import Scraper
from serving.errors import Misconfigured, Unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One series of an instant vector: its labels (its name among them) and its value."""

    labels: Mapping[str, str]
    value: float

    @property
    def name(self) -> str:
        """The name of the series, empty where an operator took it away."""
        return self.labels.get("__name__", "")


class PrometheusApi:
    """One Prometheus, or whatever speaks its API, under a base URL."""

    def __init__(self, scraper: Scraper, base_url: str) -> None:
        self._scraper = scraper
        self.url = checked_url(base_url, where="--prometheus").rstrip("/")

    async def query(self, expression: str) -> list[Sample]:
        """The instant vector of an expression, now. Raises Unavailable."""
        data = await self._get(f"/api/v1/query?{urlencode({'query': expression})}")
        found = data.get("result") if data.get("resultType") == "vector" else None
        if not isinstance(found, list):
            raise Unavailable(f"{self.url}: answered no vector to {expression}")
        try:
            return [
                Sample(labels=dict(each["metric"]), value=float(each["value"][1])) for each in found
            ]
        except (LookupError, TypeError, ValueError) as error:
            raise Unavailable(f"{self.url}: a sample of {expression} cannot be read") from error

    async def scrape_errors(self) -> dict[tuple[str, str], str]:
        """Why targets could not be scraped, by job and instance; raises Unavailable."""
        data = await self._get("/api/v1/targets?state=active")
        targets = data.get("activeTargets")
        found = {}
        for target in targets if isinstance(targets, list) else ():
            labels = target.get("labels") if isinstance(target, dict) else None
            if isinstance(labels, dict) and isinstance(target.get("lastError"), str):
                key = (str(labels.get("job", "")), str(labels.get("instance", "")))
                if target["lastError"]:
                    found[key] = target["lastError"]
        return found

    async def _get(self, path: str) -> dict[str, Any]:
        body = await self._scraper.fetch(self.url + path)
        if isinstance(body, Unavailable):
            raise body
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Unavailable(f"{self.url}: answered something else than JSON") from error
        data = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(data, dict) or answer.get("status") != "success":
            raise Unavailable(f"{self.url}: did not answer as a Prometheus does")
        return data


def checked_url(url: str, *, where: str) -> str:
    """The address, if it is one of http or https without a secret in it; else `Misconfigured`."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        secret = parts.username is not None or parts.password is not None
    except ValueError:  # a port that is not a number, brackets that do not close
        usable, secret = False, False
    if not usable or secret:
        raise Misconfigured(
            "not an address",
            where=where,
            found="a user or password" if secret else repr(url[:60]),
            expected="one like http://127.0.0.1:9090",
        )
    return url
