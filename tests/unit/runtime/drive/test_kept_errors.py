"""Which classes of errors are found by what a store says, and how they are made: nothing that it chooses is
imported or run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest

from everstep.runtime.drive.units.kept_errors import ErrorClasses, apart, revived

RAN: list[str] = []


class Lively(Exception):
    """One whose every part is code."""

    def __new__(cls, *args: Any) -> Lively:
        RAN.append("new")
        return super().__new__(cls, *args)

    def __init__(self, *args: Any) -> None:
        RAN.append("init")
        super().__init__(*args)

    def __setattr__(self, name: str, value: Any) -> None:
        RAN.append("setattr")

    @property
    def level(self) -> int:
        return 7

    @level.setter
    def level(self, value: int) -> None:
        RAN.append("property")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place of modules that are imported by name; what is loaded of it is gone with the test."""
    for name in ("shop", "bank", "vendor", "vendor.errors", "evil", "broken"):  # as other tests call theirs
        monkeypatch.delitem(sys.modules, name, raising=False)
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(folder: Path, **modules: str) -> None:
    for name, text in modules.items():
        file = folder.joinpath(*name.split("__")).with_suffix(".py")
        file.parent.mkdir(exist_ok=True)
        file.write_text(dedent(text))


def function_of(name: str) -> Callable[..., Any]:
    module: ModuleType = __import__(name, fromlist=["work"])
    found: Callable[..., Any] = module.work
    return found


def test_a_module_of_strangers_is_not_imported(folder: Path) -> None:
    other = folder / "libraries"
    other.mkdir()
    sys.path.insert(0, str(other))
    write(folder, shop="def work(): pass")
    write(other, evil="class Boom(Exception): pass\nraise SystemExit")
    own = ErrorClasses([function_of("shop")])
    assert own.find("evil:Boom") is None
    assert own.find("antigravity:Boom") is None
    assert not {"evil", "antigravity"} & set(sys.modules)


@pytest.mark.parametrize(
    "name",
    [
        *("everstep.__main__:Boom", "pytest.__main__:Boom", "os:system", "subprocess:Popen", "builtins:int"),
        *(
            "builtins:KeyboardInterrupt",
            "builtins:BaseException",
            "",
            ":",
            "no such:Boom",
            "..:x",
            "shop:",
            "a",
        ),
    ],
)
def test_what_is_no_exception_of_a_module_is_not_found(name: str) -> None:
    assert ErrorClasses([test_what_is_no_exception_of_a_module_is_not_found]).find(name) is None


def test_modules_beside_a_script_in_its_package_and_imported_by_it_are_imported(folder: Path) -> None:
    other = folder / "libraries"
    other.mkdir()
    sys.path.insert(0, str(other))
    write(
        folder,
        shop="def work():\n    from vendor.errors import Gone",
        bank="class Declined(ValueError): pass",
    )
    write(other, vendor__errors="class Gone(Exception): pass", vendor____init__="")
    own = ErrorClasses([function_of("shop")])
    assert "bank" not in sys.modules and "vendor" not in sys.modules
    for name in ("bank:Declined", "vendor.errors:Gone"):
        found = own.find(name)
        assert found is not None and f"{found.__module__}:{found.__qualname__}" == name
        assert own.route(found) is not None


def test_a_function_of_python_brings_no_other_module_of_python() -> None:
    sys.modules.pop("this", None)
    own = ErrorClasses([__import__("random").random, __import__("json").loads])
    assert not own.may_import("this")
    assert own.find("this:Boom") is None
    assert "this" not in sys.modules


def test_a_module_that_cannot_be_loaded_is_not_found(folder: Path) -> None:
    write(folder, shop="def work(): pass", broken="raise SystemExit(3)")
    assert ErrorClasses([function_of("shop")]).find("broken:Boom") is None


def test_an_error_is_made_again_without_running_its_class() -> None:
    own = ErrorClasses([write])
    RAN.clear()
    error = Lively("a", 2)
    vars(error)["level"] = 3
    kept, shown = apart(error, lambda _, value: value, own)
    assert RAN == ["new", "init"] and type(shown) is Lively and vars(shown) == {"level": 3}
    RAN.clear()
    made = revived(kept, own)
    assert type(made) is Lively and made.args == ("a", 2) and vars(made) == {"level": 3}
    assert RAN == []


