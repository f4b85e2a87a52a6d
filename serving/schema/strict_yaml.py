"""Reads a YAML file into a mapping, or says in one sentence why it cannot.

Bounded in size. Keys given twice and merge keys are refused. Knows nothing of any schema.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NoReturn

import yaml

from serving.errors import Misconfigured
from serving.schema.node import describe

MAX_DOCUMENT_BYTES = 256 * 1024
_LONGEST_REASON = 120


def read_mapping(path: Path) -> dict[str, object]:
    """The YAML mapping in the file at `path`, or `Misconfigured`."""
    text = _read_text(path)
    where = str(path)
    try:
        document = yaml.load(text, Loader=_StrictLoader)
    except yaml.MarkedYAMLError as error:
        _refuse_yaml(error, where)
    except (
        yaml.YAMLError,
        RecursionError,  # thousands of brackets
        ValueError,  # a month 13, a number of ten thousand digits
        LookupError,  # the safe loader itself, over `!!bool maybe`
        AttributeError,  # and over `!!timestamp soon`
        TypeError,
    ) as error:
        raise Misconfigured(
            "not YAML", where=where, found=_first_line(error), expected="valid YAML"
        ) from error
    if not isinstance(document, dict):
        what = "empty document" if document is None else "not a mapping"
        raise Misconfigured(
            what, where=where, found=describe(document), expected="a mapping of keys to values"
        )
    return document


def _read_text(path: Path) -> str:
    where = str(path)
    try:
        if path.exists() and not path.is_file():
            raise Misconfigured(
                "not a file", where=where, found="a folder or device", expected="a YAML file"
            )
        with path.open("rb") as file:
            data = file.read(MAX_DOCUMENT_BYTES + 1)
    except FileNotFoundError as error:
        raise Misconfigured(
            "no such file", where=where, found="nothing", expected="a YAML file"
        ) from error
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise Misconfigured(
            "cannot be read", where=where, found=_first_line(error), expected="a readable file"
        ) from error
    if len(data) > MAX_DOCUMENT_BYTES:
        raise Misconfigured(
            "too large",
            where=where,
            found=f"more than {MAX_DOCUMENT_BYTES} bytes",
            expected=f"at most {MAX_DOCUMENT_BYTES}",
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Misconfigured(
            "not text", where=where, found=f"byte {error.start} is not UTF-8", expected="UTF-8 text"
        ) from error


class _StrictLoader(yaml.SafeLoader):
    """YAML without silent surprises: a key given twice is an error, `5e-2` is a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                _refuse_key("merge keys (<<) are not read here", key)
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    _refuse_key(f"key {key.value[:60]!r} is given twice", key)
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


_StrictLoader.add_implicit_resolver(  # YAML 1.1 wants a dot and a signed exponent, people do not
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def _refuse_key(why: str, key: yaml.Node) -> NoReturn:
    raise yaml.constructor.ConstructorError(None, None, why, key.start_mark)


def _refuse_yaml(error: yaml.MarkedYAMLError, where: str) -> NoReturn:
    mark = error.problem_mark or error.context_mark
    place = f"{where}: line {mark.line + 1}, column {mark.column + 1}" if mark else where
    found = error.problem or error.context or "an error"
    raise Misconfigured("not YAML", where=place, found=found, expected="valid YAML") from error


def _first_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, RecursionError):
        return "brackets nested too deep"
    lines = str(error).strip().splitlines()
    return lines[0][:_LONGEST_REASON] if lines else type(error).__name__
