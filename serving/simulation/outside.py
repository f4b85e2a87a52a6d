"""What an engine needs from the tier around it. Pure: a protocol, no code."""

from __future__ import annotations

from typing import Protocol

from serving.simulation.sequence import Sequence


class Outside(Protocol):
    """What an engine tells, and the one thing it asks for: to pull KV."""

    def pull(self, sequence: Sequence, now_s: float) -> bool:
        """Start to pull a sequence's KV; false if it is lost (lease over, replica dead)."""

    def prefilled(self, sequence: Sequence, now_s: float) -> None:
        """A prefill replica has answered; the KV is pinned from now on."""

    def first_token(self, sequence: Sequence, now_s: float) -> None:
        """The user got the first token."""

    def finished(self, sequence: Sequence, now_s: float) -> None:
        """The user got the last token."""

    def failed(self, sequence: Sequence, now_s: float) -> None:
        """The request ended with an error on this replica."""
