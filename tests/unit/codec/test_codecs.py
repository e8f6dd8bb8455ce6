"""Codecs and keys: what is closed opens again at its place with its key, and nowhere else."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep import KeyRing
from everstep.codec.chain import Codecs
from everstep.codec.payload import COMPRESSED_FROM, HEADER, Layer, header_with, layers_of
from everstep.errors import (
    BadRequest,
    EverstepError,
    IncompatibleVersion,
    KeyUnavailable,
    StateCorrupted,
    ValueNotStorable,
    ValueUnreadable,
)
from everstep.runtime.system import random_bytes

ONE, TWO = b"1" * 32, b"2" * 32
DATA = HEADER + b'{"a long value": "that repeats itself"} ' * 40


class Zip:
    """A codec of a user's."""

    name = "shop.zip"

    def encode(self, data: bytes) -> bytes | None:
        return zlib.compress(data) if len(data) > 10 else None

    def decode(self, data: bytes) -> bytes:
        return zlib.decompress(data)


def coder(keys: dict[str, bytes] | None = None, *, compress: bool = False, own: bool = False) -> Codecs:
    ring = KeyRing(keys) if keys is not None else None
    return Codecs(random_bytes, keys=ring, compress=compress, codecs=[Zip()] if own else ())


KINDS = {
    "key": coder({"k": ONE}),
    "zstd": coder(compress=True),
    "own": coder(own=True),
    "all": coder({"k": ONE}, compress=True, own=True),
}


def reopened(codecs: Codecs, stored: bytes, owner: str = "run", place: bytes = b"place") -> bytes:
    return codecs.open(stored, owner, place, "x", len(DATA) - len(HEADER))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_closed_opens_as_it_was(kind: str) -> None:
    stored = KINDS[kind].close(DATA, "run", b"place")
    assert stored != DATA and reopened(KINDS[kind], stored) == DATA


@given(body=st.binary(max_size=3000), kind=st.sampled_from(sorted(KINDS)))
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
def test_any_bytes_open_as_they_were(body: bytes, kind: str) -> None:
    stored = KINDS[kind].close(HEADER + body, "run", b"place")
    assert KINDS[kind].open(stored, "run", b"place", "x", len(body)) == HEADER + body


def test_nothing_is_done_without_codecs_and_plain_payloads_open_beside_encrypted_ones() -> None:
    assert coder().close(DATA, "run", b"place") is DATA
    assert not coder().is_active
    assert reopened(KINDS["all"], DATA) is DATA


def test_two_equal_values_do_not_look_alike_encrypted() -> None:
    one, other = (KINDS["key"].close(DATA, "run", b"place") for _ in range(2))
    assert one != other


@pytest.mark.parametrize(("owner", "place"), [("other run", b"place"), ("run", b"other place"), ("", b"")])
@pytest.mark.parametrize("kind", ["key", "all"])
def test_an_encrypted_payload_opens_nowhere_else(kind: str, owner: str, place: bytes) -> None:
    stored = KINDS[kind].close(DATA, "run", b"place")
    with pytest.raises(StateCorrupted, match="were altered, or belong to another place"):
        reopened(KINDS[kind], stored, owner, place)


def test_a_missing_key_and_a_wrong_one_are_named_and_not_taken_for_damage() -> None:
    stored = coder({"2025": ONE}).close(DATA, "run", b"place")
    for without in (coder(), coder({"2026": TWO})):
        with pytest.raises(KeyUnavailable, match="encrypted with the key '2025', which this host does not"):
            reopened(without, stored)
    with pytest.raises(KeyUnavailable, match="another key than the one called '2025'"):
        reopened(coder({"2025": TWO}), stored)


def test_an_old_key_still_opens_and_the_active_one_encrypts() -> None:
    old, both = coder({"2025": ONE}), coder({"2026": TWO, "2025": ONE})
    stored = old.close(DATA, "run", b"place")
    assert reopened(both, stored) == DATA
    assert old.is_current(stored, "x") and not both.is_current(stored, "x")
    anew = both.close(DATA, "run", b"place")
    assert both.is_current(anew, "x") and not both.is_current(DATA, "x")
    with pytest.raises(KeyUnavailable):
        reopened(old, anew)


def test_a_key_of_the_same_name_is_not_taken_for_the_active_one() -> None:
    stored = coder({"k": ONE}).close(DATA, "run", b"place")
    assert not coder({"k": TWO}).is_current(stored, "x")


