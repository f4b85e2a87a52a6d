"""One writer for each ledger: a lock that the kernel lets go of however its process ends.

An advisory lock on a file of its own beside the ledger; the file stays, what counts is who holds
it. Readers need none. Does not hold across machines that share a folder.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from serving.errors import Misconfigured


class WriterLock:
    """The right to write one ledger, from here until `release`, or until this process is gone."""

    def __init__(self, ledger: Path) -> None:
        """Take it at once. Misconfigured if another process (or this one, elsewhere) has it."""
        path = ledger.with_name(ledger.name + ".lock")
        self._file = -1
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(self._file, 32).decode(errors="replace").strip()
            self.release()
            raise Misconfigured(
                "another run holds this ledger",
                where=str(ledger),
                found=f"process {holder}" if holder.isdecimal() else "another process",
                expected="one run for each ledger: end the other, or name another file",
            ) from error
        except OSError:
            self.release()
            raise
        os.ftruncate(self._file, 0)
        os.write(self._file, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        """Let another have it; nothing happens the second time."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
