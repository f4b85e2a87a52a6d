"""How the long-running commands log: one JSON object a line on standard error."""

from __future__ import annotations

import sys

import structlog


def set_up_logs() -> None:
    """Timestamped JSON lines on standard error."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
