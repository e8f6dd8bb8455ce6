"""Instances of user classes as a class name and fields: enums, named tuples, dataclasses, Structs, models.

A class is found by name among the loaded modules. Nothing is imported, and no user code such as `__init__`
or `__post_init__` runs: the instance existed once, so whatever they check or do has been checked and done.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Final, Generic

import msgspec

from everstep.codec.frames import FRAMES, frame_told
from everstep.codec.tags import Refused, Tag
from everstep.model.items import OMITTED

_TOP_LEVEL: Final = "Define it at the top level of a module, under its own name."
_SCRIPT_MODULES: Final = frozenset({"__main__", "__mp_main__"})
_STRUCT: Final[Any] = msgspec.Struct
_CONSTANT_FACTORIES: Final = frozenset({list, dict, set, tuple, frozenset, str, bytes, int, float, bool})


class ClassKind(msgspec.Struct, frozen=True):
    """How the instances of one kind of class are taken apart, and put together without their own code."""

    tag: Tag
    noun: str
    covers: Callable[[type], bool]
    apart: Callable[[Any], object]
    together: Callable[[Any, Any], object]


class Stored:
    """What is stored of an instance whose class is not at hand: the class by name, and the fields.

    Only for looking at: two of them are never equal, and none can be stored.
    """

    __slots__ = ("fields", "type_name")

    def __init__(self, type_name: str, fields: dict[str, Any]) -> None:
        self.type_name = type_name
        """As it is stored: `module:qualname`, or the name of a registered serializer."""
        self.fields = fields

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.fields.items())
        return f"{self.type_name.rpartition(':')[2]}({fields})"


class StoredMember(Stored):
    """The member of an enum that is not at hand."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{self.type_name.rpartition(':')[2]}.{self.fields['text']}"


class StoredArray(Stored):
    """A numpy array or a frame without its data: what kind it is, its shape, a digest of what it holds."""

    __slots__ = ()


def as_stored(code: int, parts: list[Any]) -> Stored:
    """Return what was stored of an instance, without its class; of an array only a summary."""
    if code in (Tag.ARRAY, Tag.ARRAY_SCALAR):
        shape = parts[1] if code == Tag.ARRAY else []
        digest = hashlib.sha256(repr(parts[2:-1]).encode() + parts[-1]).hexdigest()[:12]
        return StoredArray("numpy:ndarray", {"dtype": parts[0], "shape": shape, "digest": digest})
    if code in FRAMES:
        return StoredArray(*frame_told(code, parts))
    name, apart = parts
    if code == Tag.ENUM and isinstance(apart, str):
        return StoredMember(name, {"text": apart})
    if code == Tag.SECRET:
        return Stored(name, {"secret": "**********"})
    if code == Tag.MODEL:
        fields, _, extra, private = apart
        return Stored(name, {**fields, **(extra or {}), **(private or {})})
    return Stored(name, apart if isinstance(apart, dict) else {"value": apart})


def spelled(cls: type) -> str:
    """Return the `module:qualname` under which a class is stored."""
    module = script_name() if cls.__module__ in _SCRIPT_MODULES else cls.__module__
    return f"{module}:{cls.__qualname__}"


