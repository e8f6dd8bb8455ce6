"""What holds for any flow holds encrypted: through crashes, waits, forks, other names, other keys."""

from __future__ import annotations

import msgspec
from hypothesis import assume, event, given
from hypothesis import strategies as st

from everstep import Host, KeyRing
from everstep.codec.payload import AES_GCM, layers_of
from everstep.codec.records import unseal
from everstep.registry import Opened
from everstep.stores.memory import MemoryStore
from everstep.testing.killing import Killer, killing
from tests import inside_memory
from tests.unit.properties.flows import Built, Case, Log, cases
from tests.unit.properties.test_random_flows import every_put, examples
from tests.unit.properties.test_random_migrations import (
    RENAMEABLE,
    is_under_way,
    renames,
    resumed,
    untagged,
)
from tests.unit.properties.test_random_waits import DEATHS, SOME_WAITING, WHIMS
from tests.unit.properties.worlds import LEASE, RUN, TAG, World, around, seen

OLD, NEW = {"old": b"1" * 32}, {"new": b"2" * 32}


class Locked(World):
    """A world whose hosts encrypt and compress."""

    keys = KeyRing(OLD)

    def host(self, killer: Killer | None = None) -> Host:
        store = MemoryStore(self.clock, self.data)
        opened = killing(Opened(store, store.artifacts, "memory:"), by=killer or Killer())
        return Host(opened, clock=self.clock, encrypt=self.keys, compress=True)

    def keys_used(self) -> set[str]:
        """Return the ids of the keys of all that is kept, `-` for what has none."""
        kept = [*inside_memory.blobs(self.data).values()]
        for run_id in self.data.logs:
            is_fork = inside_memory.row(self.data, run_id).forked_at is not None
            before: bytes | None = None if is_fork else b""
            for stored in inside_memory.records(self.data, run_id):
                if before is None:  # of a fork's first record only its payloads are wanted
                    kept += msgspec.msgpack.decode(stored.body)[4]
                    continue
                opened = unseal(stored.body, "it", before, stored.checkpoint_id)
                before = opened.digest
                kept += opened.payloads
        for wait in inside_memory.waits(self.data):
            kept += [wait.details] + ([] if wait.answer is None else [wait.answer])
        return {_key_of(payload) for payload in kept}


def _key_of(payload: bytes) -> str:
    layers = layers_of(payload, "it")[0] if payload[:1] == b"\x01" else []
    return layers[-1].note[4:].decode() if layers and layers[-1].codec == AES_GCM else "-"


@examples(60)
@given(case=cases(SOME_WAITING), deaths=DEATHS, whim=WHIMS, keyframes=st.booleans())
def test_an_encrypted_flow_that_crashes_ends_like_one_in_the_clear(
    case: Case, deaths: list[int], whim: int, keyframes: bool
) -> None:
    expected = World(case).live()
    world = Locked(case, whim)
    for at in [*deaths, None]:
        (done, _), log = world.recorded(), Log()
        with every_put(keyframes=keyframes):
            outcome = world.live(log, at)
        for path, visit, _ in log.begun:
            assert done.isdisjoint(around(path, visit)), f"{path} visit {visit} ran again"
        assert outcome in (None, expected)
    assert outcome == expected
    assert world.keys_used() <= {"old"}


@examples(40)
@given(case=cases(SOME_WAITING), at=st.integers(0, 99), whim=WHIMS, keyframes=st.booleans())
def test_a_fork_of_an_encrypted_run_ends_like_its_original_before_and_after_a_change_of_keys(
    case: Case, at: int, whim: int, keyframes: bool
) -> None:
    world = Locked(case, whim)
    with every_put(keyframes=keyframes):
        expected = world.live()
        with world.host() as host:
            built = Built(case)
            sequence = 1 + at % host.info(RUN).checkpoints
            host.fork(RUN, at=sequence, fork_id="fork")
            before = [record.digest for record in host.history(RUN)]
        world.keys = KeyRing({**NEW, **OLD})
        with world.host() as host:
            host.storage.rekey()
            assert not any(one.has_changed for one in host.storage.rekey())
        assert world.keys_used() <= {"new"}
        world.keys = KeyRing(NEW)
        with world.host() as host:
            assert [record.digest for record in host.history(RUN)] == before
            assert all(one.is_sound for one in host.storage.verify())
            result = world.answer(host, host.resume("fork", built.flow), built)
            assert seen(host, "fork", result, built) == expected


@examples(30)
@given(case=cases(RENAMEABLE), first=st.integers(1, 25), whim=WHIMS, keyframes=st.booleans())
def test_an_encrypted_run_whose_flow_got_other_names_ends_as_it_would_have(
    case: Case, first: int, whim: int, keyframes: bool
) -> None:
    expected = World(case).live()
    world = Locked(case, whim)
    with every_put(keyframes=keyframes):
        assume(world.live(at=first) is None and is_under_way(world))
    built = Built(case, tag=TAG)
    built.flow.migrations = tuple(renames(Built(case).flow.plan, built.flow.plan))
    outcome = resumed(world, built)
    assert outcome is not None and untagged(outcome) == untagged(expected)
    assert world.keys_used() <= {"old"}


@examples(30)
@given(case=cases(SOME_WAITING), first=st.integers(1, 25), whim=WHIMS, keyframes=st.booleans())
def test_a_run_that_began_in_the_clear_goes_on_encrypted_and_rekey_encrypts_the_rest(
    case: Case, first: int, whim: int, keyframes: bool
) -> None:
    expected = World(case).live()
    plain = World(case, whim)
    with every_put(keyframes=keyframes):
        assume(plain.live(at=first) is None and is_under_way(plain))
    world = Locked(case, whim)
    world.keys = KeyRing(OLD, required=False)  # it may have been answered before there was a key
    world.data, world.clock = plain.data, plain.clock
    world.clock.advance(LEASE)
    assert world.live() == expected
    event(f"{sorted(world.keys_used())}")
    with world.host() as host:
        assert all(one.is_sound for one in host.storage.verify())
        host.storage.rekey()
    assert world.keys_used() <= {"old"}
