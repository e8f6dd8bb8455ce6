"""Modules that were renamed since 0.1 can be imported under their old names, with a warning."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from everstep.testing.conformance import kit, leases


@pytest.mark.parametrize(
    ("old", "name", "new"), [("leases", "Fencing", leases.Fencing), ("client", "Client", kit.Client)]
)
def test_a_part_of_the_suite_is_found_under_its_old_name(old: str, name: str, new: type) -> None:
    module = f"everstep.testing.conformance_{old}"
    sys.modules.pop(module, None)
    with pytest.warns(DeprecationWarning, match=f"{module} is {new.__module__} now"):
        assert getattr(import_module(module), name) is new


def test_a_part_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'everstep.testing.conformance_nothing'"):
        import_module("everstep.testing.conformance_nothing")