def test_a_record_that_asks_for_more_than_an_error_gets_none_of_it() -> None:
    own = ErrorClasses([write])
    made = revived(["builtins:ValueError", ["x"], {"__class__": KeyError, "__traceback__": 1}], own)
    assert type(made) is ValueError and made.__traceback__ is None
    assert revived(["builtins:UnicodeDecodeError", ["x"], {}], own) is None


def forget(*tops: str) -> None:
    """Have some packages unloaded, as they are in a process that has called nothing yet."""
    for name in [name for name in sys.modules if name.partition(".")[0] in tops]:
        del sys.modules[name]


@pytest.mark.parametrize("way", ["ours loads it late", "theirs loads it late"])
def test_a_class_is_found_by_way_of_modules_that_only_a_call_has_loaded(folder: Path, way: str) -> None:
    other = folder / "libraries"
    other.mkdir()
    sys.path.insert(0, str(other))
    late = "bank.late" if way.startswith("ours") else "shelf.late"
    write(
        folder,
        bank____init__="",
        bank__flow=f"import shelf\ndef work():\n    import {late}\n    raise {late}.vendor.Gone('x')",
        bank__late="import vendor",
    )
    write(other, vendor="class Gone(Exception): pass", shelf____init__="", shelf__late="import vendor")
    classes = ErrorClasses([function_of("bank.flow")])
    with pytest.raises(Exception, match="x") as raised:
        function_of("bank.flow")()
    kept, shown = apart(raised.value, lambda _, value: value, classes)
    assert type(shown) is type(raised.value)
    forget("vendor", "shelf", "bank")
    fresh = ErrorClasses([function_of("bank.flow")])
    assert "vendor" not in sys.modules
    assert spelled_of(revived(kept, fresh)) == "vendor:Gone"


def spelled_of(error: Exception | None) -> str:
    return f"{type(error).__module__}:{type(error).__qualname__}"


def test_modules_that_do_not_lead_to_a_class_are_no_way_to_it(folder: Path) -> None:
    other = folder / "libraries"
    other.mkdir()
    sys.path.insert(0, str(other))
    write(folder, shop="def work(): pass", bank="")
    write(other, evil="class Boom(Exception): pass", broken="import evil")
    own = ErrorClasses([function_of("shop")])
    for via in (["bank"], ["broken"], ["bank", "broken"], ["evil"], ["__main__"]):
        assert own.find("evil:Boom", via) is None
    assert not {"evil", "broken"} & set(sys.modules)


class Slotted(Exception):
    __slots__ = ("code",)
    code: int


def slotted() -> None:
    error = Slotted("slot")
    error.code = 429
    raise error


def noted() -> None:
    error = ValueError("n")
    error.add_note("retryable")
    raise error


def caused() -> None:
    try:
        raise TimeoutError("inner")
    except TimeoutError as error:
        raise ConnectionError("outer") from error


def in_passing() -> None:
    try:
        raise KeyError("inner")
    except KeyError:
        raise ConnectionError("outer")  # noqa: B904 - its context is what is tested


def hidden() -> None:
    raise ConnectionError("outer") from None


def caused_by_what_is_not_found() -> None:
    class Local(Exception):
        pass

    raise ConnectionError("outer") from Local("inner")


def lacking() -> None:
    (1).lacks  # type: ignore[attr-defined]  # noqa: B018


FAILING = [slotted, noted, caused, in_passing, hidden, caused_by_what_is_not_found, lacking]


def seen_of(error: BaseException | None) -> Any:
    """Return what a handler can see of an error."""
    if error is None:
        return None
    hides = error.__suppress_context__
    said = (type(error), str(error), error.args, getattr(error, "code", None), getattr(error, "name", None))
    notes = getattr(error, "__notes__", None)
    return (*said, notes, hides, seen_of(error.__cause__), seen_of(error.__context__))


@pytest.mark.parametrize("failing", FAILING)
def test_what_a_handler_sees_of_an_error_is_the_same_now_and_from_the_records(
    failing: Callable[[], None],
) -> None:
    own = ErrorClasses([write])
    with pytest.raises(Exception) as raised:
        failing()
    kept, shown = apart(raised.value, lambda _, value: value, own)
    assert shown is not None and seen_of(shown) == seen_of(revived(kept, own))
    if failing is not caused_by_what_is_not_found:
        assert seen_of(shown) == seen_of(raised.value)
    else:
        assert shown.__cause__ is not None and spelled_of(shown.__cause__) == "everstep.errors:StepFailed"  # type: ignore[arg-type]
