"""Errors of durable calls: taken apart to be kept, and made again to be raised. Apart from the calls, as only
those that fail need it.

What a store says is not trusted. It may name a class among those loaded; a module is imported for one only if
it belongs to the flow's own code or is imported by it, or lies in a package that is loaded. No code of the
class is run.

Which class an error has may not depend on what a process has called before, as that decides which `except`
takes it. So what is raised is made of what is kept, the first time, too; and if a class is found by way of
modules that another process may not have loaded, these are kept with it.
"""

from __future__ import annotations

import dis
import importlib
import importlib.util
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any

from everstep.codec.classes import loaded_classes, script_name, spelled
from everstep.errors import StepFailed, ValueNotStorable
from everstep.model.records import RESULT

_SHARED_FOLDERS = frozenset({"site-packages", "dist-packages"})
"""Folders in which modules lie side by side that have nothing to do with each other."""


class ErrorClasses:
    """Finds classes of errors by name, for functions of one flow."""

    def __init__(self, functions: Iterable[Callable[..., Any]]) -> None:
        self._functions = [_inner(function) for function in functions]
        own = {module for f in self._functions if isinstance(module := _module_of(f), str)}
        alone = [module for module in own if not hasattr(sys.modules.get(module), "__path__")]
        self._folders = frozenset(folder for module in alone if (folder := _folder_beside(module)))
        """Where modules lie that are in no package, as the functions are."""
        self._tops = frozenset(map(_top, own)) | _beside(self._folders, len(sys.modules))
        """The packages and modules that the functions are in, and those beside them."""

    def find(self, name: str, via: Sequence[str] = ()) -> type[Exception] | None:
        """Return the class that is stored as `module:qualname`, its module imported if that may be done.

        `via` are modules that lead to it, each to the next, as `route` has found them.
        """
        module = name.partition(":")[0]
        found = _exception(name)
        if found is not None or not module or module in sys.modules:
            return found
        reached: set[str] = set()
        for step in via:
            if not (_top(step) in reached or self.may_import(step)) or not _is_loaded(step):
                break
            reached |= self._led_to(step)
        if not (_top(module) in reached or self.may_import(module)) or not _is_loaded(module):
            return None
        return _exception(name)

    def _led_to(self, module: str) -> set[str]:
        """Return the packages that a module has something of, or that functions of ours in it import."""
        loaded = sys.modules[module]
        tops = {_top(name) for name in _names_in(loaded)}
        if self._is_own(_top(module)):
            tops |= {top for code in _codes_of(loaded) for top in _imported_by(code)}
        return tops

    def may_import(self, module: str) -> bool:
        """True if a module is one that this program uses, or would if the function were called."""
        parts = module.split(".")
        if "__main__" in parts or module == script_name() or not all(part.isidentifier() for part in parts):
            return False
        return parts[0] in sys.modules or self._is_own(parts[0]) or self._is_imported(parts[0])

    def route(self, kind: type[Exception]) -> tuple[str, ...] | None:
        """Return the modules by way of which another process finds a class, whatever it has called so far.

        None if it does not find it.
        """
        top = _top(kind.__module__)
        if top in ("builtins", "everstep", "__main__", "__mp_main__") or self._is_own(top):
            return ()
        if any(_imports(f.__code__, top) for f in self._functions if isinstance(f, FunctionType)):
            return ()
        return _route(self._tops, top, len(sys.modules))

    def is_own(self, module: str) -> bool:
        """True for modules in the packages that the functions are in, and for those that lie beside them."""
        return self._is_own(_top(module))

    def _is_own(self, top: str) -> bool:
        """True for the packages that the functions are in, and for modules that lie beside them."""
        return top in self._tops or (bool(self._folders) and _place_of(top) in self._folders)

    def _is_imported(self, top: str) -> bool:
        """True if the functions, or others in their packages, import a package when they are called."""
        codes = (function.__code__ for function in self._functions if isinstance(function, FunctionType))
        if any(_imports(code, top) for code in codes):
            return True
        return _some_code_imports(self._tops, top, len(sys.modules))