@pytest.mark.parametrize("size", [0, COMPRESSED_FROM - 1])
def test_small_data_is_not_compressed(size: int) -> None:
    assert KINDS["zstd"].close(HEADER + b"a" * size, "run", b"") == HEADER + b"a" * size


def test_data_that_does_not_get_smaller_is_left_as_it_is() -> None:
    noise = HEADER + random_bytes(4096)
    assert KINDS["zstd"].close(noise, "run", b"") == noise
    assert len(KINDS["zstd"].close(DATA, "run", b"")) < len(DATA) / 5


def test_compressed_data_never_becomes_more_than_it_was() -> None:
    bomb = KINDS["zstd"].close(HEADER + b"\0" * 10_000_000, "run", b"")
    assert len(bomb) < 2000
    with pytest.raises(StateCorrupted, match="cut short or too long"):
        KINDS["zstd"].open(bomb, "run", b"", "x", 100)


def test_an_unknown_codec_fails_by_name() -> None:
    stored = header_with([Layer("brotli"), Layer("zstd")]) + b"data"
    layers, at = layers_of(stored, "x")
    assert layers == [Layer("brotli"), Layer("zstd")] and stored[at:] == b"data"
    with pytest.raises(IncompatibleVersion, match="'x' was encoded with the codec 'brotli'"):
        reopened(coder(), header_with([Layer("brotli")]) + b"data")
    with pytest.raises(IncompatibleVersion, match=r"shop\.zip") as caught:
        reopened(coder(), KINDS["own"].close(DATA, "run", b""))
    assert caught.value.code == "DAG-CKPT-009" and "Host(codecs=[...])" in caught.value.fix


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=300, deadline=None, derandomize=True, database=None)
def test_damaged_payloads_give_a_named_error_or_what_was_written(kind: str, data: st.DataObject) -> None:
    codecs, stored = KINDS[kind], bytearray(KINDS[kind].close(DATA, "run", b"place"))
    how = data.draw(st.sampled_from(["flip", "cut", "grow", "splice"]))
    at = data.draw(st.integers(0, len(stored) - 1))
    if how == "flip":
        stored[at] ^= 1 << data.draw(st.integers(0, 7))
    elif how == "cut":
        del stored[at:]
    elif how == "grow":
        stored += data.draw(st.binary(min_size=1, max_size=40))
    else:
        stored[at:at] = data.draw(st.binary(min_size=1, max_size=10))
    try:
        found = reopened(codecs, bytes(stored))
    except EverstepError as error:
        assert error.code in (
            *("value.unreadable", "value.key_unavailable"),
            *("DAG-CKPT-008", "DAG-CKPT-009"),
        )
        return
    # Without a key it is the digest in the header that tells, as for any payload.
    is_authentic = kind in ("key", "all")
    assert found == DATA or not is_authentic or stored[2] == 0


@given(junk=st.binary(max_size=200))
@settings(max_examples=300, deadline=None, derandomize=True, database=None)
def test_junk_behind_a_header_gives_a_named_error(junk: bytes) -> None:
    one = b"\x01\x01\x01"
    for head in (b"", one, b"\x01\x01\x03", one + b"\x04zstd\x00", one + b"\x0baes-256-gcm"):
        try:
            KINDS["all"].open(head + junk, "run", b"place", "x", 100)
        except EverstepError:
            continue
        assert (head + junk)[2:3] == b"\0" or head.endswith(b"zstd\x00") or not junk


def test_a_codec_that_breaks_is_named() -> None:
    class Broken(Zip):
        def encode(self, data: bytes) -> bytes | None:
            raise OSError("no licence")

        def decode(self, data: bytes) -> bytes:
            raise OSError("no licence")

    broken = Codecs(random_bytes, codecs=[Broken()])
    with pytest.raises(ValueNotStorable, match=r"codec 'shop.zip' cannot encode a value: no licence"):
        broken.close(DATA, "run", b"")
    with pytest.raises(StateCorrupted, match=r"codec 'shop.zip' cannot decode 'x': no licence"):
        reopened(broken, KINDS["own"].close(DATA, "run", b""))


def test_codecs_have_names_of_their_own() -> None:
    for name in ("zstd", "aes-256-gcm", "", "x" * 65):
        codec = Zip()
        codec.name = name
        with pytest.raises(BadRequest, match="cannot be called"):
            Codecs(random_bytes, codecs=[codec])
    with pytest.raises(BadRequest):
        Codecs(random_bytes, codecs=[Zip(), Zip()])