def script_name() -> str:
    """Return the module name that a script's classes are stored under: `__main__` differs by process."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name not in _SCRIPT_MODULES:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    return _stem(file) if file else "__main__"


@lru_cache(maxsize=8)
def _stem(file: str) -> str:
    return Path(file).stem


def storable_name(cls: type, kind: ClassKind) -> str:
    """Return the name of a class, having made sure that the name leads back to this very class."""
    if "<locals>" in cls.__qualname__:
        raise Refused(f"its class `{cls.__qualname__}` is local to a function", _TOP_LEVEL)
    name = spelled(cls)
    if next((found for found in loaded_classes(name) if kind.covers(found)), None) is not cls:
        raise Refused(f"its class is not the one that is found as `{name}`", _TOP_LEVEL)
    return name


def loaded_classes(name: str) -> Iterator[type]:
    """Yield the loaded classes of that `module:qualname`, the most likely first."""
    module, _, qualname = name.partition(":")
    yield from _classes(sys.modules.get(module), qualname)
    if module == script_name():
        yield from _classes(sys.modules.get("__main__"), qualname)


def _classes(module: object, qualname: str) -> Iterator[type]:
    found = _member(module, qualname) if isinstance(module, ModuleType) else None
    if isinstance(found, type):
        yield found


def _member(module: ModuleType, qualname: str) -> object:
    # Plain dict lookups: a module's __getattr__ could import, a class's could do anything.
    members: Mapping[str, object] = object.__getattribute__(module, "__dict__")
    if qualname in members:  # pydantic publishes Box[a.B] under its whole name
        return members[qualname]
    found: object = None
    for part in qualname.split("."):
        found = members.get(part)
        if not isinstance(found, type):
            return None
        members = type.__getattribute__(found, "__dict__")
    return found


def _filled(
    cls: type, stored: dict[str, Any], names: tuple[str, ...], default: Callable[[Any, str], Any]
) -> dict[str, Any]:
    """Return every field of the class: as stored, or its default if the field is newer than the value."""
    gone = sorted(stored.keys() - set(names))
    if gone:
        raise Refused(
            f"`{spelled(cls)}` no longer has the field `{gone[0]}`", "Give the class that field again."
        )
    return {name: stored[name] if name in stored else default(cls, name) for name in names}


def _constant(name: str, default: object, factory: Any, none: object) -> object:
    # Each reader decodes for itself, so a default that differs from call to call would give each its own.
    if default is not none:
        return default
    if factory in _CONSTANT_FACTORIES:
        return factory()
    raise Refused(f"its field `{name}` was not stored", "Give the field a constant default.")


def _refuse_extras(value: object, extras: set[str]) -> None:
    for name in sorted(extras):
        if not isinstance(inspect.getattr_static(type(value), name, None), cached_property):
            raise Refused(
                f"a `{type(value).__qualname__}` has the attribute `{name}`, which is not one of its fields",
                "Make it a field, or do not set it.",
            )


def _field(value: object, name: str) -> object:
    try:
        return getattr(value, name)
    except AttributeError:
        raise Refused(f"the field `{name}` of a `{type(value).__qualname__}` was never set") from None


def _enum_apart(value: enum.Enum) -> object:
    name = value._name_
    return name if type(value).__members__.get(name) is value else value._value_


def _enum_together(cls: type[enum.Enum], parts: object) -> object:
    if isinstance(parts, str) and parts in cls.__members__:
        return cls.__members__[parts]
    if isinstance(parts, int) and issubclass(cls, enum.Flag):
        return cls(parts)
    raise Refused(f"`{spelled(cls)}` has no member {parts!r:.40}", "Give the enum that member again.")


def _is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def _named_tuple_apart(value: Any) -> dict[str, object]:
    _refuse_extras(value, set(getattr(value, "__dict__", ())))
    return dict(zip(type(value)._fields, tuple.__iter__(value), strict=True))


def _named_tuple_together(cls: Any, parts: dict[str, Any]) -> object:
    return tuple.__new__(cls, _filled(cls, parts, cls._fields, _named_tuple_default).values())


def _named_tuple_default(cls: Any, name: str) -> object:
    return _constant(name, cls._field_defaults.get(name, dataclasses.MISSING), None, dataclasses.MISSING)


def _dataclass_apart(value: Any) -> dict[str, object]:
    fields = dataclasses.fields(value)
    names = {field.name for field in fields}
    state = object.__getstate__(value)  # attributes, and set slots, of every base
    held = set[str]().union(*(part for part in (state if isinstance(state, tuple) else (state,)) if part))
    # typing leaves __orig_class__ on what Box[int](...) returns; it takes no part in equality.
    _refuse_extras(value, held - {*names, "__orig_class__"})
    parts = {field.name: _field(value, field.name) for field in fields}
    for field in fields:
        if field.metadata and OMITTED in field.metadata and parts[field.name] is field.default:
            del parts[field.name]
    return parts


def _dataclass_together(cls: Any, parts: dict[str, Any]) -> object:
    value = object.__new__(cls)  # refuses a class with a built-in base, whose contents would be lost
    for name, part in _filled(cls, parts, _dataclass_names(cls), _dataclass_default).items():
        object.__setattr__(value, name, part)
    return value


def _dataclass_names(cls: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls))


def _dataclass_default(cls: Any, name: str) -> object:
    field = cls.__dataclass_fields__[name]
    return _constant(name, field.default, field.default_factory, dataclasses.MISSING)


class _Silent(msgspec.Struct):
    """A first base that keeps a Struct's own hooks from running."""

    def __init_subclass__(cls, **options: object) -> None:
        """Do nothing, so that the user's own does nothing."""

    def __post_init__(self) -> None:
        """Do nothing, so that the user's own does nothing."""