# How many modules are loaded is a part of the question: with another one the answer may be another.


@lru_cache(maxsize=256)
def _beside(folders: frozenset[Path], _loaded: int) -> frozenset[str]:
    """Return the loaded modules that lie in some folders, and are in no package."""
    if not folders:
        return frozenset()
    return frozenset(name for name in tuple(sys.modules) if _folder_beside(name) in folders)


@lru_cache(maxsize=256)
def _some_code_imports(own: frozenset[str], top: str, _loaded: int) -> bool:
    """True if a function of some packages imports from another when it is called."""
    return any(_imports(code, top) for _, module in _modules_of(own) for code in _codes_of(module))


@lru_cache(maxsize=256)
def _route(own: frozenset[str], top: str, _loaded: int) -> tuple[str, ...] | None:
    """Return modules, each of which has something of the next one's package, from ours to a package.

    None if there are none. Functions of ours may also import the next when they are called.
    """
    routes: dict[str, tuple[str, ...]] = dict.fromkeys(own, ())
    new = set(own)
    while new:
        level: dict[str, tuple[str, ...]] = {}
        for name, module in _modules_of(new):
            before = routes[_top(name)]
            way = before if name == "__main__" else (*before, name)
            used = {_top(name) for name in _names_in(module)}
            if _top(name) in own and (top in used or _some_function_imports(module, top)):
                return way
            for other in used:
                if other in sys.modules and other not in routes:
                    level.setdefault(other, way)
        if top in level:
            return level[top]
        routes |= level
        new = set(level)
    return None


def _some_function_imports(module: ModuleType, top: str) -> bool:
    return any(_imports(code, top) for code in _codes_of(module))


def _is_loaded(module: str) -> bool:
    """True if a module is loaded, now if it was not; false if it is not here, or cannot be loaded."""
    if module in sys.modules:
        return True
    try:
        importlib.import_module(module)
    except (Exception, SystemExit):
        return False
    return True


def _exception(name: str) -> type[Exception] | None:
    return next((found for found in loaded_classes(name) if issubclass(found, Exception)), None)


def _inner(function: Callable[..., Any]) -> Any:
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    return getattr(function, "__func__", function)


def _module_of(function: Any) -> Any:
    return getattr(function, "__module__", None) or type(function).__module__


def _top(module: str) -> str:
    return module.partition(".")[0]


def _modules_of(tops: Collection[str]) -> list[tuple[str, ModuleType]]:
    """Return all loaded modules of some packages, with their names."""
    loaded = tuple(sys.modules.items())
    return [(name, m) for name, m in loaded if _top(name) in tops and isinstance(m, ModuleType)]


def _names_in(module: ModuleType) -> Iterator[str]:
    """Yield the modules that a module has something of."""
    for value in tuple(vars(module).values()):
        if isinstance(value, ModuleType):
            yield value.__name__
        elif isinstance(value, type | FunctionType) and isinstance(value.__module__, str):
            yield value.__module__


def _codes_of(module: ModuleType) -> Iterator[CodeType]:
    """Yield the code of a module's functions and methods."""
    for value in tuple(vars(module).values()):
        members = tuple(vars(value).values()) if isinstance(value, type) else (value,)
        for member in members:
            function = getattr(member, "__func__", member)
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                yield function.__code__


def _imports(code: CodeType, top: str) -> bool:
    """True if some code, or a function inside it, imports from a package."""
    if any(_top(name) == top for name in code.co_names) and top in _imported_by(code):
        return True
    return any(_imports(inside, top) for inside in code.co_consts if isinstance(inside, CodeType))


def _imported_by(code: CodeType) -> Iterator[str]:
    """Yield the packages that some code, or a function inside it, imports from."""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            yield _top(instruction.argval)
    for inside in code.co_consts:
        if isinstance(inside, CodeType):
            yield from _imported_by(inside)


def _folder_beside(module: str) -> Path | None:
    """Return the folder that a loaded module or package lies in, unless strangers lie there, too."""
    if "." in module or module in sys.stdlib_module_names:
        return None
    return _folder_of(getattr(sys.modules.get(module), "__file__", None))


