"""Scaling over HTTP by a `Scale` object (autoscaling/v1), and reading it back.

Conditional: a write carries the resourceVersion that was read, so it never overwrites someone
else's newer number. What fails is Unavailable; the next tick asks again.
"""

from __future__ import annotations

from typing import Any

import aiohttp

from autoscaler.json_answer import AS_IS, json_object
from serving.errors import Unavailable
from serving.types import PoolId

MOST_REPLICAS = 1_000_000
"""No pool is asked to have more: a larger number is a mistake on the other side."""


class ScaleClient:
    """The scale endpoints under one base URL, one for each pool."""

    def __init__(
        self, session: aiohttp.ClientSession, *, base_url: str, timeout_s: float = 5.0
    ) -> None:
        self._session = session
        self._base_url = base_url.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)

    def _url(self, pool: str) -> str:
        path = "/apis/phasewise.dev/v1alpha1/namespaces/default/pools"
        return f"{self._base_url}{path}/{pool}/scale"

    async def _call(self, method: str, pool: str, body: Any = None) -> dict[str, Any]:
        try:
            async with self._session.request(
                method,
                self._url(pool),
                json=body,
                timeout=self._timeout,
                headers=AS_IS,
                allow_redirects=False,
            ) as answer:
                if answer.status != 200:
                    raise Unavailable(
                        f"scale endpoint of {pool} answered {answer.status} to {method}"
                    )
                found = await json_object(answer, who=f"scale endpoint of {pool}")
        except (TimeoutError, aiohttp.ClientError, ValueError) as error:
            raise Unavailable(
                f"scale endpoint of {pool}: {str(error)[:200] or type(error).__name__}"
            ) from error
        if not isinstance(found.get("spec"), dict):
            raise Unavailable(f"scale endpoint of {pool} answered something else than a Scale")
        return found

    async def desired_replicas(self, pool: str) -> int:
        """What the pool is asked to have now."""
        scale = await self._call("GET", pool)
        replicas = scale["spec"].get("replicas")
        if not isinstance(replicas, int) or isinstance(replicas, bool):
            raise Unavailable(f"scale endpoint of {pool} gave replicas {repr(replicas)[:40]}")
        if not 0 <= replicas <= MOST_REPLICAS:
            raise Unavailable(
                f"scale endpoint of {pool} gave {str(replicas)[:40]} replicas, "
                f"which is not between 0 and {MOST_REPLICAS}"
            )
        return replicas

    async def scale(self, pool: PoolId, replicas: int, *, epoch: int) -> None:
        """Ask for an absolute number of replicas, if nobody wrote since it was read."""
        scale = await self._call("GET", pool.name)
        scale["spec"]["replicas"] = replicas
        await self._call("PUT", pool.name, scale)
