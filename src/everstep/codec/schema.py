"""The shape that an answer must have: as JSON Schema, as complaints about a value, as a Python object."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from everstep.codec.complaints import Json, complaints
from everstep.codec.refine import refine
from everstep.errors import AnswerInvalid

__all__ = ["complaints", "schema_of", "shaped"]

_NO_SCHEMA: Final[tuple[Any, ...]] = (None, Any, object)


def schema_of(kind: Any) -> dict[str, Json] | None:
    """Return the JSON Schema of a type; none if it takes anything, or nobody can tell what it takes.

    A schema stands for itself.
    """
    if isinstance(kind, dict):
        return kind or None
    if any(kind is one for one in _NO_SCHEMA):
        return None
    models = _Models()
    try:
        schema = msgspec.json.schema(kind, schema_hook=models.schema)
        refine(kind, schema)
        if models.parts:
            schema["$defs"] = {**schema.get("$defs", {}), **models.parts}
        # Through JSON and back, so that it is the same now and once it was stored.
        kept: dict[str, Json] = msgspec.json.decode(msgspec.json.encode(schema))
    except (TypeError, RuntimeError):  # how msgspec and pydantic say that they do not know a type
        return None
    return kept or None


def shaped(value: Json, kind: Any) -> Any:
    """Return a JSON value as an instance of a type, or raise `AnswerInvalid`.

    A type without a schema takes every value as it is; a schema in place of a type gives values as they are.
    """
    if isinstance(kind, dict) or (not _is_model(kind) and schema_of(kind) is None):
        return value
    try:
        return msgspec.convert(value, kind, str_keys=True, dec_hook=_model_from)
    except (ValueError, TypeError) as error:  # a msgspec.ValidationError is a ValueError
        raise AnswerInvalid(
            f"the answer is no {_name(kind)}: {error}.",
            fix="Answer again, in the shape that the wait asks for.",
        ) from None


class _Models:
    """Collects the parts of models that define their own schema, each under a name of its own."""

    def __init__(self) -> None:
        self.parts: dict[str, Json] = {}

    def schema(self, cls: type) -> dict[str, Json]:
        """Return the schema of a pydantic model; its parts go to `parts`."""
        if not _is_model(cls):
            raise NotImplementedError
        prefix = f"{cls.__module__}.{cls.__qualname__}".replace("/", ".").replace("~", ".")
        make: Callable[..., dict[str, Json]] = getattr(cls, "model_json_schema")  # noqa: B009
        schema = make(ref_template=f"#/$defs/{prefix}:{{model}}")
        parts = schema.pop("$defs", None) or {}
        self.parts |= {f"{prefix}:{name}": part for name, part in parts.items()}
        return schema


def _is_model(cls: object) -> bool:
    return all(callable(getattr(cls, name, None)) for name in ("model_json_schema", "model_validate"))


def _model_from(cls: type, value: object) -> object:
    if not _is_model(cls):
        raise NotImplementedError
    validate: Callable[[object], object] = getattr(cls, "model_validate")  # noqa: B009
    try:
        return validate(value)
    except ValueError as error:
        raise ValueError(_in_short(error)) from None


def _in_short(error: ValueError) -> str:
    """Say what a model found, without the input and the links that it would show."""
    details = getattr(error, "errors", None)
    if not callable(details):
        return str(error)
    found: Iterable[dict[str, Any]] = details()
    return "; ".join(
        f"{'.'.join(map(str, one.get('loc', ())))}: {one.get('msg')}".lstrip(": ") for one in found
    )


def _name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)
