"""The reference pages: of the two file formats from their models, of metrics from the catalogue.

`python -m phasewise.reference docs/reference` writes them, the metrics' page (`metrics.md`) into
the folder above; a test says when they are stale.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from phasewise.metrics_page import metrics_page
from phasewise.settings import Settings
from serving.schema.faults import fields_by_key, node_class
from serving.schema.node import Node
from serving.schema.tier import Tier

PAGES: dict[str, tuple[str, type[Node]]] = {
    "tier.md": ("The tier document", Tier),
    "settings.md": ("The settings file", Settings),
}
_HEADER = "| key | type | default | meaning |\n| --- | --- | --- | --- |"
_WORDS = {bool: "true or false", int: "whole number", float: "number", str: "text", Path: "file"}


def page(title: str, model: type[Node]) -> str:
    """One page in Markdown: a section with a table for the model and for each part of it."""
    sections = [
        f"# {title}",
        "Written by `python -m phasewise.reference docs/reference`; do not edit.\n"
        "A key that is not listed is refused.",
        _section("Top level", model),
    ]
    sections += [_section(f"`{path}`", part) for path, part in _parts(model, "")]
    return "\n\n".join(sections) + "\n"


def _section(heading: str, node: type[Node]) -> str:
    rows = [_row(key, field) for key, field in fields_by_key(node).items()]
    return "\n\n".join([f"## {heading}", " ".join(_docstring(node)), "\n".join([_HEADER, *rows])])


def _docstring(node: type[Node]) -> list[str]:
    return (node.__doc__ or "").split()


def _parts(node: type[Node], prefix: str) -> Iterator[tuple[str, type[Node]]]:
    for key, field in fields_by_key(node).items():
        part = node_class(field.annotation)
        if part is not None:
            path = f"{prefix}{key}{'[]' if _is_list(field) else ''}"
            yield path, part
            yield from _parts(part, f"{path}.")


def _row(key: str, field: FieldInfo) -> str:
    return f"| `{key}` | {_type(field)} | {_default(field)} | {field.description} |"


def _is_list(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is tuple


def _type(field: FieldInfo) -> str:
    if node_class(field.annotation):
        return "list of mappings" if _is_list(field) else "mapping"
    return _words(field.annotation)


def _words(annotation: object) -> str:
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{choice.value}`" for choice in annotation)
    if isinstance(annotation, type) and annotation in _WORDS:
        return _WORDS[annotation]
    return next(_words(part) for part in get_args(annotation) if part is not type(None))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if node_class(field.annotation):
        return "none" if field.default is None else "its defaults"
    return "none" if field.default is None else f"`{_plain(field.default)}`"


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def write_pages(folder: Path) -> None:
    """Write every reference page into the folder, and metrics.md into the one above."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, (title, model) in PAGES.items():
        (folder / file).write_text(page(title, model), encoding="utf-8")
    (folder.parent / "metrics.md").write_text(metrics_page(), encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference"))
