"""How hypothesis behaves: the same examples every time here, new ones under `make fuzz`."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("default", deadline=None, derandomize=True, database=None)
settings.register_profile("fuzz", deadline=None, max_examples=5_000)
settings.load_profile("default")
