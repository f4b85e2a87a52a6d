"""The *Tier* dashboard: one disaggregated tier, from what its users get down to phasewise itself.

Reads top to bottom as one looks when called: are users served, which pool is short, why, and can
these numbers be trusted. Pure: no clock, no network, no log.
"""

from __future__ import annotations

from dataclasses import replace

from dashboards import tier_inside, tier_users
from dashboards.board import Board, Mark, Query, Row, Variable
from dashboards.queries import changes

_REPORTING = "phase:replicas_reporting:count"

VARIABLES = (
    Variable(name="tier", title="Tier", of=_REPORTING, label="tier"),
    Variable(
        name="phase", title="Phase", of=f'{_REPORTING}{{tier="$tier"}}', label="phase", many=True
    ),
    Variable(
        name="pool",
        title="Pool",
        of=f'{_REPORTING}{{tier="$tier", phase=~"$phase"}}',
        label="pool",
        many=True,
    ),
)


def board() -> Board:
    """The dashboard as data."""
    return Board(
        uid="phasewise-tier",
        title="Tier",
        description="One disaggregated serving tier: what users get, what each phase needs and has,"
        " why its pools have their sizes, and how fresh all of it is.",
        variables=VARIABLES,
        rows=(
            tier_users.users(),
            _with_use(tier_users.supply()),
            tier_inside.decisions(),
            tier_inside.pools(),
            tier_inside.itself(),
        ),
        marks=(
            Mark(
                title="Pools that were changed",
                query=Query(
                    expr=changes("phasewise_desired_replicas", "pool").text, legend="{{pool}}"
                ),
            ),
        ),
    )


def _with_use(row: Row) -> Row:
    """The row of supply with both phases' use at its end, across the whole width."""
    return replace(row, panels=(*row.panels, replace(tier_users.busy(), width=24)))
