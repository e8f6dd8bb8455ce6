"""Hands that reach beneath a store: they change what is kept without asking it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import apsw
import psycopg
import redis

from everstep.stores.postgres.address import read_address as read_postgres
from everstep.stores.redis.address import read_address as read_redis


class Vandal(Protocol):
    """What can be done to a store from beneath. A record is named by its run and its place there."""

    def body(self, run: str, place: int) -> bytes: ...

    def write(self, run: str, place: int, body: bytes) -> None:
        """Replace a record, or the digest that is left of it."""

    def delete(self, run: str, place: int) -> None: ...

    def swap(self, run: str, one: int, other: int) -> None: ...

    def repeat(self, run: str, place: int) -> None:
        """Keep a record a second time, where the next one belongs."""

    def set_row(self, run: str, **fields: Any) -> None:
        """Set `status`, `flow_hash` or `adopted_at`."""

    def set_wait(self, wait_id: str, **fields: Any) -> None:
        """Set `status` or `path` of a wait, or with `run_id` give it to another run."""

    def delete_wait(self, wait_id: str) -> None: ...

    def delete_blueprint(self, flow_hash: str) -> None: ...

    def change_blob(self, change: Callable[[bytes], bytes | None]) -> None:
        """Replace the only artifact, or remove it."""


class InTables:
    """SQL, with what differs between the two databases in the methods of its children."""

    _spot = ""

    def _sql(self, text: str, *given: Any) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def _at(self, run: str, place: int) -> tuple[Any, ...]:
        raise NotImplementedError

    def _move(self, run: str, place: int, to: int) -> None:
        raise NotImplementedError

    def _last(self, run: str) -> int:
        raise NotImplementedError

    def body(self, run: str, place: int) -> bytes:
        [(body,)] = self._sql(f"SELECT body FROM checkpoints WHERE {self._spot}", *self._at(run, place))
        return bytes(body)

    def write(self, run: str, place: int, body: bytes) -> None:
        self._sql(f"UPDATE checkpoints SET body = ? WHERE {self._spot}", body, *self._at(run, place))

    def delete(self, run: str, place: int) -> None:
        self._sql(f"DELETE FROM checkpoints WHERE {self._spot}", *self._at(run, place))

    def swap(self, run: str, one: int, other: int) -> None:
        far = 1_000_000
        self._move(run, one, far)
        self._move(run, other, one)
        self._move(run, far, other)

    def set_row(self, run: str, **fields: Any) -> None:
        for name, value in fields.items():
            self._sql(f"UPDATE runs SET {name} = ? WHERE run_id = ?", value, run)

    def set_wait(self, wait_id: str, **fields: Any) -> None:
        for name, value in fields.items():
            if name == "run_id":
                name, value = "run_key", self._sql("SELECT run_key FROM runs WHERE run_id = ?", value)[0][0]
            self._sql(f"UPDATE waits SET {name} = ? WHERE wait_id = ?", value, wait_id)

    def delete_wait(self, wait_id: str) -> None:
        self._sql("DELETE FROM waits WHERE wait_id = ?", wait_id)

    def delete_blueprint(self, flow_hash: str) -> None:
        self._sql("DELETE FROM blueprints WHERE flow_hash = ?", flow_hash)

    def repeat(self, run: str, place: int) -> None:
        for later in range(self._last(run), place, -1):
            self._move(run, later, later + 1)
        self._copy(run, place, place + 1)

    def _copy(self, run: str, place: int, to: int) -> None:
        raise NotImplementedError


class InSqlite(InTables):
    _spot = "position = ?"

    def __init__(self, path: Path) -> None:
        self._path = path

    def _sql(self, text: str, *given: Any) -> list[tuple[Any, ...]]:
        db = apsw.Connection(str(self._path))
        try:
            return list(db.execute(text, given))
        finally:
            db.close()

    def _at(self, run: str, place: int) -> tuple[Any, ...]:
        [(key,)] = self._sql("SELECT run_key FROM runs WHERE run_id = ?", run)
        return ((key << 32) + place,)

    def _move(self, run: str, place: int, to: int) -> None:
        there = self._at(run, to)
        self._sql("UPDATE checkpoints SET position = ? WHERE position = ?", *there, *self._at(run, place))

    def _last(self, run: str) -> int:
        first, last = self._at(run, 0), self._at(run, 1_000_000)
        found = self._sql(
            "SELECT max(position) FROM checkpoints WHERE position BETWEEN ? AND ?", *first, *last
        )
        return int(found[0][0] - first[0])

    def _copy(self, run: str, place: int, to: int) -> None:
        names = "checkpoint_id, keyframe, body"
        text = f"INSERT INTO checkpoints SELECT ?, {names} FROM checkpoints WHERE position = ?"
        self._sql(text, *self._at(run, to), *self._at(run, place))

    def change_blob(self, change: Callable[[bytes], bytes | None]) -> None:
        folder = self._path.with_name(self._path.name + ".artifacts")
        [file] = [path for path in folder.rglob("*") if path.is_file()]
        new = change(file.read_bytes())
        if new is None:
            file.unlink()
        else:
            file.write_bytes(new)


class InPostgres(InTables):
    _spot = "run_key = ? AND sequence = ?"

    def __init__(self, url: str) -> None:
        self._address = read_postgres(url)

    def _sql(self, text: str, *given: Any) -> list[tuple[Any, ...]]:
        options = f"-c search_path={self._address.schema}"
        with psycopg.connect(self._address.url, autocommit=True, options=options) as connection:
            cursor = connection.execute(text.replace("?", "%s").encode(), given)
            return cursor.fetchall() if cursor.description is not None else []

    def _at(self, run: str, place: int) -> tuple[Any, ...]:
        [(key,)] = self._sql("SELECT run_key FROM runs WHERE run_id = ?", run)
        return key, place

    def _move(self, run: str, place: int, to: int) -> None:
        self._sql(f"UPDATE checkpoints SET sequence = ? WHERE {self._spot}", to, *self._at(run, place))

    def _last(self, run: str) -> int:
        [(last,)] = self._sql("SELECT max(sequence) FROM checkpoints WHERE run_key = ?", self._at(run, 0)[0])
        return int(last)

    def _copy(self, run: str, place: int, to: int) -> None:
        names = "keyframe, checkpoint_id, body"
        text = f"INSERT INTO checkpoints SELECT run_key, ?, {names} FROM checkpoints WHERE {self._spot}"
        self._sql(text, to, *self._at(run, place))

    def change_blob(self, change: Callable[[bytes], bytes | None]) -> None:
        [(old,)] = self._sql("SELECT content FROM artifacts")
        new = change(bytes(old))
        if new is None:
            self._sql("DELETE FROM artifacts")
        else:
            self._sql("UPDATE artifacts SET content = ?", new)


_FIELDS = {"status": "status", "flow_hash": "hash", "adopted_at": "adopted"}


class InRedis:
    def __init__(self, url: str) -> None:
        self._address = read_redis(url)
        self._client = redis.Redis(host=self._address.host, port=self._address.port, db=self._address.db)

    def _key(self, *parts: str) -> str:
        return self._address.keys + ":".join(parts)

    def _spot(self, run: str, place: int) -> int:
        forked: Any = self._client.hget(self._key("run", run), "forked")
        return place - 1 - int(forked or 0)

    def _item(self, run: str, place: int) -> bytes:
        found: Any = self._client.lindex(self._key("chain", run), self._spot(run, place))
        return bytes(found)

    def _parts(self, run: str, place: int) -> tuple[bytes, bytes]:
        item = self._item(run, place)
        ends = 3 + (item[1] << 8) + item[2]
        return item[:ends], item[ends:]

    def body(self, run: str, place: int) -> bytes:
        return self._parts(run, place)[1]

    def write(self, run: str, place: int, body: bytes) -> None:
        self._client.lset(self._key("chain", run), self._spot(run, place), self._parts(run, place)[0] + body)  # type: ignore[arg-type]

    def delete(self, run: str, place: int) -> None:
        self._client.lset(self._key("chain", run), self._spot(run, place), "gone")
        self._client.lrem(self._key("chain", run), 1, "gone")

    def swap(self, run: str, one: int, other: int) -> None:
        a, b = self._item(run, one), self._item(run, other)
        self._client.lset(self._key("chain", run), self._spot(run, one), b)  # type: ignore[arg-type]
        self._client.lset(self._key("chain", run), self._spot(run, other), a)  # type: ignore[arg-type]

    def repeat(self, run: str, place: int) -> None:
        item = self._item(run, place)
        self._client.linsert(self._key("chain", run), "AFTER", item, item)  # type: ignore[arg-type]
        self._client.hincrby(self._key("run", run), "head", 1)

    def set_row(self, run: str, **fields: Any) -> None:
        for name, value in fields.items():
            self._client.hset(self._key("run", run), _FIELDS[name], value)

    def set_wait(self, wait_id: str, **fields: Any) -> None:
        for name, value in fields.items():
            if name == "run_id":
                was: Any = self._client.hget(self._key("wait", wait_id), "run")
                number: Any = self._client.hget(self._key("wait", wait_id), "n")
                for index in ("waits:run", "waits:unclosed"):
                    self._client.zrem(self._key(index, was.decode()), wait_id)
                    self._client.zadd(self._key(index, value), {wait_id: int(number)})
                name = "run"
            self._client.hset(self._key("wait", wait_id), name, value)

    def delete_wait(self, wait_id: str) -> None:
        run: Any = self._client.hget(self._key("wait", wait_id), "run")
        self._client.delete(self._key("wait", wait_id))
        for index in ("waits", "waits:open", f"waits:run:{run.decode()}", f"waits:unclosed:{run.decode()}"):
            self._client.zrem(self._key(index), wait_id)

    def delete_blueprint(self, flow_hash: str) -> None:
        self._client.hdel(self._key("structures"), flow_hash)

    def change_blob(self, change: Callable[[bytes], bytes | None]) -> None:
        [key] = self._client.scan_iter(f"{self._address.keys}blob:*".replace("{", "\\{"))
        found: Any = self._client.get(key)
        new = change(bytes(found))
        if new is None:
            self._client.delete(key)
        else:
            self._client.set(key, new)
