"""What marks a stored value that is not plain, how one is refused, and what stands for one that is lost."""

from __future__ import annotations

import enum
from typing import Final

from everstep.errors import EverstepError

WHAT_TO_DO: Final = (
    'Return plain data, register a serializer with host.values.register(...), or mark the node persist="no".'
)


class Tag(enum.IntEnum):
    """What an Ext payload holds. The numbers are stored for good: add new ones, never reuse one."""

    MAP = 1
    TUPLE = 2
    SET = 3
    FROZENSET = 4
    BYTEARRAY = 5
    COMPLEX = 6
    BIG_INT = 7
    DATETIME = 8
    DATE = 9
    TIME = 10
    TIMEDELTA = 11
    TIMEZONE = 12
    ZONEINFO = 13
    UUID = 14
    TEXT = 15
    FRACTION = 16
    RANGE = 17
    SINGLETON = 18
    ORDERED_MAP = 19
    DEQUE = 20
    COUNTER = 21
    DEFAULT_MAP = 22
    ENUM = 30
    NAMEDTUPLE = 31
    DATACLASS = 32
    STRUCT = 33
    MODEL = 34
    SUBCLASS = 35
    ATTRS = 36
    URL = 37
    SECRET = 38
    ARRAY = 40
    ARRAY_SCALAR = 41
    PANDAS_FRAME = 42
    PANDAS_SERIES = 43
    POLARS_FRAME = 44
    POLARS_SERIES = 45
    REGISTERED = 50
    PICKLED = 60


class Refused(Exception):
    """Why one value cannot be stored or read; `Values` adds which value it was."""

    def __init__(self, reason: str, fix: str = WHAT_TO_DO) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


class Unreadable:
    """Stands where a value would, were it not for what happened when it was read."""

    def __init__(self, why: BaseException | str) -> None:
        text = why.message if isinstance(why, EverstepError) else str(why)
        self.why = " ".join(text.split()) or type(why).__name__

    def __repr__(self) -> str:
        return f"<unreadable: {self.why}>"
