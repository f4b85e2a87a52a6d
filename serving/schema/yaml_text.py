"""A document as YAML text, for files that people read and apply. Pure: no I/O, no clock.

Keys keep their order; texts that YAML could take for something else are quoted by PyYAML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    """Lists are indented under their key; texts of several lines are blocks; no anchors."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def yaml_text(*documents: Mapping[str, Any] | Sequence[Any], comment: str = "") -> str:
    """The documents as one YAML file, after a comment of any number of lines."""
    lines = "".join(f"# {line}".rstrip() + "\n" for line in comment.splitlines())
    return lines + "---\n".join(
        yaml.dump(
            document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100, indent=2
        )
        for document in documents
    )
