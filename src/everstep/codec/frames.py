"""Arrays of numpy as raw bytes, frames and series of pandas and polars as columns: names, types, raw data.

None of these libraries is a dependency: they are looked up among the loaded modules, and never imported.
What is stored does not depend on whether pyarrow is there. A type of column that is not known is refused by
name.
"""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Callable, Iterator
from datetime import timezone
from typing import Any, Final
from zoneinfo import ZoneInfo

from everstep.codec.tags import Refused, Tag

_CONVERT: Final = "Convert it before you return it, for example with astype(...)."
_NOUNS: Final = {
    Tag.PANDAS_FRAME: "pandas:DataFrame",
    Tag.PANDAS_SERIES: "pandas:Series",
    Tag.POLARS_FRAME: "polars:DataFrame",
    Tag.POLARS_SERIES: "polars:Series",
}
FRAMES: Final = frozenset(_NOUNS)

Apart = Callable[[Any], list[object]]


def frame_way(kind: type) -> tuple[Tag, Apart] | None:
    """Return how a frame or series is taken apart, or None if `kind` is no class of one."""
    pd: Any = sys.modules.get("pandas")
    if pd is not None:
        if kind is getattr(pd, "DataFrame", None):
            return Tag.PANDAS_FRAME, _pandas_frame_apart
        if kind is getattr(pd, "Series", None):
            return Tag.PANDAS_SERIES, _pandas_series_apart
    pl: Any = sys.modules.get("polars")
    if pl is not None:
        if kind is getattr(pl, "DataFrame", None):
            return Tag.POLARS_FRAME, _polars_apart
        if kind is getattr(pl, "Series", None):
            return Tag.POLARS_SERIES, lambda value: _polars_apart(value.to_frame())
        if kind is getattr(pl, "LazyFrame", None):
            raise Refused("a LazyFrame is a query, not its result", "Return frame.collect().")
    return None


def frame_together(tag: Tag, parts: list[Any]) -> object:
    """Return the frame or series that was taken apart."""
    name = _NOUNS[tag].partition(":")[0]
    library: Any = sys.modules.get(name)
    if library is None:
        raise Refused(
            f"it is a frame of {name}, and {name} is not loaded", f"Import {name} before reading it."
        )
    match tag:
        case Tag.PANDAS_FRAME:
            return _pandas_frame(library, *parts)
        case Tag.PANDAS_SERIES:
            return _pandas_series(library, *parts)
        case Tag.POLARS_FRAME:
            return _polars_frame(library, *parts)
    return _polars_frame(library, *parts).to_series()


def frame_told(tag: int, parts: list[Any]) -> tuple[str, dict[str, Any]]:
    """Return what a frame or series is called, and a summary of it: how much it holds, and a digest."""
    noun = _NOUNS[Tag(tag)]
    if tag in (Tag.POLARS_FRAME, Tag.POLARS_SERIES):
        names, _, rows, data = parts
        digest = hashlib.sha256(repr(names).encode() + data).hexdigest()[:12]
        return noun, {"columns": names, "rows": rows, "digest": digest}
    digest = hashlib.sha256(b"".join(_spelled(parts))).hexdigest()[:12]
    return noun, {"columns": len(parts[1]) if tag == Tag.PANDAS_FRAME else 1, "digest": digest}


def _spelled(part: Any) -> Iterator[bytes]:
    """Yield all that makes a part what it is; the repr of a long array leaves its middle out."""
    np: Any = sys.modules.get("numpy")
    if isinstance(part, list):
        yield b"["
        for one in part:
            yield from _spelled(one)
        yield b"]"
    elif np is not None and isinstance(part, np.ndarray):
        yield repr((str(part.dtype), part.shape)).encode()
        yield part.tobytes()
    else:
        yield repr(part).encode("utf-8", "surrogatepass") + b","


def frame_parts(value: Any) -> Iterator[tuple[str, object]]:
    """Yield the columns of a pandas frame or series whose items are stored one by one, with the way there."""
    pd: Any = sys.modules.get("pandas")
    if pd is None or type(value) not in (pd.DataFrame, pd.Series):
        return
    if type(value) is pd.Series:
        columns = [("", value)]
    else:
        columns = [(f"[{name!r:.40}]", value.iloc[:, k]) for k, name in enumerate(value.columns)]
    yield from ((place, list(column)) for place, column in columns if column.dtype == object)
    yield ".attrs", value.attrs


# -- pandas -----------------------------------------------------------------------------------------------


def _pandas_frame_apart(value: Any) -> list[object]:
    columns = [_column_apart(value.iloc[:, k], name) for k, name in enumerate(value.columns)]
    return [_index_apart(value.columns), columns, _index_apart(value.index), _about(value)]


def _pandas_series_apart(value: Any) -> list[object]:
    return [_column_apart(value, value.name), _index_apart(value.index), value.name, _about(value)]


