"""What is counted while some work is done: calls, allocations, statements, syncs and round trips.

A meter is made before the store is opened, and counts between `start` and `stop`. None of them depends on how
fast the machine is.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import struct
import sys
from collections import Counter
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FrameType
from typing import Any, Protocol

import apsw

import everstep

PACKAGE = str(Path(everstep.__file__).parent) + "/"


class Meter(Protocol):
    """Something that counts what happens by what it is."""

    def start(self) -> None: ...

    def stop(self) -> Counter[str]:
        """Return what was counted since the start."""
        ...


class Calls:
    """Calls of functions, of Python and of C, on this thread. A coroutine that goes on is called again."""

    def __init__(self) -> None:
        self._python: Counter[CodeType] = Counter()
        self._c: Counter[str] = Counter()

    def start(self) -> None:
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            self._python[frame.f_code] += 1
        elif event == "c_call":
            self._c[_name_of(arg)] += 1

    def stop(self) -> Counter[str]:
        sys.setprofile(None)
        found = Counter(self._c)
        for code, many in self._python.items():
            found[f"{_short(code.co_filename)}:{code.co_qualname}"] += many
        return found


def _name_of(function: BuiltinFunctionType) -> str:
    owner = getattr(function, "__self__", None)
    module = function.__module__ or type(owner).__module__
    return f"{module}.{function.__qualname__}"


def _short(file: str) -> str:
    """Return a file by what is the same on every machine."""
    if file.startswith(PACKAGE):
        return file.removeprefix(PACKAGE)
    return "/".join(Path(file).parts[-2:])


class _Allocator(ctypes.Structure):
    """CPython's PyMemAllocatorEx."""

    _fields_ = (
        ("ctx", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


class Allocations:
    """Blocks of memory that the interpreter asks for, those it gives back again too.

    Python tells only how many there are at a time. So each of its two allocators gets a few instructions
    before it that count and go on to it.
    """

    IS_KNOWN = sys.implementation.name == "cpython" and platform.machine() == "x86_64"
    """Whether the instructions are those of this machine."""
    _DOMAINS = (1, 2)
    _COUNT_AND_JUMP = struct.Struct("<2sQ4s2sQ3s")
    """mov r11, counter; lock inc [r11]; mov r11, target; jmp r11"""
    _ROOM = 32

    def __init__(self) -> None:
        self._count = ctypes.c_uint64(0)
        everything = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        self._code = mmap.mmap(-1, mmap.PAGESIZE, prot=everything)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._code))
        self._real = {domain: self._allocator(domain) for domain in self._DOMAINS}
        self._counting = {domain: self._before(domain, real) for domain, real in self._real.items()}

    @staticmethod
    def _allocator(domain: int) -> _Allocator:
        found = _Allocator()
        ctypes.pythonapi.PyMem_GetAllocator(domain, ctypes.byref(found))
        return found

    def _before(self, domain: int, real: _Allocator) -> _Allocator:
        made = _Allocator(real.ctx, real.malloc, real.calloc, real.realloc, real.free)
        for k, name in enumerate(("malloc", "calloc")):
            place = (2 * domain + k) * self._ROOM
            counter = ctypes.addressof(self._count)
            self._COUNT_AND_JUMP.pack_into(
                self._code,
                place,
                b"\x49\xbb",
                counter,
                b"\xf0\x49\xff\x03",
                b"\x49\xbb",
                getattr(real, name),
                b"\x41\xff\xe3",
            )
            setattr(made, name, self._address + place)
        return made

    def start(self) -> None:
        self._count.value = 0
        self._use(self._counting)

    def stop(self) -> Counter[str]:
        self._use(self._real)
        return Counter(blocks=self._count.value)

    def _use(self, allocators: dict[int, _Allocator]) -> None:
        for domain, allocator in allocators.items():
            ctypes.pythonapi.PyMem_SetAllocator(domain, ctypes.byref(allocator))


class Statements:
    """SQL statements on every SQLite connection that is opened from now on."""

    def __init__(self) -> None:
        self._counts: Counter[str] | None = None
        apsw.connection_hooks.append(self._watch)

    def _watch(self, connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_STMT, self._note)

    def _note(self, told: dict[str, Any]) -> None:
        # A comment is how SQLite tells of a trigger, whose statements are part of the one that fired it.
        if self._counts is not None and not told["sql"].startswith("--"):
            self._counts[" ".join(told["sql"].split())] += 1

    def start(self) -> None:
        self._counts = Counter()

    def stop(self) -> Counter[str]:
        found, self._counts = self._counts or Counter(), None
        return found


class Syncs:
    """Syncs of files: those of SQLite by the kind of file, and our own."""

    def __init__(self) -> None:
        self._counts: Counter[str] | None = None
        self._files = _CountedFiles(self)
        for name in ("fsync", "fdatasync"):
            setattr(os, name, self._counted(name, getattr(os, name)))

    def _counted(self, name: str, real: Any) -> Any:
        def sync(file: Any) -> None:
            self.note(name)
            real(file)

        return sync

    def note(self, kind: str) -> None:
        if self._counts is not None:
            self._counts[kind] += 1

    def start(self) -> None:
        self._counts = Counter()

    def stop(self) -> Counter[str]:
        found, self._counts = self._counts or Counter(), None
        return found


class _CountedFiles(apsw.VFS):
    """The usual files of SQLite, in the place of the usual ones."""

    def __init__(self, syncs: Syncs) -> None:
        self._syncs = syncs
        super().__init__("counted", "unix", makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> _CountedFile:  # noqa: N802  SQLite's name
        return _CountedFile(self._syncs, name, flags)


class _CountedFile(apsw.VFSFile):
    def __init__(self, syncs: Syncs, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._syncs = syncs
        self._kind = "log" if flags[0] & apsw.SQLITE_OPEN_WAL else "database"
        super().__init__("unix", name, flags)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._syncs.note(self._kind)
        super().xSync(flags)
