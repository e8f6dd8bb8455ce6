"""Wiring: what `>>`, `|`, chains, groups, policies and joins say about nodes, edges and joins."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep import node
from everstep.errors import BadRequest
from everstep.graph.author.wiring import (
    Group,
    Join,
    Layout,
    MemberSpec,
    Policy,
    Wired,
    at_least,
    chain,
    critical,
    flatten,
    parallel,
    quorum,
)


class Leaf(Wired):
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


a, b, c, d, e = (Leaf(name) for name in "abcde")


def edges(*items: Any) -> list[str]:
    return [f"{x}-{y}" for x, y in flatten(items).edges]


def names(layout: Layout) -> list[str]:
    return [leaf.name for leaf in layout.nodes]


def refused(build: Callable[[], object], match: str) -> str:
    with pytest.raises(BadRequest, match=match) as caught:
        build()
    assert caught.value.fix
    return caught.value.fix


# Edges


def test_a_plain_list_gives_no_edges() -> None:
    assert flatten([a, b, c]) == Layout((a, b, c), (), ())


def test_a_chain_gives_an_edge_between_neighbours() -> None:
    assert edges(a >> b >> c) == ["a-b", "b-c"]
    assert edges(chain(a, b, c)) == ["a-b", "b-c"]


def test_a_single_expression_or_node_can_be_laid_out() -> None:
    assert flatten(a >> b) == flatten([a >> b])
    assert flatten(a | b) == Layout((a, b), (), ())
    assert flatten(a) == flatten([a])


def test_a_group_fans_out_and_in() -> None:
    assert edges(a >> (b | c) >> d) == ["a-b", "a-c", "b-d", "c-d"]
    assert flatten(a >> (b | c) >> d).joins == ()


def test_a_group_may_come_first_or_last() -> None:
    assert edges((a | b) >> c) == ["a-c", "b-c"]
    assert edges(a >> (b | c)) == ["a-b", "a-c"]


def test_every_member_of_a_group_is_wired_to_every_member_of_the_next() -> None:
    assert edges((a | b) >> (c | d)) == ["a-c", "a-d", "b-c", "b-d"]


def test_a_list_is_a_group_on_either_side() -> None:
    assert edges(a >> [b, c] >> d) == edges(a >> (b | c) >> d)
    assert edges([a, b] >> c) == edges((a | b) >> c)
    assert edges(chain(a, [b, c], d)) == edges(a >> (b | c) >> d)
    assert edges(a >> [b >> c, d] >> e) == edges(a >> ((b >> c) | d) >> e)


def test_a_chain_inside_a_group_is_entered_first_and_left_last() -> None:
    assert edges(a >> ((b >> c) | d) >> e) == ["a-b", "a-d", "b-c", "c-e", "d-e"]


def test_shift_binds_tighter_than_or() -> None:
    assert edges(a >> b | c) == ["a-b"]
    assert isinstance(a >> b | c, Group)


def test_nodes_are_listed_once_in_order_of_appearance() -> None:
    layout = flatten([c, a >> b, b >> c, a])
    assert names(layout) == ["c", "a", "b"]
    assert layout.edges == (("a", "b"), ("b", "c"))


def test_an_edge_said_twice_is_one_edge() -> None:
    assert edges(a >> b, a >> b >> c, a >> (b | c)) == ["a-b", "b-c", "a-c"]


def test_branches_of_a_group_may_meet() -> None:
    assert edges((a >> c) | (b >> c)) == ["a-c", "b-c"]
    assert edges(((a >> c) | (b >> c)) >> d) == ["a-c", "b-c", "c-d"]


def test_different_nodes_of_one_name_are_left_to_the_flow() -> None:
    twin = Leaf("a")
    assert flatten([a, twin]).nodes == (a, twin)
    assert flatten(a >> twin).nodes == (a, twin)
    assert flatten(parallel(a, twin, policy="best_effort")).nodes == (a, twin)


def test_what_is_no_node_is_left_to_the_flow() -> None:
    assert list(flatten([a, "b"]).nodes) == [a, "b"]


def test_operators_leave_their_operands_alone() -> None:
    group, line = a | b, a >> b
    _ = group | c, group >> c, line >> c, line | c, group.with_policy("best_effort"), group.with_name("g")
    assert group.members == (a, b) and line.parts == (a, b)
    assert (group.policy, group.join, group.name) == (Policy("strict"), Join("all"), "")


def test_functions_made_nodes_can_be_wired() -> None:
    @node
    def fetch() -> None: ...

    @node
    def store() -> None: ...

    assert flatten(fetch >> store) == Layout((fetch, store), (("fetch", "store"),), ())
    again = store.with_name("again")
    assert edges(fetch >> (store | again)) == ["fetch-store", "fetch-again"]


def test_expressions_show_how_they_were_written() -> None:
    assert repr(a >> (b | c >> d) >> e) == "a >> (b | (c >> d)) >> e"
    shown = "(a | b, join=quorum(2), policy=quorum(2))"
    assert repr(parallel(a, b, policy="quorum")) == shown
    assert repr(parallel(a, b, policy=critical("a"))) == "(a | b, join='all', policy=critical('a'))"


# Loops and nonsense


@pytest.mark.parametrize(
    "build",
    [
        lambda: a >> a,
        lambda: a >> b >> a,
        lambda: a >> (b | a),
        lambda: (a | b) >> (b | c),
        lambda: (a >> b) >> (b >> c),
        lambda: a >> ((b >> c) | d) >> c,
        lambda: chain(a, b, c, a),
    ],
)
def test_a_chain_that_comes_to_a_node_twice_is_refused(build: Callable[[], object]) -> None:
    assert "gate" in refused(build, "twice")
    assert "[..., last >> " in refused(build, "twice")


@pytest.mark.parametrize("build", [lambda: a | a, lambda: a | b | a, lambda: parallel(a, a)])
def test_a_group_with_the_same_member_twice_is_refused(build: Callable[[], object]) -> None:
    refused(build, "group has 'a' twice")


def test_an_undecorated_function_is_told_how_to_become_a_node() -> None:
    def plain() -> None: ...

    wrong: Any = plain
    for build in (lambda: a >> wrong, lambda: a | wrong, lambda: chain(a, wrong), lambda: parallel(wrong)):
        assert "@node" in refused(build, "cannot be wired")


@pytest.mark.parametrize("wrong", ["b", 3, None, {"b"}])
def test_what_is_no_node_cannot_be_wired(wrong: Any) -> None:
    for build in (lambda: a >> wrong, lambda: a | wrong, lambda: a >> [wrong], lambda: wrong >> a):
        refused(build, "cannot be wired")


def test_a_list_is_no_member() -> None:
    wrong: Any = [b, c]
    refused(lambda: a | wrong, "cannot be wired")


def test_empty_chains_and_groups_are_refused() -> None:
    refused(chain, "no parts")
    refused(parallel, "no members")
    refused(lambda: a >> [], "no members")


def test_a_name_is_text() -> None:
    wrong: Any = 3
    refused(lambda: parallel(a, b, name=wrong), "group's name is 3")
    refused(lambda: chain(a, b, name=wrong), "chain's name is 3")


# Policies and joins


def rule(outcomes: dict[str, str]) -> bool:
    return outcomes["a"] == "completed"


@pytest.mark.parametrize(
    ("policy", "join", "expected_policy", "expected_join"),
    [
        (None, None, Policy("strict"), Join("all")),
        ("strict", "all", Policy("strict"), Join("all")),
        ("best_effort", None, Policy("best_effort"), Join("all")),
        (critical("b"), None, Policy("critical", names=("b",)), Join("all")),
        (critical(b, "a", b), None, Policy("critical", names=("b", "a")), Join("all")),
        (at_least(2), None, Policy("at_least", count=2), Join("all")),
        (at_least(3), "all", Policy("at_least", count=3), Join("all")),
        (rule, None, Policy("rule", rule=rule), Join("all")),
        ("first_success", None, Policy("first_success"), Join("first_success")),
        ("first_success", "first_success", Policy("first_success"), Join("first_success")),
        (None, "first_success", Policy("first_success"), Join("first_success")),
        ("quorum", None, Policy("quorum", count=2), Join("quorum", 2)),
        (quorum(), None, Policy("quorum", count=2), Join("quorum", 2)),
        (quorum(3), None, Policy("quorum", count=3), Join("quorum", 3)),
        (None, "quorum", Policy("quorum", count=2), Join("quorum", 2)),
        (None, quorum(1), Policy("quorum", count=1), Join("quorum", 1)),
        (quorum(2), "quorum", Policy("quorum", count=2), Join("quorum", 2)),
        (None, "any", Policy("strict"), Join("any")),
        ("best_effort", "any", Policy("best_effort"), Join("any")),
        (critical("a"), "any", Policy("critical", names=("a",)), Join("any")),
        (at_least(1), "any", Policy("at_least", count=1), Join("any")),
    ],
)
def test_policy_and_join_imply_each_other(
    policy: Any, join: Any, expected_policy: Policy, expected_join: Join
) -> None:
    group = parallel(a, b, c, policy=policy, join=join)
    assert (group.policy, group.join) == (expected_policy, expected_join)


@pytest.mark.parametrize(
    ("policy", "join"),
    [
        (at_least(2), "any"),
        (quorum(2), "any"),
        ("first_success", "any"),
        (rule, "any"),
        ("first_success", "all"),
        ("quorum", "all"),
        ("strict", "first_success"),
        ("best_effort", "first_success"),
        (critical("a"), "first_success"),
        ("quorum", "first_success"),
        ("first_success", "quorum"),
        ("strict", quorum(2)),
        (quorum(2), quorum(3)),
        (at_least(3), quorum(2)),
        (rule, "quorum"),
    ],
)
def test_contradictory_pairs_are_refused(policy: Any, join: Any) -> None:
    refused(lambda: parallel(a, b, c, policy=policy, join=join), "contradicts")
    refused(lambda: (a | b | c).with_policy(policy).with_join(join), "contradicts")


@pytest.mark.parametrize(("size", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_quorum_is_the_majority_unless_told(size: int, majority: int) -> None:
    assert parallel(*[a, b, c, d, e][:size], policy="quorum").policy.count == majority


@pytest.mark.parametrize("policy", [at_least(3), quorum(3)])
def test_a_count_beyond_the_group_is_refused(policy: Policy) -> None:
    assert "at most 2" in refused(lambda: parallel(a, b, policy=policy), "can never be reached")
    refused(lambda: parallel(a, b, join=quorum(3)), "can never be reached")


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "2", None])
def test_a_count_is_a_whole_number_from_1(wrong: Any) -> None:
    refused(lambda: at_least(wrong), "at_least got")
    if wrong is not None:
        refused(lambda: quorum(wrong), "quorum got")


@pytest.mark.parametrize("wrong", ["sturdy", "critical", "at_least", 2, "", b, Leaf, Join("any")])
def test_an_unknown_policy_is_refused(wrong: Any) -> None:
    assert "at_least(n)" in refused(lambda: parallel(a, b, policy=wrong), "policy is")


def test_a_node_is_not_taken_for_a_rule() -> None:
    @node
    def judge(outcomes: dict[str, str]) -> bool:
        return True

    wrong: Any = judge
    refused(lambda: parallel(a, b, policy=wrong), "policy is")


@pytest.mark.parametrize("wrong", ["most", 2, "", rule, at_least(1), Policy("strict")])
def test_an_unknown_join_is_refused(wrong: Any) -> None:
    refused(lambda: parallel(a, b, join=wrong), "join is")


def test_critical_needs_members_of_the_group() -> None:
    fetch, store = Leaf("fetch"), Leaf("store")
    assert "'fetch'" in refused(lambda: parallel(fetch, store, policy=critical("fetsh")), "'fetsh'")
    assert "fetch, store" in refused(lambda: parallel(fetch, store, policy=critical(a)), "'a'")
    refused(critical, "critical got")
    wrong: Any = 3
    refused(lambda: critical(wrong), "critical got")
    refused(lambda: critical(""), "critical got")


def test_critical_knows_a_branch_by_its_last_node_or_its_name() -> None:
    branch = a >> b
    assert parallel(branch, c, policy=critical("b")).policy.names == ("b",)
    assert parallel(branch, c, policy=critical(branch)).policy.names == ("b",)
    refused(lambda: parallel(branch, c, policy=critical("a")), "no member")
    named = branch.with_name("load")
    assert parallel(named, c, policy=critical("load")).policy.names == ("load",)
    assert parallel(named, c, policy=critical(named)).policy.names == ("load",)
    refused(lambda: parallel(named, c, policy=critical("b")), "no member")


def test_a_changed_group_is_a_copy_that_keeps_the_rest() -> None:
    group = (a | b | c).with_policy(at_least(2)).with_name("some")
    assert (group.policy, group.join, group.name) == (Policy("at_least", count=2), Join("all"), "some")
    other = group.with_policy("best_effort").with_join("any")
    assert (other.policy, other.join, other.name) == (Policy("best_effort"), Join("any"), "some")
    assert group.policy.kind == "at_least"


def test_what_was_only_implied_does_not_stick() -> None:
    raced = (a | b).with_policy("first_success")
    assert raced.with_policy("strict").join == Join("all")
    assert (a | b).with_join("quorum").with_join("all").policy == Policy("strict")


# Joins in a layout


def only_join(*items: Any) -> Any:
    [spec] = flatten(items).joins
    return spec


def test_a_group_with_a_policy_becomes_a_join() -> None:
    layout = flatten(a >> (b | c).with_policy("best_effort") >> d)
    assert [f"{x}-{y}" for x, y in layout.edges] == [
        *("a-b", "a-c", "b-join_b_c", "c-join_b_c", "join_b_c-d"),
    ]
    [spec] = layout.joins
    assert spec.name == "join_b_c"
    assert spec.members == (MemberSpec("b", ("b",), ("b",)), MemberSpec("c", ("c",), ("c",)))
    assert (spec.join, spec.policy) == (Join("all"), Policy("best_effort"))
    assert names(layout) == ["a", "b", "c", "d"]


def test_a_join_is_made_also_when_nothing_follows() -> None:
    layout = flatten((a | b).with_join("any"))
    assert layout.edges == (("a", "join_a_b"), ("b", "join_a_b"))
    assert layout.joins[0].join == Join("any")


def test_a_named_group_names_its_join() -> None:
    assert only_join(parallel(a, b, policy="best_effort", name="both")).name == "both"
    assert edges(parallel(a, b, policy="best_effort", name="both") >> c) == ["a-both", "b-both", "both-c"]


def test_a_name_alone_makes_no_join() -> None:
    assert flatten(parallel(a, b, name="both") >> c) == flatten((a | b) >> c)


def test_a_branch_lists_its_nodes_and_its_ends() -> None:
    spec = only_join(parallel(a >> (b | c), d >> e, policy="best_effort"))
    assert spec.members == (
        MemberSpec("join_b_c", ("a", "b", "c"), ("b", "c")),
        MemberSpec("e", ("d", "e"), ("e",)),
    )
    assert spec.name == "join_join_b_c_e"


def test_a_branch_may_be_named() -> None:
    group = parallel(chain(a, b, name="left"), c, policy="best_effort")
    assert [m.name for m in only_join(group).members] == ["left", "c"]
    assert edges(group) == ["a-b", "b-join_left_c", "c-join_left_c"]


def test_branches_with_one_end_need_names() -> None:
    assert "name=" in refused(
        lambda: ((a >> c) | (b >> c)).with_policy("best_effort"), "two members of a group are called 'c'"
    )
    refused(lambda: ((a >> c) | c).with_policy("best_effort"), "two members")
    group = (chain(a, c, name="x") | chain(b, c, name="y")).with_policy("best_effort")
    assert [m.name for m in only_join(group).members] == ["x", "y"]


def test_a_joined_group_inside_a_group_ends_in_its_join() -> None:
    inner = parallel(a, b, policy="first_success", name="race")
    layout = flatten(parallel(inner >> c, d, inner, policy=at_least(1), name="outer") >> e)
    assert [spec.name for spec in layout.joins] == ["race", "outer"]
    assert layout.joins[1].members == (
        MemberSpec("c", ("a", "b", "c"), ("c",)),
        MemberSpec("d", ("d",), ("d",)),
        MemberSpec("race", ("a", "b"), ("race",)),
    )
    assert [f"{x}-{y}" for x, y in layout.edges] == [
        *("a-race", "b-race", "race-c", "c-outer", "d-outer", "race-outer", "outer-e"),
    ]


def test_a_joined_group_inside_a_plain_one_leads_on_from_its_join() -> None:
    assert edges((parallel(a, b, policy="best_effort") | c) >> d) == [
        *("a-join_a_b", "b-join_a_b", "join_a_b-d", "c-d"),
    ]


def test_a_group_with_a_policy_stays_one_member() -> None:
    raced = parallel(a, b, policy="first_success")
    assert (raced | c).members == (raced, c)
    assert (c | raced).members == (c, raced)


def test_a_group_given_to_parallel_stays_one_member() -> None:
    spec = only_join(parallel(a | b, c, policy=at_least(2)))
    assert spec.members == (MemberSpec("join_a_b", ("a", "b"), ("a", "b")), MemberSpec("c", ("c",), ("c",)))


def test_one_group_in_two_expressions_is_one_join() -> None:
    group = parallel(b, c, policy="best_effort")
    layout = flatten([a >> group, group >> d])
    assert len(layout.joins) == 1
    assert ("join_b_c", "d") in layout.edges and ("a", "b") in layout.edges


def test_two_joins_of_one_name_are_refused() -> None:
    one, other = parallel(a, b, policy="best_effort"), parallel(a, b, policy="first_success")
    assert "with_name" in refused(lambda: flatten([one, other]), "two joins are called 'join_a_b'")
    flatten([one, other.with_name("race")])


def test_a_join_named_like_a_node_is_refused() -> None:
    group = parallel(a, b, policy="best_effort", name="c")
    assert "with_name" in refused(lambda: flatten([group, c]), "a node and a join are both called 'c'")


# However it is written


leaves = [Leaf(f"n{i}") for i in range(7)]


def parenthesised(
    draw: Callable[..., Any], parts: list[Wired], combine: Callable[[Any, Any], Wired]
) -> Wired:
    if len(parts) == 1:
        return parts[0]
    cut = draw(st.integers(1, len(parts) - 1))
    return combine(parenthesised(draw, parts[:cut], combine), parenthesised(draw, parts[cut:], combine))


@st.composite
def groups_and_leaves(draw: st.DrawFn) -> list[Wired]:
    """Parts with leaves of their own: single ones, groups, and groups with a policy."""
    left = list(leaves)
    parts: list[Wired] = []
    while left:
        taken, left = left[: (size := draw(st.integers(1, 3)))], left[size:]
        group: Any = reduce(operator.or_, taken)
        if isinstance(group, Group) and draw(st.booleans()):
            group = group.with_policy(draw(st.sampled_from(["best_effort", "first_success"])))
        parts.append(group)
    return parts


@given(st.data())
def test_chains_are_associative(data: st.DataObject) -> None:
    parts = data.draw(groups_and_leaves())
    written = parenthesised(data.draw, parts, operator.rshift)
    assert flatten(written) == flatten(chain(*parts))
    assert flatten(written).nodes == tuple(leaves)


@given(st.data())
def test_groups_are_associative(data: st.DataObject) -> None:
    parts = [
        reduce(operator.rshift, part.members) if isinstance(part, Group) else part
        for part in data.draw(groups_and_leaves())
    ]
    written = parenthesised(data.draw, parts, operator.or_)
    assert flatten(a >> [written] >> b) == flatten(a >> parallel(*parts) >> b)
    assert flatten(written).nodes == tuple(leaves)
    if isinstance(written, Group):
        assert written.members == tuple(parts)
        raced = parallel(*parts, policy="first_success")
        assert flatten(written.with_policy("first_success")) == flatten(raced)


@given(st.data())
def test_every_edge_leads_forward_between_known_names(data: st.DataObject) -> None:
    layout = flatten(parenthesised(data.draw, data.draw(groups_and_leaves()), operator.rshift))
    known = {leaf.name for leaf in layout.nodes} | {spec.name for spec in layout.joins}
    assert {name for edge in layout.edges for name in edge} <= known
    entered = {end for _, end in layout.edges}
    assert all(spec.name in entered for spec in layout.joins)
    order = {name: i for i, name in enumerate(leaf.name for leaf in layout.nodes)}
    assert all(order[x] < order[y] for x, y in layout.edges if x in order and y in order)


def test_the_join_of_a_large_group_has_a_short_name() -> None:
    many = parallel(*[node(name=f"member_number_{k}")(lambda: None) for k in range(30)], policy="best_effort")
    [join] = flatten([many]).joins
    assert join.name == "join_member_number_0_and_29_more"