def _folder_of(file: object) -> Path | None:
    if not isinstance(file, str):
        return None
    path = Path(file).absolute()
    folder = path.parents[1 if path.name == "__init__.py" else 0]
    return None if folder.name in _SHARED_FOLDERS else folder


def _place_of(top: str) -> Path | None:
    """Return the folder in which a module or package is, or would be found. Nothing is run for that."""
    if top in sys.modules or top in sys.stdlib_module_names:
        return _folder_beside(top)
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    return None if spec is None else _folder_of(spec.origin)


def apart(
    error: Exception, encode: Callable[[str, Any], object], classes: ErrorClasses
) -> tuple[list[Any], Exception | None]:
    """Return what is kept of an exception so that it can be raised again, and the one that is raised now.

    That is made of what is kept, so it is the same then and now: class, args, attributes, notes, and what it
    came of. None if no such can be made, here or in another process.
    """

    def is_storable(value: object) -> bool:
        try:
            encode(RESULT, value)
        except ValueNotStorable:
            return False
        return True

    kept = _kept(error, is_storable, classes, set())
    if kept is not None and not is_storable(kept):  # its text holds half a character, as odd file names do
        kept = None
    made = None if kept is None else revived(kept, classes)
    return (_NOT_REVIVED, None) if kept is None else (kept, made)


def _kept(
    error: BaseException, is_storable: Callable[[object], bool], classes: ErrorClasses, above: set[int]
) -> list[Any] | None:
    """Return what is kept of an exception; none if no one could make the same of it."""
    via = classes.route(type(error)) if isinstance(error, Exception) else None
    if via is None:
        return None
    assert isinstance(error, Exception)
    _, args, *state = _built_in(type(error)).__reduce__(error)
    attributes = {
        name: value
        for name, value in (state[0] if state else {}).items()
        if not name.startswith("__") and is_storable(value)
    }
    more: dict[str, Any] = {"via": list(via)} if via else {}
    if isinstance(error, ExceptionGroup) and len(above) < _LONGEST_CHAIN:
        inner = above | {id(error)}
        members = [_kept_or_told(one, is_storable, classes, inner) for one in _EXCEPTIONS.__get__(error)]
        args, more["group"] = (_MESSAGE.__get__(error),), members
    if not is_storable(list(args)):
        args = (str(error),)
    kept = [spelled(type(error)), list(args), attributes, more]
    alone = revived(kept, classes)
    if alone is None or type(alone) is not type(error):
        return None
    attributes |= _fields_besides(error, alone, is_storable)
    notes = getattr(error, "__notes__", None)
    if (
        isinstance(notes, list)
        and notes
        and all(isinstance(note, str) and is_storable(note) for note in notes)
    ):
        more["notes"] = list(notes)
    if len(above) < _LONGEST_CHAIN:
        more |= _origins(error, is_storable, classes, above | {id(error)})
    kept = kept if more else kept[:3]
    made = revived(kept, classes)
    return kept if made is not None and _text(made) == _text(error) else None


def _kept_or_told(
    error: BaseException, is_storable: Callable[[object], bool], classes: ErrorClasses, above: set[int]
) -> list[Any]:
    """Return what is kept of an exception, or its text if no one could make the same of it."""
    kept = _kept(error, is_storable, classes, above)
    if kept is not None and is_storable(kept):
        return kept
    text = (_text(error) or "").encode("utf-8", "backslashreplace").decode()
    return ["", [text, type(error).__qualname__], {}]


def _origins(
    error: BaseException, is_storable: Callable[[object], bool], classes: ErrorClasses, above: set[int]
) -> dict[str, Any]:
    """Return what is kept of the exceptions that one came of."""
    found: dict[str, Any] = {}
    for name, origin in (("cause", error.__cause__), ("context", error.__context__)):
        if origin is None or id(origin) in above or (name == "context" and origin is error.__cause__):
            continue
        found[name] = _kept_or_told(origin, is_storable, classes, above)
    if error.__suppress_context__ and error.__cause__ is None:
        found["hides"] = True
    return found


