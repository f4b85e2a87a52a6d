"""The two errors that may cross a room boundary. Pure: no clock, no network, no log.

Everything that a library raises is translated into one of these at the edge, with `raise … from`.
"""


class PhasewiseError(Exception):
    """Parent of the two, so that the command line can catch both in one place."""


class Unavailable(PhasewiseError):
    """Something outside did not answer as it should: try again later, and hold until then."""

    def __init__(self, what: str, *, retry_after_s: float = 5.0) -> None:
        super().__init__(what)
        self.what = what
        self.retry_after_s = retry_after_s


class Misconfigured(PhasewiseError):
    """A human must act: says what, where, what was found and what was expected, in one sentence."""

    def __init__(self, what: str, *, where: str, found: str, expected: str) -> None:
        super().__init__(f"{where}: {what}: found {found}, expected {expected}")
        self.what = what
        self.where = where
        self.found = found
        self.expected = expected
