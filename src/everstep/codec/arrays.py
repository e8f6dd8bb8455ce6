"""numpy arrays and scalars as a dtype, a shape and raw bytes.

numpy is no dependency: it is looked up among the loaded modules, and never imported.
"""

from __future__ import annotations

import sys
from typing import Any

from everstep.codec.tags import Refused, Tag


def array_apart(value: Any) -> tuple[Tag, object] | None:
    """Return the tag and the parts of a numpy array or scalar, or None if `value` is neither."""
    np: Any = sys.modules.get("numpy")
    if np is None:
        return None
    if type(value) is np.ndarray:
        order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
        descr = _descr(np, value.dtype)
        return Tag.ARRAY, [descr, list(value.shape), order, value.tobytes(order)]
    if isinstance(value, np.generic):
        descr = _descr(np, value.dtype)
        if _dtype(np, descr).type is not type(value):
            raise Refused(f"a numpy scalar of type `{type(value).__name__}` would come back as another type")
        return Tag.ARRAY_SCALAR, [descr, value.tobytes()]
    return None


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
