"""The files of a TLS server, read as one consistent set or refused.

Uses the standard library's own checks, so that a key that does not belong to its certificate is
seen before any client is turned away. Does not look inside certificates, and logs nothing.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from serving.errors import Misconfigured, Unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The PEM files of a TLS server; `client_ca` makes it ask clients for a certificate."""

    cert: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """What stands in the files. The key is never shown."""

    cert: bytes
    key: bytes = field(repr=False)
    client_ca: bytes | None = None


def read_certificates(files: TlsFiles) -> Certificates:
    """The files as they are now, if they belong together.

    Raises Misconfigured if they do not, Unavailable if they change while they are read (which a
    rotation does; read again).
    """
    found = _read(files)
    _check(files)
    if _read(files) != found:
        raise Unavailable("the certificates are being replaced", retry_after_s=1.0)
    return found


def _read(files: TlsFiles) -> Certificates:
    return Certificates(
        cert=_content(files.cert),
        key=_content(files.key),
        client_ca=None if files.client_ca is None else _content(files.client_ca),
    )


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise Misconfigured(
            "cannot be read",
            where=str(file),
            found=error.strerror or type(error).__name__,
            expected="a PEM file",
        ) from error


def _check(files: TlsFiles) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(files.cert, files.key, password=lambda: "")
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise Misconfigured(
            "certificate and key are not usable together",
            where=f"{files.cert} and {files.key}",
            found=_reason(error),
            expected="a certificate chain in PEM and its own key without a password",
        ) from error
    if files.client_ca is None:
        return
    try:
        context.load_verify_locations(files.client_ca)
    except (OSError, ValueError) as error:
        raise Misconfigured(
            "no authority can be read",
            where=str(files.client_ca),
            found=_reason(error),
            expected="certificates in PEM",
        ) from error


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(reason or getattr(error, "strerror", None) or error)
