"""The settings file, `phasewise.yaml`: which tiers, where samples come from, what may be done.

What a tier is made of stands in its own document (`serving.schema.tier`); this one names it.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from phasewise.loopback import is_loopback
from serving.schema.document import load_document
from serving.schema.node import Node, describe, problem


def _check_url(url: object) -> object:
    if not isinstance(url, str):
        return url
    expected = "an address like http://127.0.0.1:8000"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        secret = parts.username is not None or parts.password is not None
    except ValueError:  # a port that is not a number, brackets that do not close
        usable, secret = False, False
    if secret:
        raise problem("no secrets in addresses", found="a user or password", expected=expected)
    if not usable:
        raise problem("not an address", found=describe(url), expected=expected)
    return url


def _check_file(file: object) -> object:
    if isinstance(file, str) and file and "\0" not in file:
        return Path(file)
    raise problem("wrong value", found=describe(file), expected="a file name")


def _from_folder(file: Path, info: ValidationInfo) -> Path:
    folder = (info.context or {}).get("folder")
    return folder / file if folder else file


Url = Annotated[str, Field(strict=True), BeforeValidator(_check_url)]
FilePath = Annotated[Path, BeforeValidator(_check_file), AfterValidator(_from_folder)]
Seconds = Annotated[float, Field(strict=True, gt=0, le=86_400)]
Ratio = Annotated[float, Field(strict=True, ge=0, le=1)]
Port = Annotated[int, Field(strict=True, ge=0, le=65_535)]
Text = Annotated[str, Field(strict=True, min_length=1, max_length=253)]


class Mode(StrEnum):
    """What phasewise may do to a tier: show what it would do, or do it."""

    ADVISE = "advise"
    ACT = "act"


class TierEntry(Node):
    """One tier to look after."""

    file: FilePath = Field(
        description="tier document; a relative name starts at this file's folder"
    )
    mode: Mode = Field(
        default=Mode.ADVISE, description="advise (show, change nothing) or act (change pools)"
    )


class Source(Node):
    """Where samples come from."""

    kind: Literal["simulated"] = Field(
        default="simulated",
        description="how replicas are found: simulated reads the simulated tier's target list",
    )
    http_sd: Url = Field(description="address of the target list, in Prometheus' http_sd form")
    scrape_interval_seconds: Seconds = Field(
        default=5.0, description="time between two reads of every page, in seconds"
    )
    timeout_seconds: Seconds = Field(
        default=2.0, description="longest wait for one page, in seconds"
    )
    max_page_bytes: Annotated[int, Field(strict=True, ge=1024, le=1 << 30)] = Field(
        default=8_388_608, description="largest page that is read, after decompression, in bytes"
    )
    coverage_floor_ratio: Ratio = Field(
        default=0.6,
        description="share of a pool's replicas under which its values are unknown, 0-1",
    )
    concurrency: Annotated[int, Field(strict=True, ge=1, le=1024)] = Field(
        default=32, description="pages that are read at once"
    )

    @model_validator(mode="after")
    def _check_timeout(self) -> Source:
        if self.timeout_seconds > self.scrape_interval_seconds:
            raise problem(
                "a read must end before the next begins",
                where="timeoutSeconds",
                found=f"{self.timeout_seconds:g}",
                expected=f"at most scrapeIntervalSeconds ({self.scrape_interval_seconds:g})",
            )
        return self


class ClockSettings(Node):
    """Whose time it is."""

    kind: Literal["wall", "lockstep"] = Field(
        default="wall",
        description="wall (this machine's) or lockstep (the simulated tier's, moved by phasewise)",
    )
    url: Url | None = Field(
        default=None, description="address of the simulated tier's clock; lockstep only"
    )

    @model_validator(mode="after")
    def _check_url_given(self) -> ClockSettings:
        if self.kind == "lockstep" and self.url is None:
            raise problem(
                "a lockstep clock is somewhere",
                where="url",
                found="nothing",
                expected="the address of the clock",
            )
        return self


class LedgerSettings(Node):
    """Where every observation and plan is kept, and for how long."""

    file: FilePath = Field(
        default="phasewise.sqlite",
        validate_default=True,
        description="SQLite file; a relative name starts at this file's folder",
    )
    max_bytes: Annotated[int, Field(strict=True, ge=1 << 20, le=2**53)] = Field(
        default=1_073_741_824, description="largest size of the file, in bytes; the oldest go first"
    )
    max_age_days: Annotated[float, Field(strict=True, gt=0, le=3650)] = Field(
        default=14.0, description="how long rows are kept, in days"
    )


class ActuatorSettings(Node):
    """How pools are changed."""

    kind: Literal["none", "scale-endpoint", "keda"] = Field(
        default="none",
        description="none, scale-endpoint (a scale subresource over HTTP) or keda (KEDA scales, "
        "by what it is told by `phasewise serve`)",
    )
    url: Url | None = Field(
        default=None,
        description="address that serves the pools' scale; with keda it is only read",
    )

    @model_validator(mode="after")
    def _check_url_given(self) -> ActuatorSettings:
        if self.kind != "none" and self.url is None:
            raise problem(
                "a scale endpoint is somewhere",
                where="url",
                found="nothing",
                expected="the address of the endpoint",
            )
        return self


class ServeTls(Node):
    """TLS towards KEDA; the files are read again when they change."""

    cert_file: FilePath = Field(description="certificate chain of the server, in PEM")
    key_file: FilePath = Field(description="its private key, in PEM, without a password")
    client_ca_file: FilePath | None = Field(
        default=None,
        description="authorities whose clients may ask, in PEM; any client where absent",
    )


class ServeSettings(Node):
    """How KEDA asks for the published plan over gRPC."""

    host: Text = Field(
        default="127.0.0.1", description="address to listen on; 0.0.0.0 for every one"
    )
    port: Port = Field(default=6000, description="port to listen on; 0 takes a free one")
    tls: ServeTls | None = Field(
        default=None, description="TLS towards KEDA; plain text where absent"
    )
    stale_after_seconds: Seconds = Field(
        default=90.0,
        description="how long a plan that is not renewed is still answered, in seconds",
    )
    with_run: Annotated[bool, Field(strict=True)] = Field(
        default=False, description="whether `phasewise run` answers too, in the same process"
    )


class ConsoleSettings(Node):
    """The console page and its API, served by `phasewise run`."""

    enabled: Annotated[bool, Field(strict=True)] = Field(
        default=True, description="whether `phasewise run` serves the console"
    )
    host: Text = Field(
        default="127.0.0.1",
        description="address to listen on; one beyond this machine needs a tokenFile",
    )
    port: Port = Field(default=9321, description="port to listen on; 0 takes a free one")
    token_file: FilePath | None = Field(
        default=None,
        description="file with the token that pause, pin and floor need; without it they are off",
    )

    @model_validator(mode="after")
    def _check_host(self) -> ConsoleSettings:
        if self.token_file is None and not is_loopback(self.host):
            raise problem(
                "a console that others can reach needs a token",
                where="host",
                found=self.host,
                expected="127.0.0.1, or a tokenFile beside it",
            )
        return self


class OtlpSettings(Node):
    """Our own metrics and a trace of every tick to an OpenTelemetry collector, by OTLP/HTTP."""

    endpoint: Url = Field(description="base address of the receiver, as http://127.0.0.1:4318")
    headers_file: FilePath | None = Field(
        default=None,
        description="file with headers, one `Name: value` a line; none where absent",
    )


class RecordedSettings(Node):
    """Who makes the recorded series `phase:*`, which dashboards and alerts read."""

    supplier: Literal["rules", "phasewise"] = Field(
        default="rules",
        description="rules (Prometheus, by `phasewise render alerts`) or phasewise (on its own "
        "metrics page); never both, or every sum counts twice",
    )


class Settings(Node):
    """The whole of `phasewise.yaml`."""

    tiers: tuple[TierEntry, ...] = Field(
        min_length=1, max_length=256, description="tiers to look after"
    )
    source: Source = Field(description="where samples come from")
    clock: ClockSettings = Field(default=ClockSettings(), description="whose time it is")
    tick_seconds: Seconds = Field(
        default=15.0, description="time between two plans, in seconds; whole scrape intervals"
    )
    ledger: LedgerSettings = Field(
        default_factory=dict,  # not a ready object: its file name is resolved while validating
        validate_default=True,
        description="where observations and plans are kept",
    )
    actuator: ActuatorSettings = Field(
        default=ActuatorSettings(), description="how pools are changed"
    )
    serve: ServeSettings = Field(
        default=ServeSettings(), description="how KEDA asks for the published plan"
    )
    console: ConsoleSettings = Field(
        default=ConsoleSettings(), description="the console page and its API"
    )

    otlp: OtlpSettings | None = Field(
        default=None, description="where our own metrics and traces are sent; nowhere where absent"
    )
    recorded: RecordedSettings = Field(
        default=RecordedSettings(), description="who makes the recorded series"
    )

    @model_validator(mode="after")
    def _check_whole(self) -> Settings:
        intervals = self.tick_seconds / self.source.scrape_interval_seconds
        if intervals < 1 or abs(intervals - round(intervals)) > 1e-9 * intervals:
            raise problem(
                "a tick is whole scrape intervals",
                where="tickSeconds",
                found=f"{self.tick_seconds:g}",
                expected=f"a multiple of {self.source.scrape_interval_seconds:g}",
            )
        for index, tier in enumerate(self.tiers):
            if tier.mode is Mode.ACT and self.actuator.kind == "none":
                raise problem(
                    "nothing to act with",
                    where=f"tiers[{index}].mode",
                    found="act while actuator.kind is none",
                    expected="advise, or an actuator",
                )
        return self


def load_settings(path: Path | str) -> Settings:
    """The settings in the YAML file at `path`; every fault is one `Misconfigured` sentence."""
    return load_document(Path(path), Settings)
