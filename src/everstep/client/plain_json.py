"""Any value as JSON, for the faces of a host."""

from __future__ import annotations

from everstep.codec.plain_json import DEEPEST as DEEPEST
from everstep.codec.plain_json import Wire as Wire
from everstep.codec.plain_json import jsonable as jsonable
from everstep.codec.plain_json import safe_repr as safe_repr
from everstep.codec.wire import schema_name as schema_name
from everstep.codec.wire import schemas as schemas
from everstep.codec.wire import wire as wire
