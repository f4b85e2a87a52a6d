"""Turns pydantic's findings into one sentence. Pure: no clock, no network, no log."""

from __future__ import annotations

import difflib
import re
import reprlib
from typing import TYPE_CHECKING, get_args

from serving.errors import Misconfigured
from serving.schema.node import CHECK_ERROR, LONGEST_QUOTE, Node, describe

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

Location = tuple[int | str, ...]

_UNIT_SUFFIX = re.compile(
    r"_?(milliseconds|millis|msecs?|ms|seconds|secs?|s|minutes|mins?|hours|hrs?|days"
    r"|percent|pct|ratio|bytes|[kmg]i?b|tokens)$",
    re.IGNORECASE,
)
_KINDS = {
    "bool_type": "true or false",
    "float_type": "a number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "finite_number": "a finite number",
    "string_type": "text",
    "string_unicode": "text",
    "string_sub_type": "text",
    "string_too_short": "text that is not empty",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "tuple_type": "a list",
    "recursion_loop": "a tree, not a loop",
}
_LIMITS = {
    "greater_than": ("a number above {:.16g}", "gt"),
    "greater_than_equal": ("a number of at least {:.16g}", "ge"),
    "less_than": ("a number below {:.16g}", "lt"),
    "less_than_equal": ("a number of at most {:.16g}", "le"),
    "too_long": ("a list of at most {}", "max_length"),
    "too_short": ("a list of at least {}", "min_length"),
    "string_too_long": ("text of at most {} characters", "max_length"),
}


def most_telling(details: list[ErrorDetails]) -> ErrorDetails:
    """The fault to name first: an unknown key often explains the missing one beside it."""
    return min(details, key=lambda detail: detail["type"] != "extra_forbidden")


def sentence(detail: ErrorDetails, *, model: type[Node], where: str) -> Misconfigured:
    """One finding as the error that a person reads. `where` names the file."""
    location, context = detail["loc"], detail.get("ctx", {})
    what, found, expected = "wrong value", describe(detail["input"]), _expected(detail)
    match detail["type"]:
        case kind if kind == CHECK_ERROR:
            what, found, expected = context["what"], context["found"], context["expected"]
            where = _place(where, location)
            separator = "." if location else ": "
            return Misconfigured(
                what,
                where=f"{where}{separator}{context['where']}" if context["where"] else where,
                found=found,
                expected=expected,
            )
        case "extra_forbidden":
            what, found = "unknown key", _key_text(location[-1])
            expected = _nearest_key(str(location[-1]), _node_at(model, location[:-1]))
        case "missing":
            what = "required key is missing"
            found = "nothing"
            expected = _description(_node_at(model, location[:-1]), str(location[-1]))
        case "invalid_key":
            what, found, location = "a key is not text", describe(location[-1]), location[:-1]
            expected = "keys that are text"
    return Misconfigured(what, where=_place(where, location), found=found, expected=expected)


def _expected(detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in _KINDS:
        return _KINDS[kind]
    if kind in _LIMITS:
        words, key = _LIMITS[kind]
        return words.format(context[key])
    if kind in ("enum", "literal_error"):
        return str(context["expected"]).replace("'", "")
    return detail["msg"][:1].lower() + detail["msg"][1:]


def _place(where: str, location: Location) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{_key_text(part)}"
    return f"{where}: {path.removeprefix('.')}" if path else where


def _key_text(key: int | str) -> str:
    text = str(key)
    return text if text.isprintable() and len(text) <= LONGEST_QUOTE else reprlib.repr(text)


def _node_at(model: type[Node], location: Location) -> type[Node] | None:
    """The model class that stands at a path of the document, by walking the annotations."""
    node: type[Node] | None = model
    for part in location:
        if isinstance(part, str):
            field = fields_by_key(node).get(part)
            node = node_class(field.annotation) if field else None
    return node


def node_class(annotation: object) -> type[Node] | None:
    """The model class inside an annotation such as `tuple[Pool, ...]` or `Budget | None`."""
    if isinstance(annotation, type) and issubclass(annotation, Node):
        return annotation
    return next((found for part in get_args(annotation) if (found := node_class(part))), None)


def fields_by_key(node: type[Node] | None) -> dict[str, FieldInfo]:
    """The fields of a model by their names in the file."""
    if node is None:
        return {}
    return {field.alias or name: field for name, field in node.model_fields.items()}


def _description(node: type[Node] | None, key: str) -> str:
    field = fields_by_key(node).get(key)
    return field.description if field and field.description else key


def _nearest_key(key: str, node: type[Node] | None) -> str:
    """The known key that was probably meant: another unit, or spelled nearly so."""
    known = list(fields_by_key(node))
    stems = {_stem(name): name for name in known}
    near = difflib.get_close_matches(_stem(key[:LONGEST_QUOTE]), stems, n=1, cutoff=0.7)
    return stems[near[0]] if near else f"one of {', '.join(known)}"


def _stem(key: str) -> str:
    shortened = _UNIT_SUFFIX.sub("", key) or key
    return shortened.replace("_", "").replace("-", "").lower()
