"""`phasewise render keda`: a ScaledObject for each pool, and KEDA's certificates where asked. Pure.

What the objects say is in `autoscaler.keda_objects`; here they become files with a comment.
"""

from __future__ import annotations

from autoscaler.keda_objects import (
    SECRET,
    namespace_of,
    object_name,
    scaled_object,
    target_of,
    trigger_authentication,
)
from phasewise.rendering import RenderRequest
from serving.schema.tier import Pool, Tier
from serving.schema.yaml_text import yaml_text

_DEFAULT_PORT = 6000


def render(asked: RenderRequest) -> dict[str, str]:
    """File names and texts, one file for each pool of each tier."""
    files: dict[str, str] = {}
    namespaces: dict[str, None] = {}
    for tier in asked.tiers:
        for pool in tier.spec.pools:
            namespaces[namespace_of(tier, pool)] = None
            document = scaled_object(
                tier,
                pool,
                address=asked.scaler_address or _address(tier),
                tls=asked.tls,
            )
            files[f"scaledobject-{object_name(tier, pool)}.yaml"] = yaml_text(
                document, comment=_comment(tier, pool)
            )
    for namespace in namespaces if asked.tls else ():
        files[f"triggerauthentication-{namespace}.yaml"] = yaml_text(
            trigger_authentication(namespace), comment=_SECRET_COMMENT
        )
    return files


def _address(tier: Tier) -> str:
    return f"phasewise-serve.{tier.metadata.namespace}.svc:{_DEFAULT_PORT}"


def _comment(tier: Tier, pool: Pool) -> str:
    lines = [
        f"Pool {pool.name} of tier {tier.name}: KEDA scales it to what `phasewise serve` answers.",
        "phasewise decides when; nothing here delays or rounds it. Where it gives no number (mode",
        "advise, a source that is away) the pool keeps its size.",
        "Needs KEDA 2.17 (fallback.behavior), and an HPA that knows tolerance: Kubernetes with the",
        "feature gate HPAConfigurableTolerance. Without it changes of up to a tenth are ignored.",
    ]
    if pool.scale_target is None:
        lines += [
            "The tier document names no scaleTarget for this pool, so this assumes a Deployment",
            f"{target_of(pool).name!r}.",
        ]
    return "\n".join(lines)


_SECRET_COMMENT = f"""\
KEDA's side of mTLS towards `phasewise serve`, from the secret {SECRET} that you make:
ca.crt (who signed the server), tls.crt and tls.key (a client certificate that serve trusts)."""
