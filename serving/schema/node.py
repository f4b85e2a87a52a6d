"""What every part of a document is, and how its own checks speak. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

LONGEST_QUOTE = 60
CHECK_ERROR = "phasewise"


class Node(BaseModel):
    """A part of a document: frozen, camelCase in the file, and no key that it does not know.

    In Python its fields are given by their own snake_case names.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        allow_inf_nan=False,
    )


def problem(what: str, *, where: str = "", found: str, expected: str) -> PydanticCustomError:
    """What a model's own check raises. `where` continues the path of the model that checks."""
    context = {"what": what, "where": where, "found": found, "expected": expected}
    return PydanticCustomError(CHECK_ERROR, "{what}: found {found}, expected {expected}", context)


def describe(value: object) -> str:
    """A found value in a few words: text is quoted and cut, containers are only named."""
    match value:
        case None:
            return "nothing"
        case bool():
            return f"the boolean {str(value).lower()}"
        case int() if value.bit_length() > 64:
            return "a whole number of more than 64 bits"
        case int() | float():
            return repr(value)
        case str() if len(value) > LONGEST_QUOTE:
            return f"a text of {len(value)} characters"
        case str():
            return repr(value)
        case Mapping():
            return "a mapping"
        case list() | tuple():
            return "a list" if value else "an empty list"
        case _:
            return f"a {type(value).__name__}"
