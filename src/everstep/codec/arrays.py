"""numpy arrays and scalars as a dtype, a shape and raw bytes.

numpy is no dependency: it is looked up among the loaded modules, and never imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from everstep.codec.tags import Refused, Tag


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