def _struct_apart(value: Any) -> dict[str, object]:
    _refuse_extras(value, set(getattr(value, "__dict__", ())))
    return {name: _field(value, name) for name in type(value).__struct_fields__}


def _struct_together(cls: Any, parts: dict[str, Any]) -> object:
    fields = _filled(cls, parts, cls.__struct_fields__, _struct_default)
    if not hasattr(cls, "__post_init__"):
        return cls(**fields)
    value = _STRUCT.__copy__(_blank_struct(cls))
    for name, part in fields.items():
        msgspec.structs.force_setattr(value, name, part)
    return value


@lru_cache(maxsize=256)
def _blank_struct(cls: Any) -> Any:
    # msgspec has no way round __post_init__, so a subclass that has another makes the instance.
    silent: Any = type(_STRUCT)(cls.__name__, (_Silent, cls), {})
    value = silent(**dict.fromkeys(cls.__struct_fields__))
    object.__dict__["__class__"].__set__(value, cls)
    return value


def _struct_default(cls: Any, name: str) -> object:
    field = next(field for field in msgspec.structs.fields(cls) if field.name == name)
    return _constant(name, field.default, field.default_factory, msgspec.NODEFAULT)


def _is_model(cls: type) -> bool:
    base = getattr(sys.modules.get("pydantic.main"), "BaseModel", None)
    return isinstance(base, type) and issubclass(cls, base) and hasattr(base, "__pydantic_fields_set__")


def _model_apart(value: Any) -> list[object]:
    names = tuple(type(value).model_fields)
    _refuse_extras(value, vars(value).keys() - {*names, "__pydantic_extra__", "__pydantic_private__"})
    fields = {name: _field(value, name) for name in names}
    return [fields, value.__pydantic_fields_set__, value.__pydantic_extra__, value.__pydantic_private__]


def _model_together(cls: Any, parts: list[Any]) -> object:
    fields, fields_set, extra, private = parts
    value = object.__new__(cls)
    object.__setattr__(value, "__dict__", _filled(cls, fields, tuple(cls.model_fields), _model_default))
    object.__setattr__(value, "__pydantic_fields_set__", fields_set)
    object.__setattr__(value, "__pydantic_extra__", extra)
    object.__setattr__(value, "__pydantic_private__", private)
    return value


def _model_default(cls: Any, name: str) -> object:
    field = cls.model_fields[name]
    has_default = not field.is_required() and field.default_factory is None
    default = field.get_default() if has_default else dataclasses.MISSING
    return _constant(name, default, field.default_factory, dataclasses.MISSING)


_SUBCLASSED: Final = (str, list)
_HEAP_TYPE: Final = 1 << 9
_STATELESS: Final = frozenset({object, *_SUBCLASSED, *Generic.__mro__})


def _is_subclass(cls: type) -> bool:
    """True for a class that Python code derives from str or list alone: C code may keep anything."""
    if cls in _SUBCLASSED or not issubclass(cls, _SUBCLASSED):
        return False
    return all(base in _STATELESS or base.__flags__ & _HEAP_TYPE for base in cls.__mro__)


def _subclass_apart(value: Any) -> list[object]:
    state: Any = object.__getstate__(value)
    if isinstance(state, tuple):
        raise Refused(f"a `{type(value).__qualname__}` keeps something in slots", "Do without __slots__.")
    held = dict(state or {})
    held.pop("__orig_class__", None)  # as of a dataclass
    return [str.__str__(value) if isinstance(value, str) else list(list.__iter__(value)), held]


def _subclass_together(cls: Any, parts: list[Any]) -> object:
    content, state = parts
    base = str if issubclass(cls, str) else list
    if type(content) is not base or type(state) is not dict:
        raise Refused(f"what is stored of a `{spelled(cls)}` is damaged, or it has another base now")
    value = str.__new__(cls, content) if base is str else list.__new__(cls)
    if base is list:
        list.extend(value, content)
    for name, part in state.items():
        object.__setattr__(value, name, part)
    return value