def _fields_besides(
    error: Exception, alone: Exception, is_storable: Callable[[object], bool]
) -> dict[str, Any]:
    """Return slots of an exception, and fields of Python's, that its args do not bring back."""
    found = {}
    for name, field in _fields_of(type(error)).items():
        try:
            value, again = field.__get__(error), _field(field, alone)
        except AttributeError:  # an empty slot
            continue
        if value is not again and not _is_same(value, again) and is_storable(value):
            found[name] = value
    return found


def _is_same(value: object, again: object) -> bool:
    return type(value) is type(again) and type(value) in (str, bytes, int, float, bool) and value == again


def _field(field: Any, of: Exception) -> Any:
    try:
        return field.__get__(of)
    except AttributeError:
        return None


def _fields_of(kind: type[Exception]) -> dict[str, Any]:
    """Return the slots of a class, and the fields of Python's own; to read one runs no code."""
    found: dict[str, Any] = {}
    for base in kind.__mro__:
        if base is BaseException:
            break
        for name, field in vars(base).items():
            if isinstance(field, MemberDescriptorType | GetSetDescriptorType) and not name.startswith("__"):
                found.setdefault(name, field)
    found.pop("obj", None)  # that of an AttributeError: it may be anything, however large
    return found


def revived(kept: Any, classes: ErrorClasses) -> Exception | None:
    """Return the exception that was taken apart; none if it cannot be. No code of its class is run."""
    name, args, attributes, *rest = kept
    more: Mapping[str, Any] = rest[0] if rest else {}
    found = classes.find(name, more.get("via", ()))
    if found is None:
        return None
    if "group" in more:
        args = [*args, [_origin(one, classes) for one in more["group"]]]
    made = _built_in(found)
    try:
        error: Exception = made.__new__(found, *args)
        made.__init__(error, *args)
        for attribute, value in attributes.items():
            if not attribute.startswith("__"):
                _set(error, attribute, value)
    except Exception:  # one whose making needs what was not kept
        return None
    if more:
        _add(error, more, classes)
    return error


def _add(error: Exception, more: Mapping[str, Any], classes: ErrorClasses) -> None:
    """Give an exception its notes, and what it came of."""
    if "notes" in more:
        _DICT_OF.__get__(error)["__notes__"] = list(more["notes"])
    origins = {name: _origin(more[name], classes) for name in ("cause", "context") if name in more}
    fields: Mapping[str, Any] = vars(BaseException)
    fields["__context__"].__set__(error, origins.get("context", origins.get("cause")))
    if "cause" in origins:
        fields["__cause__"].__set__(error, origins["cause"])
    elif more.get("hides"):
        fields["__suppress_context__"].__set__(error, True)


def _origin(kept: Any, classes: ErrorClasses) -> Exception:
    found = revived(kept, classes) if kept[0] else None
    if found is not None:
        return found
    text, kind = (kept[1][0], kept[1][1]) if not kept[0] else ("", kept[0])
    return StepFailed(str(text), type=str(kind))


def _set(error: Exception, name: str, value: Any) -> None:
    """Set an attribute where it was: in a slot or a field of Python's, else beside it, past any property."""
    field = _fields_of(type(error)).get(name)
    if field is not None:
        field.__set__(error, value)
    else:
        _DICT_OF.__get__(error)[name] = value


_DICT_OF: Any = vars(BaseException)["__dict__"]
_MESSAGE: Any = vars(BaseExceptionGroup)["message"]
_EXCEPTIONS: Any = vars(BaseExceptionGroup)["exceptions"]
_NOT_REVIVED: list[Any] = ["", [], {}]
_LONGEST_CHAIN = 8
"""So many exceptions, each of which came of the next, are kept."""
_HEAP_TYPE = 1 << 9


def _built_in(kind: type[Exception]) -> Any:
    """Return the class of an exception that Python brings: that knows what is kept outside of `__dict__`."""
    return next(base for base in kind.__mro__ if not base.__flags__ & _HEAP_TYPE)


def _text(error: BaseException) -> str | None:
    try:
        return str(error)
    except Exception:  # an exception may be anything, even one that cannot be printed
        return None
