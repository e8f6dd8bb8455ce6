"""The JSON of a struct, and its schema, follow from its fields."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import UNSET, UnsetType

from everstep.client.guards import BudgetInfo
from everstep.codec.plain_json import jsonable
from everstep.codec.wire import schemas, wire
from everstep.model.removal import Removal
from everstep.model.shapes import HIDDEN, VALUE, Count, Instant, OrNull, Value, called, shown
from everstep.runtime.retention.erase import Erased

AT = datetime(2030, 1, 2, tzinfo=UTC)


class Colour(StrEnum):
    RED = "red"


class PartInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A part."""

    before: Value
    after: Value = None


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    path: str = msgspec.field(name="node")
    at: Instant | None = AT
    cost: Decimal = Decimal("1E+2")
    colour: Colour = Colour.RED
    where: Path = Path("a/b")
    said: OrNull = ""
    sealed: Annotated[bytes, HIDDEN] = b"x"
    values: dict[str, Value] = {}
    notes: Annotated[dict[str, Any] | None, VALUE] = None
    odd: Any = None
    parts: Annotated[tuple[PartInfo, ...], called(before="good")] = ()
    inner: PartInfo | UnsetType = UNSET

    @shown
    def size(self) -> Count:
        return len(self.parts)


class Taken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is sent to us."""

    name: str
    times: Annotated[int, msgspec.Meta(ge=1)] = 1


def test_every_field_is_shown_as_its_type_says() -> None:
    whole = Whole(
        path="a",
        values={"$type": {1: 2}},
        notes={"at": AT},
        odd=object,
        parts=(PartInfo(before={"$type": "x"}),),
    )
    found = wire(whole)
    assert found.pop("odd")["$type"] == "builtins.type"
    assert found == {
        "node": "a",
        "at": "2030-01-02T00:00:00+00:00",
        "cost": "100",
        "colour": "red",
        "where": "a/b",
        "said": None,
        "values": {"$type": {"$type": "dict", "items": [[1, 2]]}},
        "notes": {"at": {"$type": "datetime", "text": "2030-01-02T00:00:00+00:00"}},
        "parts": [{"good": {"$type": "dict", "items": [["$type", "x"]]}, "after": None}],
        "size": 1,
    }
    assert jsonable({"found": found}) == {"found": found}, "what has its form is not converted again"
    assert wire(None) is None


def test_what_is_sent_has_every_key_and_what_is_taken_may_leave_some_out() -> None:
    found = schemas([Whole, Taken])
    assert sorted(found) == ["Part", "Taken", "Whole"]
    whole = found["Whole"]
    assert set(whole["properties"]) - set(whole["required"]) == {"inner"}
    assert "sealed" not in whole["properties"]
    assert whole["properties"]["inner"] == {"$ref": "#/components/schemas/Part"}
    assert whole["properties"]["colour"] == {"enum": ["red"]}
    assert whole["properties"]["size"] == {"type": "integer", "minimum": 0}
    assert whole["properties"]["said"] == {"type": ["string", "null"]}
    assert whole["additionalProperties"] is found["Taken"]["additionalProperties"] is False
    assert found["Taken"]["required"] == ["name"]


def test_the_ways_of_0_1_still_work_and_say_how_to_move() -> None:
    budget = BudgetInfo(spent=Decimal(1), limit=Decimal(3), raised=Decimal(0))
    with pytest.warns(DeprecationWarning, match="as_json"):
        assert budget.to_json() == {"spent": "1", "limit": "3", "raised": "0", "left": "2"}
    with pytest.warns(DeprecationWarning, match="by name"):
        spent, limit, _ = budget
    assert (spent, limit) == (1, 3)
    with pytest.warns(DeprecationWarning, match="as_json"):
        assert Erased(run_id="a", checkpoints=2).to_wire()["checkpoints"] == 2
    with pytest.warns(DeprecationWarning, match="as_json"):
        assert Removal(at=AT, what="run").to_wire()["what"] == "run"