def _about(value: Any) -> dict[Any, Any]:
    if not value.flags.allows_duplicate_labels:
        raise Refused("it allows no duplicate labels, which is not stored", "Leave that flag away.")
    return dict(value.attrs)


def _pandas_frame(pd: Any, columns: Any, parts: list[Any], index: Any, about: dict[Any, Any]) -> object:
    rows = _index(pd, index)
    series = {k: _series(pd, _column(pd, part), rows) for k, part in enumerate(parts)}
    frame = pd.DataFrame(series, index=rows)
    frame.columns = _index(pd, columns)
    frame.attrs = about
    return frame


def _pandas_series(pd: Any, column: Any, index: Any, name: Any, about: dict[Any, Any]) -> object:
    series = _series(pd, _column(pd, column), _index(pd, index), name)
    series.attrs = about
    return series


def _series(pd: Any, array: Any, index: Any, name: Any = None) -> Any:
    return pd.Series(array, index=index, dtype=array.dtype, name=name, copy=False)


def _column_apart(column: Any, name: object) -> list[object]:
    """Return the kind of a series or an index, and its parts."""
    pd, np = sys.modules["pandas"], sys.modules["numpy"]
    dtype, array = column.dtype, column.array
    if isinstance(dtype, np.dtype):
        return ["objects", list(column)] if dtype.hasobject else ["numbers", column.to_numpy()]
    if isinstance(dtype, pd.CategoricalDtype):
        codes = np.asarray(array.codes)
        return ["category", _index_apart(dtype.categories), bool(dtype.ordered), codes]
    if isinstance(dtype, pd.DatetimeTZDtype):
        return ["moments", dtype.unit, _zone_apart(dtype.tz, name), np.asarray(array.asi8)]
    if isinstance(dtype, pd.StringDtype):
        is_nan = getattr(dtype, "na_value", pd.NA) is not pd.NA
        texts = [None if gone else str(text) for text, gone in zip(array, array.isna(), strict=True)]
        return ["text", dtype.storage, is_nan, texts]
    if isinstance(array, pd.arrays.IntegerArray | pd.arrays.FloatingArray | pd.arrays.BooleanArray):
        plain = array.to_numpy(dtype=dtype.numpy_dtype, na_value=dtype.numpy_dtype.type(0))
        return ["masked", plain, np.asarray(array.isna())]
    raise Refused(f"column {name!r:.40} has the type {dtype}, which has no data-only form", _CONVERT)


def _column(pd: Any, parts: list[Any]) -> Any:
    np: Any = sys.modules["numpy"]
    match parts:
        case ["objects", list(items)]:
            array = np.empty(len(items), dtype=object)
            for k, item in enumerate(items):
                array[k] = item
            return array
        case ["numbers", array]:
            return array
        case ["category", index, ordered, codes]:
            dtype = pd.CategoricalDtype(_index(pd, index), ordered=ordered)
            return pd.Categorical.from_codes(codes, dtype=dtype)
        case ["moments", str(unit), zone, ticks]:
            utc = pd.DatetimeIndex(ticks.view(f"M8[{unit}]")).tz_localize("UTC")
            return utc.tz_convert(_zone(zone)).array
        case ["text", storage, is_nan, list(texts)]:
            return pd.array(texts, dtype=_text_type(pd, storage, np.nan if is_nan else pd.NA))
        case ["masked", array, mask]:
            kind = array.dtype.kind
            arrays = pd.arrays
            made = {"b": arrays.BooleanArray, "f": arrays.FloatingArray}.get(kind, arrays.IntegerArray)
            return made(array, mask)
    raise Refused("a column of a frame is damaged")


def _text_type(pd: Any, storage: Any, na_value: Any) -> Any:
    try:
        return pd.StringDtype(storage) if na_value is pd.NA else pd.StringDtype(storage, na_value=na_value)
    except ImportError as missing:
        raise Refused(f"pandas keeps its text in what is not here ({missing})", "Install it.") from missing


def _zone_apart(zone: Any, name: object) -> object:
    if isinstance(zone, timezone | ZoneInfo):
        return zone
    if type(zone).__module__.partition(".")[0] == "pytz" and isinstance(zone.zone, str):
        return ["pytz", zone.zone]
    raise Refused(f"column {name!r:.40} has the time zone {zone!r:.60}", "Use zoneinfo.ZoneInfo.")


def _zone(part: Any) -> Any:
    if not isinstance(part, list):
        return part
    return sys.modules["pytz"].timezone(part[1])


def _index_apart(index: Any) -> list[object]:
    pd = sys.modules["pandas"]
    kind = type(index)
    if kind is pd.RangeIndex:
        return ["range", index.start, index.stop, index.step, index.name]
    if kind is pd.MultiIndex:
        levels = [_index_apart(level.rename(None)) for level in index.levels]
        codes = [sys.modules["numpy"].asarray(codes) for codes in index.codes]
        return ["levels", levels, codes, list(index.names)]
    freq = getattr(index, "freqstr", None) if kind in (pd.DatetimeIndex, pd.TimedeltaIndex) else None
    if freq is not None and pd.tseries.frequencies.to_offset(freq) != index.freq:
        raise Refused(f"an index has the frequency {index.freq!r:.60}", "Drop it: index.freq = None.")
    if freq is None and kind not in (pd.Index, pd.DatetimeIndex, pd.TimedeltaIndex, pd.CategoricalIndex):
        raise Refused(f"an index of type `{kind.__name__}` has no data-only form", "Use reset_index().")
    return ["index", _column_apart(index, index.name), index.name, freq]


