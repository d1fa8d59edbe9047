"""Plans of moves: each is worth it, the next plan is empty, and no tablet goes where the placement does not want it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.clients.cluster.upkeep.balance_plan import plan_moves
from nyala.clients.cluster.upkeep.balance_report import MEASURES, BalancePlan, TabletLoad

Cluster = tuple[list[TabletLoad], dict[str, float]]


def tablets_on(counts: Mapping[str, int], table: str = "t", bytes: int = 100) -> list[TabletLoad]:
    """Tablets of a table that may be on all of these servers."""
    numbers = [(server, number) for server, count in counts.items() for number in range(1, count + 1)]
    return [TabletLoad(table, number, server, bytes, servers=tuple(counts)) for server, number in numbers]


def even(*names: str) -> dict[str, float]:
    return dict.fromkeys(names, 1.0)


def carried_out(tablets: Sequence[TabletLoad], plan: BalancePlan) -> list[TabletLoad]:
    """The tablets after a plan. Their numbers stay, which are new after real moves: no plan looks at them."""
    moved = {(move.table, move.source, move.tablet): move.to for move in plan.moves}
    return [replace(each, server=moved.get((each.table, each.server, each.tablet), each.server)) for each in tablets]


def counts(tablets: Sequence[TabletLoad], names: Sequence[str]) -> list[int]:
    return [sum(each.server == name for each in tablets) for name in names]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"a": 8, "b": 0, "c": 0, "d": 0}, [2, 2, 2, 2]),
        ({"a": 9, "b": 0}, [5, 4]),
        ({"a": 2, "b": 1}, [2, 1]),
        ({"a": 4, "b": 4, "c": 1}, [3, 3, 3]),
        ({"a": 1, "b": 0}, [1, 0]),
    ],
)
def test_equal_tablets_are_spread_evenly(before: dict[str, int], after: list[int]) -> None:
    tablets = tablets_on(before)
    plan = plan_moves(tablets, even(*before))
    assert sorted(counts(carried_out(tablets, plan), list(before)), reverse=True) == after
    assert len(plan.moves) == sum(max(was - now, 0) for was, now in zip(before.values(), after, strict=True))
    assert plan.bytes == 100 * len(plan.moves)


def test_each_table_is_spread_where_the_cluster_is_even() -> None:
    tablets = [*tablets_on({"a": 4, "b": 0}, "t"), *tablets_on({"a": 0, "b": 4}, "u")]
    assert plan_moves(tablets, even("a", "b"), ["bytes", "tablets"]).moves == []
    after = carried_out(tablets, plan_moves(tablets, even("a", "b")))
    for table in "tu":
        assert counts([each for each in after if each.table == table], "ab") == [2, 2]


def test_bytes_count_where_tablets_are_even() -> None:
    large = tablets_on({"a": 2}, "large", 10_000)
    small = tablets_on({"b": 2}, "small", 1)
    tablets = [replace(each, servers=("a", "b")) for each in [*large, *small]]
    after = carried_out(tablets, plan_moves(tablets, even("a", "b"), ["bytes"]))
    assert counts([each for each in after if each.table == "large"], "ab") == [1, 1]


@pytest.mark.parametrize("measure", ["reads", "writes"])
def test_rates_count(measure: str) -> None:
    field = {"reads": "rows_read", "writes": "rows_written"}[measure]
    hot = [replace(each, **{field: 1000}) for each in tablets_on({"a": 2, "b": 0}, "hot", 0)]
    cold = tablets_on({"a": 0, "b": 2}, "cold", 0)
    plan = plan_moves([*hot, *cold], even("a", "b"), [measure])
    assert [(move.table, move.to) for move in plan.moves] == [("hot", "b")]
    assert plan.deviation_before[measure] == 1 and plan.deviation_after[measure] == 0


def test_weights_are_shares() -> None:
    tablets = tablets_on({"a": 12, "b": 0, "c": 0})
    plan = plan_moves(tablets, {"a": 1.0, "b": 2.0, "c": 3.0})
    assert counts(carried_out(tablets, plan), "abc") == [2, 4, 6]
    assert [each.share for each in plan.after] == [1 / 6, 1 / 3, 1 / 2]


def test_a_server_without_weight_is_emptied() -> None:
    tablets = tablets_on({"a": 3, "b": 3, "c": 3})
    plan = plan_moves(tablets, {"a": 1.0, "b": 1.0, "c": 0.0})
    assert sorted(counts(carried_out(tablets, plan), "abc")) == [0, 4, 5]
    assert all(move.source == "c" for move in plan.moves)


def test_a_rule_names_a_server_without_weight() -> None:
    tablets = [replace(each, servers=("c",)) for each in tablets_on({"a": 2, "b": 1, "c": 1})]
    plan = plan_moves(tablets, {"a": 1.0, "b": 1.0, "c": 0.0})
    assert counts(carried_out(tablets, plan), "abc") == [0, 0, 4]
    assert all(move.to == "c" for move in plan.moves)


def test_the_servers_of_a_table_are_kept_to() -> None:
    tablets = [replace(each, servers=("b", "c")) for each in tablets_on({"a": 2, "b": 4, "c": 0})]
    after = carried_out(tablets, plan_moves(tablets, even("a", "b", "c")))
    assert counts(after, "abc") == [0, 3, 3]


def test_a_small_difference_is_not_worth_a_move() -> None:
    tablets = tablets_on({"a": 102, "b": 98}, bytes=0)
    assert plan_moves(tablets, even("a", "b"), margin=0.05).moves == []
    assert len(plan_moves(tablets, even("a", "b"), margin=0).moves) == 2


def test_at_most_so_many_moves() -> None:
    tablets = tablets_on({"a": 8, "b": 0})
    assert [len(plan_moves(tablets, even("a", "b"), moves_max=most).moves) for most in (0, 1, 3, 9)] == [0, 1, 3, 4]


def test_the_move_that_helps_most_is_first() -> None:
    tablets = [
        TabletLoad("t", number, "a", size, servers=("a", "b")) for number, size in enumerate((100, 600, 300), start=1)
    ]
    plan = plan_moves(tablets, even("a", "b"), ["bytes"], moves_max=1)
    assert [move.bytes for move in plan.moves] == [600]


def test_nothing_is_to_do_for_no_tablets() -> None:
    plan = plan_moves([], even("a", "b"))
    assert plan.moves == [] and [each.tablets for each in plan.before] == [0, 0]


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    names = "abcde"[: draw(st.integers(1, 5))]
    weights = {name: float(draw(st.integers(0, 3))) for name in names}
    weights[names[0]] = weights[names[0]] or 1.0
    amounts = st.sampled_from([0, 1, 7, 100, 12_345_678_901])
    tablets: list[TabletLoad] = []
    for table in "tuv"[: draw(st.integers(1, 3))]:
        servers = tuple(draw(st.sets(st.sampled_from(names))))
        for number in range(1, draw(st.integers(0, 9)) + 1):
            load = [draw(amounts) for _ in range(3)]
            tablets.append(TabletLoad(table, number, draw(st.sampled_from(names)), *load, servers=servers))
    return tablets, weights


measures = st.lists(st.sampled_from(MEASURES), min_size=1, unique=True)
margins = st.sampled_from([0.0, 0.01, 0.05, 0.5])


@given(clusters(), measures, margins)
def test_the_next_plan_is_empty(cluster: Cluster, by: list[str], margin: float) -> None:
    tablets, weights = cluster
    after = carried_out(tablets, plan_moves(tablets, weights, by, margin))
    assert plan_moves(after, weights, by, margin).moves == []
    assert plan_moves(after[::-1], weights, by, margin).moves == []


@given(clusters(), measures, margins)
def test_tablets_go_where_they_may_and_each_once(cluster: Cluster, by: list[str], margin: float) -> None:
    tablets, weights = cluster
    known = {(each.table, each.server, each.tablet): each for each in tablets}
    plan = plan_moves(tablets, weights, by, margin)
    assert len({(move.table, move.source, move.tablet) for move in plan.moves}) == len(plan.moves)
    for move in plan.moves:
        each = known[move.table, move.source, move.tablet]
        assert move.to in wanted(each, weights) and move.to != move.source
        assert move.bytes == each.bytes
    for each in carried_out(tablets, plan):
        assert each.server in wanted(each, weights) or not each.servers


def wanted(tablet: TabletLoad, weights: Mapping[str, float]) -> Sequence[str]:
    """Servers without weight get only what no other one may have."""
    return [name for name in tablet.servers if weights[name]] or tablet.servers


@given(clusters(), measures, margins)
def test_it_ends_where_no_move_is_worth_it(cluster: Cluster, by: list[str], margin: float) -> None:
    """By the definition of the sum that a plan lowers, in exact numbers."""
    tablets, weights = cluster
    after = carried_out(tablets, plan_moves(tablets, weights, by, margin))
    cost = imbalance(after, weights, by)
    for place, each in enumerate(after):
        weight = sum(share(after, place, name) * parts(after, by, name) for name in by)
        for name in each.servers:
            if weights[name] and each.server in each.servers and weights[each.server]:
                moved = [*after[:place], replace(each, server=name), *after[place + 1 :]]
                gain = (cost - imbalance(moved, weights, by)) / 2
                assert gain <= max(Fraction(margin), Fraction(1, 10**8)) * weight * (1 + Fraction(1, 10**6))


@given(clusters(), measures)
def test_it_never_makes_the_spread_worse(cluster: Cluster, by: list[str]) -> None:
    tablets, weights = cluster
    tablets = [each for each in tablets if each.server in each.servers and weights[each.server]]
    after = carried_out(tablets, plan_moves(tablets, weights, by, 0.0))
    assert imbalance(after, weights, by) <= imbalance(tablets, weights, by)


AMOUNTS: dict[str, Callable[[TabletLoad], int]] = {
    "bytes": lambda each: each.bytes,
    "tablets": lambda each: 1,
    "reads": lambda each: each.rows_read,
    "writes": lambda each: each.rows_written,
}


def share(tablets: Sequence[TabletLoad], place: int, name: str) -> Fraction:
    """What a tablet is of all."""
    if name == "tables":
        return Fraction(1, len(tablets))
    total = sum(map(AMOUNTS[name], tablets))
    return Fraction(AMOUNTS[name](tablets[place]), total) if total else Fraction(0)


def parts(tablets: Sequence[TabletLoad], by: Sequence[str], name: str) -> int:
    """How often a measure counts: the tables as often as all others that there is anything of."""
    others = [other for other in by if other != "tables" and any(map(AMOUNTS[other], tablets))]
    return max(len(others), 1) if name == "tables" else 1


def imbalance(tablets: Sequence[TabletLoad], weights: Mapping[str, float], by: Sequence[str]) -> Fraction:
    """The sum over measures and servers of load ** 2 * share of the weights."""
    found = Fraction(0)
    for name in by:
        if name != "tables":
            found += _squares(tablets, weights, AMOUNTS[name])
            continue
        factor = parts(tablets, by, name)
        for table in {each.table for each in tablets}:
            mine = [each for each in tablets if each.table == table]
            allowed = {server for each in mine for server in each.servers}
            some = {server: weight for server, weight in weights.items() if server in allowed}
            found += factor * Fraction(len(mine), len(tablets)) * _squares(mine, some, AMOUNTS["tablets"])
    return found


def _squares(
    tablets: Sequence[TabletLoad], weights: Mapping[str, float], amount: Callable[[TabletLoad], int]
) -> Fraction:
    total, weight = sum(map(amount, tablets)), sum(map(Fraction, weights.values()))
    found = Fraction(0)
    for server, mine in weights.items():
        if mine and total:
            part = Fraction(sum(amount(each) for each in tablets if each.server == server), total)
            found += part**2 * weight / Fraction(mine)
    return found
