"""Errors of durable calls: taken apart to be kept, and made again to be raised. Apart from the calls, as only
those that fail need it.

What a store says is not trusted. It may name a class among those loaded; a module is imported for one only if
it belongs to the flow's own code or is imported by it, or lies in a package that is loaded. No code of the
class is run.
"""

from __future__ import annotations

import dis
import importlib
import importlib.util
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from everstep.codec.classes import loaded_classes, script_name, spelled
from everstep.errors import ValueNotStorable
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

    def find(self, name: str) -> type[Exception] | None:
        """Return the class that is stored as `module:qualname`, its module imported if that may be done."""
        module = name.partition(":")[0]
        found = _exception(name)
        if found is not None or not module or module in sys.modules or not self.may_import(module):
            return found
        try:
            importlib.import_module(module)
        except (Exception, SystemExit):  # it is not installed here, or cannot be loaded: then it is not found
            return None
        return _exception(name)

    def may_import(self, module: str) -> bool:
        """True if a module is one that this program uses, or would if the function were called."""
        parts = module.split(".")
        if "__main__" in parts or module == script_name() or not all(part.isidentifier() for part in parts):
            return False
        return parts[0] in sys.modules or self._is_own(parts[0]) or self._is_imported(parts[0])

    def would_find(self, kind: type[Exception]) -> bool:
        """True if another process that has loaded the flow finds a class, whatever it has called so far."""
        top = _top(kind.__module__)
        if top in ("builtins", "everstep", "__main__", "__mp_main__"):
            return True
        return (
            self._is_own(top) or _is_loaded_with(self._tops, top, len(sys.modules)) or self._is_imported(top)
        )

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
    return any(_imports(code, top) for module in _modules_of(own) for code in _codes_of(module))


@lru_cache(maxsize=256)
def _is_loaded_with(own: frozenset[str], top: str, _loaded: int) -> bool:
    """True if a package is loaded because some others are, which have something of it in their modules."""
    found: set[str] = set()
    new = set(own)
    while new and top not in new:
        found |= new
        used = {_top(name) for module in _modules_of(new) for name in _names_in(module)}
        new = {name for name in used if name in sys.modules} - found
    return top in new


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


def _modules_of(tops: Collection[str]) -> list[ModuleType]:
    """Return all loaded modules of some packages."""
    return [m for name, m in tuple(sys.modules.items()) if _top(name) in tops and isinstance(m, ModuleType)]


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
    if any(_top(name) == top for name in code.co_names):
        for instruction in dis.get_instructions(code):
            if instruction.opname == "IMPORT_NAME" and _top(instruction.argval) == top:
                return True
    return any(_imports(inside, top) for inside in code.co_consts if isinstance(inside, CodeType))


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
    """Return what is kept of an exception so that the same can be raised again: its class, args, attributes.

    And what is raised now, which is the same: itself, or if it holds what cannot be stored, one like it
    without that. None if no such can be made of what is kept, here or in another process.
    """
    if not classes.would_find(type(error)):
        return _NOT_REVIVED, None

    def is_storable(value: object) -> bool:
        try:
            encode(RESULT, value)
        except ValueNotStorable:
            return False
        return True

    _, args, *state = _built_in(type(error)).__reduce__(error)
    attributes = {
        name: value
        for name, value in (state[0] if state else {}).items()
        if not name.startswith("__") and is_storable(value)
    }
    lost = [name for name in vars(error) if not name.startswith("__") and name not in attributes]
    if not is_storable(list(args)):
        lost.append("args")
        args = (str(error),)
    kept = [spelled(type(error)), list(args), attributes]
    made = revived(kept, classes)
    if made is None or type(made) is not type(error) or _text(made) != _text(error):
        return _NOT_REVIVED, None
    return kept, made if lost else error


def revived(kept: Any, classes: ErrorClasses) -> Exception | None:
    """Return the exception that was taken apart; none if it cannot be. No code of its class is run."""
    name, args, attributes = kept
    found = classes.find(name)
    if found is None:
        return None
    made = _built_in(found)
    try:
        error: Exception = made.__new__(found, *args)
        made.__init__(error, *args)
        for attribute, value in attributes.items():
            if not attribute.startswith("__"):
                _set(made, error, attribute, value)
    except Exception:  # one whose making needs what was not kept
        return None
    return error


def _set(made: Any, error: Exception, name: str, value: Any) -> None:
    """Set an attribute where it was: in a field of the built-in class, else beside it, past any property."""
    field: Any = next((vars(base)[name] for base in made.__mro__ if name in vars(base)), None)
    if hasattr(field, "__set__"):
        field.__set__(error, value)
    else:
        _DICT_OF.__get__(error)[name] = value


_DICT_OF: Any = vars(BaseException)["__dict__"]
_NOT_REVIVED: list[Any] = ["", [], {}]
_HEAP_TYPE = 1 << 9


def _built_in(kind: type[Exception]) -> Any:
    """Return the class of an exception that Python brings: that knows what is kept outside of `__dict__`."""
    return next(base for base in kind.__mro__ if not base.__flags__ & _HEAP_TYPE)


def _text(error: Exception) -> str | None:
    try:
        return str(error)
    except Exception:  # an exception may be anything, even one that cannot be printed
        return None