def _index(pd: Any, parts: list[Any]) -> Any:
    match parts:
        case ["range", int(start), int(stop), int(step), name]:
            return pd.RangeIndex(start, stop, step, name=name)
        case ["levels", list(levels), list(codes), list(names)]:
            made = [_index(pd, level) for level in levels]
            return pd.MultiIndex(levels=made, codes=codes, names=names, verify_integrity=True)
        case ["index", column, name, freq]:
            array = _column(pd, column)
            index = pd.Index(array, dtype=array.dtype, name=name, copy=False)
            if freq is not None:
                index.freq = pd.tseries.frequencies.to_offset(freq)
            return index
    raise Refused("an index is damaged")


# -- polars -----------------------------------------------------------------------------------------------


def _polars_apart(frame: Any) -> list[object]:
    pl = sys.modules["polars"]
    types = [repr(dtype) for dtype in frame.dtypes]
    for name, told in zip(frame.columns, types, strict=True):
        if "Object" in told:
            raise Refused(f"column {name!r:.40} has the type {told}, which has no data-only form", _CONVERT)
    buffer = io.BytesIO()
    # Views of texts may hold what other rows wrote; the oldest form holds the texts themselves.
    frame.rechunk().write_ipc(buffer, compression="uncompressed", compat_level=pl.CompatLevel.oldest())
    return [frame.columns, types, frame.height, buffer.getvalue()]


def _polars_frame(pl: Any, names: list[Any], types: list[Any], height: int, data: bytes) -> Any:
    frame = pl.read_ipc(io.BytesIO(data))
    if (frame.columns, [repr(dtype) for dtype in frame.dtypes], frame.height) != (names, types, height):
        raise Refused("a column of it would come back as another type", _CONVERT)
    return frame


def array_way(kind: type) -> tuple[Tag, Callable[[Any], list[object]]] | None:
    """Return how a numpy array or scalar is taken apart, or None if `kind` is the class of neither."""
    np: Any = sys.modules.get("numpy")
    if np is None:
        return None
    if kind is np.ndarray:
        return Tag.ARRAY, _array_apart
    return (Tag.ARRAY_SCALAR, _scalar_apart) if issubclass(kind, np.generic) else None


def _array_apart(value: Any) -> list[object]:
    order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
    return [_descr(sys.modules["numpy"], value.dtype), list(value.shape), order, value.tobytes(order)]


def _scalar_apart(value: Any) -> list[object]:
    np: Any = sys.modules["numpy"]
    descr = _descr(np, value.dtype)
    if _dtype(np, descr).type is not type(value):
        raise Refused(f"a numpy scalar of type `{type(value).__name__}` would come back as another type")
    return [descr, value.tobytes()]


def array_together(tag: Tag, parts: list[Any]) -> object:
    """Return the array or scalar that `array_apart` took apart."""
    np: Any = sys.modules.get("numpy")
    if np is None:
        raise Refused("it is a numpy array, and numpy is not loaded", "Import numpy before reading it.")
    if tag is Tag.ARRAY:
        descr, shape, order, data = parts
        if type(shape) is not list:  # a range would be walked to its end
            raise Refused("the shape of a numpy array is damaged")
        return _array(np, _dtype(np, descr), tuple(shape), order, data)
    descr, data = parts
    return _array(np, _dtype(np, descr), (), "C", data)[()]


def _array(np: Any, dtype: Any, shape: tuple[int, ...], order: str, data: bytes) -> Any:
    # A copy owns its memory, but loses the padding between the fields of a structured dtype.
    buffer = bytearray(data) if dtype.names else data
    array = np.ndarray(shape, dtype, buffer=buffer, order=order)
    if array.nbytes != len(data):
        raise Refused("a numpy array does not have the size it should")
    return array if dtype.names else array.copy(order=order)


def _descr(np: Any, dtype: Any) -> object:
    if dtype.hasobject:
        raise Refused(f"a numpy dtype of Python objects ({dtype}) has no data-only form")
    descr = np.lib.format.dtype_to_descr(dtype)
    if _dtype(np, descr) != dtype:
        raise Refused(f"numpy cannot describe the dtype {dtype} in words")
    return descr


def _dtype(np: Any, descr: object) -> Any:
    dtype = np.lib.format.descr_to_dtype(descr)
    if dtype.hasobject:  # their bytes would be taken for pointers
        raise Refused("a numpy dtype of Python objects is never read")
    return dtype
