"""A bucket of S3 as the object store uses it: on a real server, cut off from it, and on one that lies."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import obstore
import pytest

from everstep.errors import BadRequest, EverstepError, StoreError, StoreNotWritable, StoreUnavailable
from everstep.runtime.system import SystemClock
from everstep.stores.objects.cloud import clock as cloud_clock
from everstep.stores.objects.cloud.address import read_address
from everstep.stores.objects.cloud.bucket import Cloud
from everstep.testing import ManualClock
from tests.servers.lying_bucket import lying
from tests.servers.parts import within
from tests.servers.proxy import Nth, Proxy, once, proxy_before
from tests.servers.running import free_port
from tests.servers.seaweed import KEY, OWNER, READER, SECRET, STRANGER, client, key_in_the_environment

HOUR = timedelta(hours=1)


def opened(url: str, *, create: bool = True) -> Cloud:
    return Cloud(read_address(url), SystemClock(), create=create)


@pytest.fixture
def bucket(s3_url: str) -> Cloud:
    return opened(s3_url)


@pytest.fixture
def cut_off(s3_url: str) -> Iterator[tuple[Proxy, Cloud]]:
    """A bucket behind a wire that can be cut."""
    with proxy_before_endpoint(s3_url) as (proxy, url):
        yield proxy, opened(url)


@contextmanager
def proxy_before_endpoint(url: str) -> Iterator[tuple[Proxy, str]]:
    endpoint = read_address(url).endpoint or ""
    with proxy_before(endpoint) as (proxy, through):
        yield proxy, url.replace(endpoint, through)


def refusal(call: Callable[[], object]) -> EverstepError:
    """Return the error of a call; no word of it, nor of what caused it, tells a secret."""
    with pytest.raises(EverstepError) as caught:
        call()
    told: BaseException | None = caught.value
    while told is not None:
        for secret in (SECRET, "Signature=", "Credential=", "wr0ng-secret"):
            assert secret not in str(told) + repr(told)
        told = told.__cause__ or (None if told.__suppress_context__ else told.__context__)
    assert caught.value.fix
    return caught.value


def test_a_name_is_for_one_caller_only(bucket: Cloud) -> None:
    assert bucket.create("a/1", b"mine")
    assert not bucket.create("a/1", b"theirs")
    found = bucket.get("a/1")
    assert found is not None and found.data == b"mine"
    assert bucket.get("a/2") is None


def test_bytes_are_swapped_only_by_a_client_that_saw_them_last(bucket: Cloud) -> None:
    bucket.put("a", b"1")
    first = bucket.get("a")
    assert first is not None
    assert bucket.swap("a", b"2", first.tag)
    assert not bucket.swap("a", b"3", first.tag)
    assert not bucket.swap("never-there", b"3", first.tag)
    bucket.delete(["a", "never-there"])
    assert not bucket.swap("a", b"4", first.tag)
    assert bucket.get("a") is None


NESTED = ["o/a-b", "o/a.c", "o/a/x", "o/a/y/z", "o/a0", "o/b", "o/b-", "o/b=", "o/b~", "oo/a"]


@pytest.mark.parametrize("prefix", ["", "o", "o/", "o/a", "o/a/", "o/b", "o/b~", "o/c", "oo/", "p"])
def test_names_are_those_behind_a_prefix_and_a_name_in_the_order_of_their_bytes(
    bucket: Cloud, prefix: str
) -> None:
    bucket.mark(NESTED)
    wanted = sorted(name for name in NESTED if name.startswith(prefix))
    assert bucket.names(prefix) == wanted
    assert sorted(item.name for item in bucket.listed(prefix)) == wanted
    for after in [*NESTED, "a", "o/a", "o/a-", "o/a/", "o/b~~", "q"]:
        behind = [name for name in wanted if name > after]
        assert bucket.names(prefix, after=after) == behind, after
        assert bucket.names(prefix, after=after, limit=2) == behind[:2], after


def test_what_is_new_in_a_long_log_costs_one_request(s3_url: str) -> None:
    bucket = opened(s3_url)
    bucket.mark([f"log/{place:010d}" for place in range(1, 1203)])
    before = bucket.requests
    with proxy_before_endpoint(s3_url) as (proxy, url):
        other = opened(url, create=False)
        counted = Nth(b" HTTP/1.1", 0)
        proxy.cuts_request = counted
        assert other.names("log/", after="log/0000001200") == ["log/0000001201", "log/0000001202"]
        assert counted.seen == other.requests == 1
        assert len(other.names("log/")) == 1202
        assert counted.seen == other.requests == 3
        assert other.names("log/", limit=1) == ["log/0000000001"]
        assert counted.seen == other.requests == 4
    bucket.delete(bucket.names("log/"))
    assert bucket.names("log/") == []
    assert bucket.requests - before == 2 + 2 + 1


def test_sizes_and_times_are_listed(bucket: Cloud) -> None:
    bucket.put("a", b"12345")
    [item] = bucket.listed("")
    assert (item.name, item.size) == ("a", 5)
    assert abs(item.modified_at - datetime.now(UTC)) < timedelta(seconds=60)


def test_an_object_larger_than_a_part_comes_back_whole(bucket: Cloud) -> None:
    large = os.urandom(1 << 20) * 12
    assert bucket.create("large", large)
    bucket.put("larger", large + large)
    assert [len(found.data) for name in ("large", "larger") if (found := bucket.get(name))] == [
        len(large),
        2 * len(large),
    ]


@pytest.mark.parametrize("lost", ["reply", "request"])
def test_a_conditional_write_is_sent_once_so_a_lost_reply_is_never_told_as_taken(
    cut_off: tuple[Proxy, Cloud], lost: str
) -> None:
    proxy, bucket = cut_off
    bucket.put("b", b"old")
    old = bucket.get("b")
    assert old is not None
    for name, write in {
        "a": lambda: bucket.create("a", b"mine"),
        "b": lambda: bucket.swap("b", b"mine", old.tag),
    }.items():
        pick = once(f"/{name} HTTP/1.1".encode())
        if lost == "reply":
            proxy.cuts_reply = pick
        else:
            proxy.cuts_request = pick
        error = refusal(write)
        assert isinstance(error, StoreUnavailable) and "out of reach" in error.message
        found = bucket.get(name)
        assert (found is not None and found.data == b"mine") is (lost == "reply")
    assert proxy.cut == 2


def test_what_may_be_done_twice_is_tried_again(cut_off: tuple[Proxy, Cloud]) -> None:
    proxy, bucket = cut_off
    for work in (
        lambda: bucket.put("a", b"1"),
        lambda: bucket.get("a"),
        lambda: bucket.names("a"),
        lambda: bucket.delete(["a"]),
    ):
        proxy.cuts_reply = once(b" HTTP/1.1")
        work()
    assert proxy.cut == 4


def test_a_server_that_is_not_there_is_out_of_reach() -> None:
    with key_in_the_environment():
        for endpoint in (f"http://127.0.0.1:{free_port()}", "https://no-such-host.invalid"):
            error = refusal(lambda at=endpoint: opened(f"s3://test?endpoint={at}&region=us-east-1"))  # type: ignore[misc]
            assert isinstance(error, StoreUnavailable)


def test_a_server_that_never_answers_is_waited_for_only_so_long() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute, key_in_the_environment():
        at = f"http://127.0.0.1:{mute.getsockname()[1]}"
        error = refusal(lambda: opened(f"s3://test?endpoint={at}&region=us-east-1&timeout=0.1"))
    assert isinstance(error, StoreUnavailable)
    assert "did not answer within 0.1 s" in error.message


@pytest.mark.parametrize(
    ("key", "secret", "says"),
    [
        (KEY, "wr0ng-secret", "the secret does not belong to this key"),
        ("unknown", SECRET, "does not know this key"),
        (STRANGER, SECRET, "this key may not do that"),
        (READER, SECRET, "this key may not do that"),
    ],
)
@pytest.mark.usefixtures("s3_keys")
def test_a_key_that_may_not_write_is_refused_when_it_is_used(
    s3_server: str, key: str, secret: str, says: str
) -> None:
    with key_in_the_environment(key, secret):
        error = refusal(lambda: opened(within(s3_server, "refused")))
    assert says in error.message
    assert not isinstance(error, StoreUnavailable)


@pytest.mark.usefixtures("s3_keys")
def test_a_key_that_may_only_read_can_look(s3_url: str) -> None:
    opened(s3_url).put("a", b"1")
    with key_in_the_environment(READER):
        reader = opened(s3_url, create=False)
        found = reader.get("a")
        assert found is not None and found.data == b"1"
        assert reader.names("") == ["a"]
        for write in (
            lambda: reader.create("b", b""),
            lambda: reader.put("a", b""),
            lambda: reader.delete(["a"]),
            lambda: reader.delete(["a", "b"]),
        ):
            assert "this key may not do that" in refusal(write).message
    assert opened(s3_url).names("") == ["a"]


@pytest.mark.usefixtures("s3_keys")
def test_a_bucket_that_is_not_there_is_named(s3_server: str) -> None:
    nowhere = s3_server.replace("s3://test", "s3://not-there")
    with key_in_the_environment(OWNER):
        looking = opened(nowhere, create=False)
        for read in (lambda: looking.get("a"), lambda: looking.names("a")):
            assert "there is no bucket 'not-there'" in refusal(read).message
    with key_in_the_environment():
        assert "may not" in refusal(lambda: opened(nowhere)).message


def test_without_a_key_it_says_where_to_put_one(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    error = refusal(lambda: opened(f"{s3_server}&timeout=1"))
    assert "no key" in error.message and "AWS_ACCESS_KEY_ID" in error.fix


@pytest.mark.usefixtures("s3_keys")
def test_the_key_of_a_profile_is_used(s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "credentials"
    file.write_text(f"[ours]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "unknown")
    assert opened(f"{s3_url}&profile=ours").create("a", b"")
    assert "no profile 'other'" in refusal(lambda: opened(f"{s3_url}&profile=other")).message
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_PROFILE", "ours")
    assert opened(s3_url).get("a") is not None
    file.write_text(f"[ours\naws_secret_access_key = {SECRET}\n")
    assert "cannot be read" in refusal(lambda: opened(s3_url)).message


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (f"s3://key:{SECRET}@bucket/prefix", "a key does not belong into the URL"),
        (f"s3://bucket/prefix?secret_access_key={SECRET}", "a key does not belong into the URL"),
        (f"s3://bucket?endpoint=https://me:{SECRET}@host", "not the address of a server"),
        ("s3://", "names no bucket"),
        ("s3://bucket:80/prefix", "names no bucket"),
        ("s3://bucket:port/prefix", "cannot be read"),
        ("s3://bucket/.hidden", "cannot be the prefix"),
        ("s3://bucket/a b", "cannot be the prefix"),
        ("s3://bucket/a//b", "cannot be the prefix"),
        ("s3://bucket/a?colour=red", "unknown option colour"),
        ("gs://bucket/a?region=eu", "unknown option region"),
        ("s3://bucket/a?timeout=soon", "timeout must be 0–3600 seconds"),
        ("s3://bucket/a?region=eu%0Acentral", "this is no region"),
        ("az://bucket/a?account=", "this is no account"),
        ("s3://bucket/a?allow_http=perhaps", "means nothing"),
        ("s3://bucket/a?endpoint=nonsense", "not the address of a server"),
        ("s3://bucket/a?endpoint=http://host:9000", "not encrypted"),
        ("s3://fast--euc1-az1--x-s3/a", "directory bucket"),
    ],
)
def test_a_wrong_url_is_refused_before_anything_is_asked(url: str, says: str) -> None:
    error = refusal(lambda: read_address(url))
    assert isinstance(error, BadRequest)
    assert says in error.message


def test_what_is_shown_of_an_address_is_where_it_is() -> None:
    address = read_address("s3://bucket/a/b/?region=eu-1&endpoint=https://host:9000/&timeout=3")
    assert address.place == "s3://bucket/a/b at https://host:9000"
    assert address.url == "s3://bucket/a/b?endpoint=https://host:9000&region=eu-1&timeout=3.0"
    assert (address.root, address.region, address.timeout) == ("a/b/", "eu-1", 3.0)
    assert read_address("gs://bucket").place == "gs://bucket"
    assert read_address("az://container/x?account=me").account == "me"
    for url in (
        "az://container/x?account=me",
        "s3://b-1?endpoint=http://127.0.0.1:1",
        "gs://b-1?allow_http=true",
    ):
        assert read_address(read_address(url).url) == read_address(url)
        assert read_address(url).url == url
    assert read_address("s3://bucket?endpoint=http://127.0.0.1:1").allow_http
    assert read_address("s3://bucket?endpoint=http://host&allow_http=true").allow_http


@pytest.mark.parametrize("ignores", [("If-None-Match",), ("If-Match",), ("If-None-Match", "If-Match")])
def test_a_server_that_ignores_conditions_is_refused_and_left_as_it_was(ignores: tuple[str, ...]) -> None:
    with lying(ignores) as (url, server):
        error = refusal(lambda: opened(url))
        assert "ignores conditions" in error.message
        assert not isinstance(error, StoreUnavailable)
        looking = opened(url, create=False)
        assert "ignores conditions" in refusal(lambda: looking.create("a", b"")).message
        assert server.kept == {}


def test_a_server_that_honours_them_is_taken_and_left_as_it_was() -> None:
    with lying() as (url, server):
        bucket = opened(url)
        assert server.kept == {}
        assert bucket.requests == 6
        assert bucket.create("a", b"")


def test_conditions_of_google_go_by_the_number_of_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    with lying() as (url, server):
        file = tmp_path / "account.json"
        file.write_text(json.dumps({"gcs_base_url": read_address(url).endpoint, **account}))
        monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(file))
        bucket = opened("gs://bucket/here?allow_http=true")
        assert server.kept == {}
        assert bucket.create("a", b"1") and not bucket.create("a", b"2")
        first = bucket.get("a")
        assert first is not None
        assert bucket.swap("a", b"2", first.tag)
        bucket.put("a", b"1")
        assert not bucket.swap("a", b"3", first.tag)
        assert not bucket.swap("b", b"3", first.tag)
        bucket.delete(["a", "b"])
        assert server.kept == {}


@pytest.mark.parametrize(
    ("status", "code", "kind", "says"),
    [
        (503, "SlowDown", StoreUnavailable, "fewer requests (503 SlowDown)"),
        (429, "TooManyRequests", StoreUnavailable, "fewer requests"),
        (500, "InternalError", StoreUnavailable, "the server of"),
        (504, "", StoreUnavailable, "the server of"),
        (409, "ConditionalRequestConflict", StoreUnavailable, "at the same time"),
        (501, "NotImplemented", StoreError, "cannot do that"),
        (400, "ExpiredToken", StoreError, "the session of this key is over"),
        (403, "RequestTimeTooSkewed", StoreError, "clock differs too much"),
        (404, "NoSuchBucket", StoreError, "there is no bucket 'test'"),
        (301, "PermanentRedirect", StoreError, "another region"),
        (400, "AuthorizationHeaderMalformed", StoreError, "another region"),
        (403, "QuotaExceeded", StoreNotWritable, "quota is used up"),
        (507, "XMinioStorageFull", StoreNotWritable, "disk is full"),
        (400, "EntityTooLarge", StoreError, "larger than the server takes"),
        (400, "Strange", StoreError, "failed (400 Strange)"),
    ],
)
def test_what_a_server_answers_is_told_in_plain_words(
    status: int, code: str, kind: type[EverstepError], says: str
) -> None:
    with lying() as (url, server):
        bucket = opened(url)
        server.answers = {"PUT": (status, code)}
        for write in (lambda: bucket.create("a", b""), lambda: bucket.swap("a", b"", '"x"')):
            error = refusal(write)
            assert type(error) is kind, error
            assert says in error.message
        server.answers = {}
        assert bucket.create("a", b"")


def test_bytes_that_end_too_early_are_no_object() -> None:
    head = b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\nETag: "x"\r\n'
    cut_short = head + b"Last-Modified: Sun, 15 Nov 2026 12:00:00 GMT\r\n\r\nshort"
    with socket.create_server(("127.0.0.1", 0)) as server, key_in_the_environment():

        def answer() -> None:
            with suppress(OSError):
                while True:
                    end, _ = server.accept()
                    with end:
                        is_first = b"range:" not in end.recv(1000).lower()
                        end.sendall(cut_short if is_first else b"")

        threading.Thread(target=answer, daemon=True).start()
        url = f"s3://test?endpoint=http://127.0.0.1:{server.getsockname()[1]}&region=us-east-1&timeout=1"
        assert isinstance(refusal(lambda: opened(url, create=False).get("a")), StoreUnavailable)
        server.shutdown(socket.SHUT_RDWR)


class Skewed(SystemClock):
    """The real clock, set wrongly."""

    def __init__(self, ahead: timedelta) -> None:
        super().__init__()
        self.ahead = ahead

    def now(self) -> datetime:
        return super().now() + self.ahead


@pytest.mark.parametrize("ahead", [HOUR, -HOUR, timedelta(seconds=2.5), timedelta(0)])
def test_the_time_is_the_servers_however_this_machine_is_set(s3_url: str, ahead: timedelta) -> None:
    bucket = Cloud(read_address(s3_url), Skewed(ahead))
    assert abs(bucket.now() - datetime.now(UTC)) < timedelta(seconds=0.3)
    assert bucket.names("") == []


def test_the_time_goes_on_when_this_machines_clock_is_set_and_costs_nothing(s3_url: str) -> None:
    clock = Skewed(timedelta(0))
    bucket = Cloud(read_address(s3_url), clock)
    before = bucket.now()
    asked = bucket.requests
    clock.ahead = -HOUR
    assert timedelta(0) <= bucket.now() - before < timedelta(seconds=30)
    assert bucket.requests == asked


def test_the_time_is_asked_for_again_after_a_while_and_kept_while_no_answer_comes(
    cut_off: tuple[Proxy, Cloud], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, bucket = cut_off
    bucket.now()
    asked = bucket.requests
    monkeypatch.setattr(cloud_clock, "TRUSTED_FOR", -1.0)
    bucket.now()
    assert bucket.requests > asked
    proxy.is_down = True
    proxy.drop_all()
    assert abs(bucket.now() - datetime.now(UTC)) < timedelta(seconds=1)


def test_a_clock_that_a_test_moves_does_not_move_the_servers(s3_url: str) -> None:
    clock = ManualClock()
    bucket = Cloud(read_address(s3_url), clock)
    clock.advance(HOUR.total_seconds())
    assert abs(bucket.now() - datetime.now(UTC)) < timedelta(seconds=2)


def test_a_forked_child_says_that_it_cannot_use_a_bucket(s3_url: str) -> None:
    program = """
