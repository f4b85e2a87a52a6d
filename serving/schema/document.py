"""A YAML file or a parsed document as a pydantic model; whatever is wrong becomes one sentence.

Every failure of the file, of YAML or of the model is a `Misconfigured` that says where (file and
path within it), what was found and what was expected. Knows nothing of tiers or settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from serving.schema.faults import most_telling, sentence
from serving.schema.node import Node
from serving.schema.strict_yaml import read_mapping

Model = TypeVar("Model", bound=Node)


def load_document(path: Path, model: type[Model]) -> Model:
    """The document at `path` as a `model`, or `Misconfigured`.

    Relative file names in the document start at its own folder.
    """
    return as_model(read_mapping(path), model, where=str(path), folder=path.parent)


def as_model(
    document: Mapping[str, object], model: type[Model], *, where: str, folder: Path | None = None
) -> Model:
    """The parsed document as a `model`, or `Misconfigured` about its most telling fault.

    `folder`, where given, is what relative file names in the document start at.
    """
    try:
        return model.model_validate(
            document, by_alias=True, by_name=False, context={"folder": folder}
        )
    except ValidationError as error:
        fault = most_telling(error.errors(include_url=False))
        raise sentence(fault, model=model, where=where) from error
