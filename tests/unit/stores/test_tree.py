"""The tree of a run in a log of objects: what it finds, and how little of it an entry holds."""

from __future__ import annotations

import random

import pytest

from everstep.stores.objects.marks.tree import Page, Ref, Tree

Log = dict[int, tuple[Page, ...]]


class Kept:
    """A tree of which every change is an entry of a log."""

    def __init__(self) -> None:
        self.log: Log = {}
        self.root: Ref | None = None
        self.read: set[int] = set()

    def tree(self) -> Tree:
        self.read = set()
        return Tree(self.root, self._page)

    def _page(self, ref: Ref) -> Page:
        self.read.add(ref.place)
        return self.log[ref.place][ref.number]

    def keep(self, tree: Tree) -> int:
        """Write an entry; returns how many keys it holds."""
        place = len(self.log) + 1
        self.root, self.log[place] = tree.written(place)
        return sum(len(page.keys) for page in self.log[place])


@pytest.mark.parametrize("seed", range(8))
def test_a_tree_finds_what_a_dictionary_would(seed: int) -> None:
    chance, kept, known = random.Random(seed), Kept(), dict[bytes, bytes]()
    for step in range(400):
        tree = kept.tree()
        for _ in range(chance.choice([1, 1, 1, 20])):
            key = chance.choice(b"abc".decode()).encode() + chance.randrange(120).to_bytes(2)
            if known and chance.random() < 0.45:
                key = chance.choice(sorted(known))
                del known[key]
                tree.remove(key)
            else:
                known[key] = str(step).encode()
                tree.set(key, known[key])
        kept.keep(tree)
        tree = kept.tree()
        prefix, after = chance.choice([b"a", b"b", b"c"]), chance.choice([b"", b"b\0\x40"])
        found = sorted(item for item in known.items() if item[0].startswith(prefix) and item[0] > after)
        assert [*tree.scan(prefix, after)] == found
        assert tree.get(key) == known.get(key)
        assert tree.is_empty is (not known)


def test_a_change_of_one_draft_is_found_before_it_is_written() -> None:
    tree = Kept().tree()
    for number in range(100):
        tree.set(number.to_bytes(2), b"%d" % number)
        assert tree.get(number.to_bytes(2)) == b"%d" % number
    root, pages = tree.written(7)
    assert root == Ref(7, len(pages) - 1) and sum(len(page.values) for page in pages) == 100


def test_an_entry_holds_and_reads_a_path_however_much_there_is() -> None:
    kept = Kept()
    chance = random.Random(0)
    most: dict[int, tuple[int, int]] = {}
    for count in range(1, 5_001):
        tree = kept.tree()
        tree.set(b"i" + chance.randbytes(8), b"")
        held = kept.keep(tree)
        size = 100 if count <= 100 else 5_000
        most[size] = max(most.get(size, (0, 0)), (held, len(kept.read)))
    # A page has 16 keys at most, and a path of 5,000 keys four or five pages, of which one may be split.
    assert most[5_000][0] <= 5 * 16 + 4 and most[5_000][1] <= 5


def test_keys_that_rise_leave_full_pages_behind() -> None:
    kept = Kept()
    for number in range(1_000):
        tree = kept.tree()
        tree.set(number.to_bytes(2), b"")
        kept.keep(tree)
    root = kept.tree()
    assert len([*root.scan(b"")]) == 1_000
    assert len(kept.read) <= 1_000 / 16 + 10


def test_what_is_taken_out_leaves_no_page_behind() -> None:
    kept = Kept()
    for number in range(500):
        tree = kept.tree()
        tree.set(number.to_bytes(2), b"")
        if number >= 3:
            tree.remove((number - 3).to_bytes(2))
        held = kept.keep(tree)
    assert held <= 16 and [key for key, _ in kept.tree().scan(b"")] == [
        k.to_bytes(2) for k in (497, 498, 499)
    ]