def test_encryption_and_zstd_together_add_less_than_25_microseconds_to_a_kibibyte() -> None:
    value = HEADER + b"".join(b'{"id": %d, "name": "customer %d"}' % (k, k) for k in range(30))[:1024]
    both, took = coder({"k": ONE}, compress=True), []
    for _ in range(40):
        begun = process_time()
        for _ in range(100):
            both.close(value, "run", b"place")
        took.append((process_time() - begun) / 100)
    assert min(took) < 25e-6


# -- key rings --------------------------------------------------------------------------------------------


def text_of(key: bytes) -> str:
    return base64.b64encode(key).decode()


def test_a_ring_is_read_from_text_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oldest = base64.urlsafe_b64encode(ONE).decode()
    text = f"2026:{text_of(TWO)}  # since January\n2025:{ONE.hex()},\n2024:{oldest}"
    file = tmp_path / "keys"
    file.write_text(text)
    monkeypatch.setenv("MY_KEYS", text.replace("  # since January\n", " ").replace(",\n", ","))
    for ring in (KeyRing.from_text(text), KeyRing.from_file(file), KeyRing.from_env("MY_KEYS")):
        assert ring.active().key_id == "2026"
        assert ring.get("2025") is not None and ring.get("2023") is None
        assert (
            Codecs(random_bytes, keys=ring).open(
                coder({"2024": ONE}).close(DATA, "run", b""), "run", b"", "x", None
            )
            == DATA
        )


def test_a_function_is_asked_once_for_each_key() -> None:
    asked: list[str | None] = []

    def find(key_id: str | None) -> tuple[str, bytes] | None:
        asked.append(key_id)
        return {None: ("b", TWO), "b": ("b", TWO), "a": ("a", ONE)}.get(key_id)

    codecs = Codecs(random_bytes, keys=KeyRing(find))
    old = coder({"a": ONE}).close(DATA, "run", b"place")
    for _ in range(2):
        assert reopened(codecs, codecs.close(DATA, "run", b"place")) == DATA
        assert reopened(codecs, old) == DATA
    assert asked == [None, "a"]
    with pytest.raises(KeyUnavailable, match="'c'"):
        reopened(codecs, coder({"c": ONE}).close(DATA, "run", b"place"))


def test_a_function_that_breaks_is_named_and_not_quoted() -> None:
    def find(key_id: str | None) -> tuple[str, bytes] | None:
        raise ConnectionError(f"no answer to {text_of(ONE)}")

    codecs = Codecs(random_bytes, keys=KeyRing(find))
    with pytest.raises(KeyUnavailable, match=r"cannot give the active key \(ConnectionError\)") as caught:
        codecs.close(DATA, "run", b"")
    assert text_of(ONE) not in str(caught.value)
    with pytest.raises(KeyUnavailable, match="cannot give the key 'k'"):
        reopened(codecs, KINDS["key"].close(DATA, "run", b"place"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "k",
        "k:",
        "k:short",
        f"k:{'é' * 43}",
        f"k:{'z' * 64}",
        f"{text_of(ONE)}:k",
        f"{ONE.hex()}:k",
        "k:a,k:b",
    ],
)
def test_what_is_no_key_ring_is_refused_without_showing_a_key(text: str) -> None:
    with pytest.raises(BadRequest) as caught:
        KeyRing.from_text(text)
    for key in (text_of(ONE), ONE.hex(), "zzz"):
        assert key not in str(caught.value)


def test_a_ring_must_have_the_key_that_is_to_be_active() -> None:
    assert KeyRing({"a": ONE, "b": TWO}, active="b").active().key_id == "b"
    with pytest.raises(BadRequest, match="no key 'c'"):
        KeyRing({"a": ONE}, active="c")
    with pytest.raises(BadRequest):
        KeyRing({})
    with pytest.raises(BadRequest):
        KeyRing(lambda key_id: None, active="a")
    with pytest.raises(BadRequest, match="no active key"):
        KeyRing(lambda key_id: None).active()


def test_no_key_is_ever_shown() -> None:
    ring = KeyRing({"a": ONE, "b": TWO})
    shown = repr(ring) + str(ring) + repr(ring.active()) + repr(vars(ring))
    assert "1111" not in shown and "2222" not in shown and "a, b" in repr(ring)


def test_a_short_payload_is_named() -> None:
    for stored in (b"", b"\x01", b"\x01\x01"):
        with pytest.raises(ValueUnreadable):
            reopened(KINDS["all"], stored)
