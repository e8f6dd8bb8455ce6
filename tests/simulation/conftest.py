"""What every simulated world begins with."""

from __future__ import annotations

import pytest

from everstep import Context


@pytest.fixture(autouse=True)
def unmarked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have loaded what marks which node runs: then no step is plain."""
    monkeypatch.setattr(Context, "marks", None)