def _is_attrs(cls: type) -> bool:
    return isinstance(cls.__dict__.get("__attrs_attrs__"), tuple)


def _attrs_apart(value: Any) -> dict[str, object]:
    names = _attrs_names(type(value))
    _refuse_extras(value, set(getattr(value, "__dict__", ())) - {*names, "__orig_class__"})
    return {name: _field(value, name) for name in names}


def _attrs_together(cls: Any, parts: dict[str, Any]) -> object:
    value = object.__new__(cls)
    for name, part in _filled(cls, parts, _attrs_names(cls), _attrs_default).items():
        object.__setattr__(value, name, part)
    return value


def _attrs_names(cls: Any) -> tuple[str, ...]:
    return tuple(attribute.name for attribute in cls.__attrs_attrs__)


def _attrs_default(cls: Any, name: str) -> object:
    default = next(attribute.default for attribute in cls.__attrs_attrs__ if attribute.name == name)
    nothing = getattr(sys.modules.get("attr"), "NOTHING", None)
    factory = getattr(default, "factory", None) if type(default).__name__ == "Factory" else None
    return _constant(name, nothing if factory is not None else default, factory, nothing)


def _derives(cls: type, module: str, *names: str) -> bool:
    bases = (getattr(sys.modules.get(module), name, None) for name in names)
    return any(isinstance(base, type) and issubclass(cls, base) for base in bases)


def _is_url(cls: type) -> bool:
    return _derives(cls, "pydantic.networks", "_BaseUrl", "_BaseMultiHostUrl")


def _url_apart(value: Any) -> str:
    _refuse_extras(value, vars(value).keys() - {"_url"})
    return str(value._url)


def _url_together(cls: Any, text: str) -> object:
    if type(text) is not str:
        raise Refused("the text of a URL is damaged")
    core = sys.modules["pydantic_core"]  # which pydantic, that has the class, has loaded
    make = core.Url if _derives(cls, "pydantic.networks", "_BaseUrl") else core.MultiHostUrl
    value = object.__new__(cls)
    object.__setattr__(value, "_url", make(text))
    return value


def _is_secret(cls: type) -> bool:
    return _derives(cls, "pydantic.types", "_SecretBase")


def _secret_apart(value: Any) -> list[object]:
    _refuse_extras(value, vars(value).keys() - {"_secret_value"})
    return [value._secret_value]


def _secret_together(cls: Any, parts: list[Any]) -> object:
    [secret] = parts
    value = object.__new__(cls)
    object.__setattr__(value, "_secret_value", secret)
    return value


KINDS: Final = (
    ClassKind(Tag.ENUM, "enum", lambda cls: issubclass(cls, enum.Enum), _enum_apart, _enum_together),
    ClassKind(Tag.NAMEDTUPLE, "named tuple", _is_named_tuple, _named_tuple_apart, _named_tuple_together),
    ClassKind(
        Tag.STRUCT, "Struct", lambda cls: issubclass(cls, msgspec.Struct), _struct_apart, _struct_together
    ),
    ClassKind(Tag.MODEL, "pydantic model", _is_model, _model_apart, _model_together),
    ClassKind(Tag.DATACLASS, "dataclass", dataclasses.is_dataclass, _dataclass_apart, _dataclass_together),
    ClassKind(Tag.ATTRS, "class of attrs", _is_attrs, _attrs_apart, _attrs_together),
    ClassKind(Tag.URL, "URL of pydantic", _is_url, _url_apart, _url_together),
    ClassKind(Tag.SECRET, "secret of pydantic", _is_secret, _secret_apart, _secret_together),
    ClassKind(Tag.SUBCLASS, "subclass of str or list", _is_subclass, _subclass_apart, _subclass_together),
)
KIND_OF_TAG: Final[Mapping[int, ClassKind]] = MappingProxyType({kind.tag: kind for kind in KINDS})
SEEN_APART: Final = frozenset({*KIND_OF_TAG, *FRAMES, Tag.REGISTERED, Tag.ARRAY, Tag.ARRAY_SCALAR})
"""Tags of values that can be looked at without what they are made of."""