import os, signal, sys
from everstep.errors import StoreError
from everstep.runtime.system import SystemClock
from everstep.stores.objects.cloud.bucket import Cloud
from everstep.stores.objects.cloud.address import read_address
signal.alarm(60)
bucket = Cloud(read_address(sys.argv[1]), SystemClock())
pid = os.fork()
if pid == 0:
    for use in (lambda: bucket.get("a"), lambda: Cloud(bucket.address, SystemClock())):
        try:
            use()
        except StoreError as error:
            assert "forked" in error.message
        else:
            os._exit(1)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert bucket.get("a") is None
"""
    done = subprocess.run(
        [sys.executable, "-c", program, s3_url], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_what_a_bucket_is_and_promises_is_told(bucket: Cloud) -> None:
    health = bucket.health()
    assert "S3" in health.server
    assert [finding.level.value for finding in health.findings] == ["fine"]
    assert health.now is not None and abs(health.now - datetime.now(UTC)) < timedelta(seconds=2)
    assert bucket.names("") == []


def test_a_bucket_that_keeps_versions_is_told() -> None:
    with lying() as (url, server):
        server.has_versions = True
        health = opened(url).health()
    assert any("keeps versions" in finding.text for finding in health.findings)


@pytest.mark.usefixtures("s3_keys")
def test_the_bucket_of_the_tests_is_the_real_thing(s3_url: str) -> None:
    opened(s3_url).put("a", b"1")
    address = read_address(s3_url)
    assert bytes(obstore.get(client(s3_url), f"{address.prefix}/a").bytes()) == b"1"
    assert urlsplit(s3_url).scheme == "s3"
