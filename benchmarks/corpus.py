"""Run a corpus of grids and check every run by independent arithmetic, one row each.

    python benchmarks/corpus.py [--only PATTERN] [--size small|medium|large] [--mode NAME ...]
                                [--seeds N] [--set NAME=VALUE ...] [--timeout SECONDS]
                                [--out FILE.csv] [--markdown docs/corpus.md] [--list]

A row is a grid, a partition, a load scale and a mode. A finished row is appended to the CSV file at
once; a restarted command skips the rows that are there. A run that fails is a row with its error.
Sizes: small up to 120 buses, medium up to 600, large beyond. Modes: ``central`` and ``rounds``
without noise; ``shortage``, rounds without noise at loads above what the grid can serve;
``private``, default noise; ``hedge``, a central schedule with strong noise (10 MW, total 1).

Values of a row are computed by judge.py, not by gridpriv. Grids need the extras ``cases``,
``metis`` and ``simbench``; without one its grids are rows with an error. Extended wards of
pandapower's ``example_multivoltage`` are taken out of service.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import io
import multiprocessing
import os
import re
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from judge import (
    PIECEWISE,
    ROUNDING_PU,
    Facts,
    Judgement,
    figure_difference,
    is_judged,
    polar_cost,
    read_statements,
    reported_state,
)

import gridpriv
from gridpriv.cli.run import summarise
from gridpriv.core.errors import GridprivError, GridprivWarning
from gridpriv.grid.case import Case
from gridpriv.power.ac.model import NOTIONAL_COST
from gridpriv.power.ac.optimum import AcOptimum, acopf
from gridpriv.power.objective import has_convex_costs
from gridpriv.zonal.result import RunResult
from gridpriv.zonal.run import reference
from gridpriv.zonal.settings import Settings, make_settings

ROOT = Path(__file__).parents[1]
SMALL, MEDIUM = 120, 600
POLAR_BUSES = 300
"""Largest grid on which the AC optimum is solved by a second formulation."""
GAP_PERCENT = 0.3
"""Optimality gap above which a row is listed."""
SERVABLE_WITHIN = {"small": 2e-3, "medium": 2e-3, "large": 2e-2}
"""Relative width at which the bisection for the largest load that can be served ends."""
MOST_BISECTED = 5000
"""Buses up to which that load is looked for."""
MOST_SCALE = 8.0

Partition = tuple[int, str]

MATPOWER = {
    "case5": 5,
    "case6ww": 6,
    "case9": 9,
    "case14": 14,
    "case24_ieee_rts": 24,
    "case30": 30,
    "case30pwl": 30,
    "case33bw": 33,
    "case39": 39,
    "case57": 57,
    "case_RTS_GMLC": 73,
    "case89pegase": 89,
    "case118": 118,
    "case145": 145,
    "case_ACTIVSg200": 200,
    "case300": 300,
    "case_ACTIVSg500": 500,
    "case1354pegase": 1354,
    "case1888rte": 1888,
    "case_ACTIVSg2000": 2000,
    "case2383wp": 2383,
    "case2736sp": 2736,
    "case2869pegase": 2869,
    "case3120sp": 3120,
    "case9241pegase": 9241,
}
PGLIB = {
    "3_lmbd": 3,
    "5_pjm": 5,
    "14_ieee": 14,
    "24_ieee_rts": 24,
    "30_as": 30,
    "30_ieee": 30,
    "39_epri": 39,
    "57_ieee": 57,
    "60_c": 60,
    "73_ieee_rts": 73,
    "89_pegase": 89,
    "118_ieee": 118,
    "162_ieee_dtc": 162,
    "179_goc": 179,
    "197_snem": 197,
    "200_activ": 200,
    "240_pserc": 240,
    "300_ieee": 300,
    "500_goc": 500,
    "588_sdet": 588,
    "793_goc": 793,
    "1354_pegase": 1354,
    "1803_snem": 1803,
    "1888_rte": 1888,
    "1951_rte": 1951,
    "2000_goc": 2000,
    "2312_goc": 2312,
    "2383wp_k": 2383,
    "2736sp_k": 2736,
    "2737sop_k": 2737,
    "2742_goc": 2742,
    "2746wop_k": 2746,
    "2746wp_k": 2746,
    "2848_rte": 2848,
    "2853_sdet": 2853,
    "2868_rte": 2868,
    "2869_pegase": 2869,
}
PANDAPOWER = {
    "case_ieee30": 30,
    "create_cigre_network_hv": 13,
    "create_cigre_network_mv": 18,
    "create_cigre_network_lv": 41,
    "example_multivoltage": 29,
    "example_simple": 6,
    "simple_mv_open_ring_net": 8,
    "GBreducednetwork": 29,
    "create_kerber_dorfnetz": 116,
    "case_illinois200": 200,
    "mv_oberrhein": 185,
    "iceland": 189,
}
SIMBENCH = {"1-LV-rural1--0-sw": 15, "1-HV-mixed--0-no_sw": 64, "1-MV-rural--0-sw": 101}
SHIFTED = (0.8, 1.3)
BEYOND = 1.05
SHORTAGES = (1.05, 1.2)
MODES: dict[str, dict[str, Any]] = {
    "central": {"mechanism": "none", "coordination": "central"},
    "rounds": {"mechanism": "none"},
    "shortage": {"mechanism": "none"},
    "private": {},
    "hedge": {"coordination": "central", "mechanism": "knorm", "beta": "10MW", "budget": "total:1"},
}
MEANINGS = {
    "central": "noise-free runs; one AC optimization schedules all zones, without rounds.",
    "rounds": "noise-free runs; zones find the schedule in rounds on the AC equations.",
    "shortage": "as *rounds*, at loads above what the grid can serve.",
    "private": "runs with the default noise.",
    "hedge": "central schedules with noise (10 MW, total epsilon 1).",
}


def size_of(buses: int) -> str:
    """Return the class of a grid by its number of buses."""
    return "small" if buses <= SMALL else "medium" if buses <= MEDIUM else "large"


@dataclass(frozen=True)
class Instance:
    """Inputs of one row: a grid, a partition, a load scale and a mode.

    Attributes
    ----------
    buses : int
        Of the source; sorts rows and estimates time.
    scale : str
        Factor on every demand, or ``limit*X`` for X times the largest factor that can be served.
    seed : int
        Of the noise; 0 where there is none.
    """

    grid: str
    buses: int
    zones: int
    method: str
    scale: str
    mode: str
    seed: int = 0

    @property
    def label(self) -> str:
        """Text that ``--only`` is matched against."""
        seed = f" seed {self.seed}" if self.seed else ""
        return f"{self.grid} x{self.scale} {self.zones} {self.method} {self.mode}{seed}"

    @property
    def size(self) -> str:
        """Class of the grid by its number of buses."""
        return size_of(self.buses)


@dataclass(frozen=True)
class Row:
    """One line of the table; values of judge.py unless ``printed``.

    ``cost`` is generation and shed load in $/h; on grids without convex costs it is generation in
    MW plus shed load at the same ratio (``unit``). None: does not apply, or no AC state.
    ``ac_rounds`` is -1 where AC rounds did not converge.
    """

    grid: str
    buses: int
    zones: int
    method: str
    scale: str
    mode: str
    seed: int
    load_scale: float | None = None
    status: str = ""
    printed_status: str = ""
    shed_mw: float | None = None
    least_shed_mw: float | None = None
    cost: float | None = None
    optimum_cost: float | None = None
    unit: str = ""
    gap_percent: float | None = None
    balancing_mw: float | None = None
    curtailed_mw: float | None = None
    violations: int | None = None
    worst_pu: float | None = None
    worst_at: str = ""
    ac_rounds: int | None = None
    soc_rounds: int | None = None
    replans: int | None = None
    seconds: float | None = None
    balance_mva: float | None = None
    figure_difference: float | None = None
    generators_outside: int | None = None
    second_optimum_percent: float | None = None
    statements: int | None = None
    wrong: str = ""
    unknown: str = ""
    error: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """Identity of the row in a table."""
        names = (column.name for column in fields(Instance) if column.name != "buses")
        return tuple(str(getattr(self, name)) for name in names)


COLUMNS = [column.name for column in fields(Row)]


# --- instances ---------------------------------------------------------------------------------


def grids() -> dict[str, int]:
    """Return every grid of the corpus with its number of buses."""
    pglib = {
        f"pglib_opf_case{name}{variant}": buses
        for name, buses in PGLIB.items()
        for variant in ("", "__api", "__sad")
    }
    by_name = {f"pandapower:{name}": buses for name, buses in PANDAPOWER.items()}
    by_name |= {f"simbench:{name}": buses for name, buses in SIMBENCH.items()}
    return dict(sorted((MATPOWER | pglib | by_name).items(), key=lambda item: item[1]))


def partitions(buses: int) -> tuple[Partition, ...]:
    """Return zone counts and methods for a grid, the first for every load scale."""
    for most, chosen in (
        (3, ((2, "spectral"),)),
        (12, ((2, "spectral"), (3, "louvain"))),
        (20, ((3, "spectral"), (4, "louvain"), (2, "kernighan-lin"))),
        (50, ((3, "spectral"), (5, "louvain"), (4, "kernighan-lin"))),
        (SMALL, ((4, "spectral"), (10, "louvain"), (3, "kernighan-lin"))),
        (MEDIUM, ((6, "spectral"), (20, "louvain"), (10, "metis"))),
        (5000, ((30, "metis"), (10, "kernighan-lin"), (80, "louvain"))),
    ):
        if buses <= most:
            return chosen
    return ((350, "metis"), (100, "metis"), (50, "louvain"))


def instances(modes: Sequence[str], seeds: int) -> list[Instance]:
    """Return the whole corpus in the order of its grids' sizes."""
    return [
        Instance(grid, buses, *partition, scale, mode, seed)
        for grid, buses in grids().items()
        for mode in modes
        for partition, scale in _studied(grid, buses, mode)
        for seed in (range(1, seeds + 1) if mode in {"private", "hedge"} else [0])
    ]


def _studied(grid: str, buses: int, mode: str) -> Iterator[tuple[Partition, str]]:
    chosen = partitions(buses)
    if mode == "shortage":
        if buses <= MOST_BISECTED:
            yield from ((chosen[0], f"limit*{factor:g}") for factor in SHORTAGES)
        return
    yield from (
        (instance, "1") for instance in (chosen if mode in {"central", "rounds"} else chosen[:1])
    )
    if mode in {"central", "rounds"} and not grid.endswith(("__api", "__sad")):
        yield from ((chosen[0], f"{factor:g}") for factor in SHIFTED)
        if buses <= MOST_BISECTED:
            yield chosen[0], f"limit*{BEYOND:g}"


@lru_cache(maxsize=2)
def loaded(grid: str) -> Case:
    """Return a grid as gridpriv reads it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not grid.startswith("pandapower:"):
            return gridpriv.load_case(grid)
        import pandapower.networks

        name = grid.removeprefix("pandapower:")
        net = getattr(pandapower.networks, name)()
        net.xward["in_service"] = False  # gridpriv refuses extended wards
        return gridpriv.case_from_pandapower(net, name)


@lru_cache(maxsize=4)
def largest_scale(grid: str) -> float:
    """Return the largest factor on demand at which the AC optimum sheds nothing.

    Raises
    ------
    GridprivError
        If no demand at all can be served, or :data:`MOST_SCALE` times the demand.
    """
    case = loaded(grid)

    def serves(scale: float) -> bool:
        try:
            state = acopf(case.scale_load(scale), "shed").state
        except GridprivError:
            return False
        return state.shed_mw <= ROUNDING_PU * case.base_mva and not state.violations

    low, high = next(((s, s * 1.5) for s in (1.0, 0.6, 0.3, 0.1) if serves(s)), (0.0, 0.0))
    if not low:
        raise GridprivError("the AC optimum sheds load at a tenth of the demand")
    while serves(high):
        low, high = high, 1.5 * high
        if low > MOST_SCALE:
            raise GridprivError(f"{MOST_SCALE:g} times the demand is served")
    while high / low > 1.0 + SERVABLE_WITHIN[size_of(case.n_bus)]:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if serves(middle) else (low, middle)
    return low


def load_scale(instance: Instance) -> float:
    """Return the factor on demand of an instance."""
    if instance.scale.startswith("limit*"):
        return largest_scale(instance.grid) * float(instance.scale.removeprefix("limit*"))
    return float(instance.scale)


# --- one row -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Best:
    """AC optimum of a grid at a load scale.

    Attributes
    ----------
    cost : float or None
        In the unit of :attr:`Row.cost`; None where there is no optimum.
    second_percent : float or None
        Cost of an independent formulation above it; None where that was not tried.
    """

    cost: float | None
    shed_mw: float | None
    least_shed_mw: float | None
    second_percent: float | None
    error: str


@lru_cache(maxsize=8)
def best(grid: str, scale: float, voll: float) -> Best:
    """Return the AC optimum of a grid."""
    case = loaded(grid).scale_load(scale)
    priced = has_convex_costs(case)
    try:
        optimum = acopf(case, "cost" if priced else "losses", voll)
    except GridprivError as error:
        return Best(None, None, None, None, f"AC optimum: {error}")
    shed = optimum.state.shed_mw
    least = acopf(case, "shed").state.shed_mw if shed > ROUNDING_PU * case.base_mva else shed
    cost = optimum.cost
    if not priced:
        cost = case.base_mva * float(optimum.state.pg.sum()) + shed_price(voll, priced=False) * shed
    second, problem = _second(case, optimum, cost, shed_price(voll, priced=priced))
    return Best(cost, shed, least, second, problem)


def shed_price(voll: float, *, priced: bool) -> float:
    """Return the price of a MW of shed load in the unit of a row's cost."""
    return voll if priced else voll / NOTIONAL_COST


def _second(
    case: Case, optimum: AcOptimum, cost: float | None, price: float
) -> tuple[float | None, str]:
    """Return the excess of an independent AC optimum in percent, and why there is none."""
    priced, least = optimum.objective == "cost", ROUNDING_PU * case.base_mva
    if priced and any(curve.model == PIECEWISE for curve in case.cost):
        return None, ""
    curtails = optimum.state.curtailed_mw > least or optimum.state.deenergized.any()
    if case.n_bus > POLAR_BUSES or not cost or curtails:
        return None, ""
    sheds = optimum.state.shed_mw > least
    try:
        second = polar_cost(case, price, sheds=sheds, priced=priced)
    except AssertionError as error:
        return None, f"second AC optimum: {error}"
    return 100.0 * (second - cost) / abs(cost), ""


def settings_of(instance: Instance, scale: float, given: dict[str, str]) -> Settings:
    """Return the settings of an instance; ``given`` ones override its mode's."""
    chosen = MODES[instance.mode] | given
    if instance.seed:
        chosen = chosen | {"seed": instance.seed}
    return make_settings(**chosen, load_scale=scale)


def run_and_print(instance: Instance, scale: float, given: dict[str, str]) -> tuple[RunResult, str]:
    """Return the result of a run, and the output of ``gridpriv run``."""
    case = loaded(instance.grid)
    settings = settings_of(instance, scale, given)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GridprivWarning)
        zoning = gridpriv.partition(case, instance.zones, instance.method)
        result = gridpriv.run(case, zoning, settings)
    printed = io.StringIO()
    if settings.mechanism != "none":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = replace(result, reference=reference(result, scale))
    document = result.as_dict()
    for message in document["messages"]:
        is_judged(message["code"])
    with redirect_stdout(printed):
        summarise(document)
    warned = dict.fromkeys(
        f"warning: {w.message}" for w in caught if issubclass(w.category, GridprivWarning)
    )
    return result, "\n".join([*warned, printed.getvalue()])


def judged(instance: Instance, given: dict[str, str]) -> Row:
    """Run an instance and return its row, computed by judge.py."""
    row = Row(**{column.name: getattr(instance, column.name) for column in fields(Instance)})
    scale = load_scale(instance)
    row = replace(row, load_scale=scale)
    result, text = run_and_print(instance, scale, given)
    settings, case, physical = result.settings, result.case, result.physical
    on_ac = result.as_dict()["final"]["ac_rounds"]
    top = best(instance.grid, scale, settings.voll)
    priced = has_convex_costs(case)
    state = reported_state(result)
    judgement = None if state is None else Judgement(case, state, settings.voll)
    facts = Facts(
        result,
        judgement,
        {
            "cost": top.cost if priced else None,
            "shed_mw": top.shed_mw if priced else top.least_shed_mw,
            "least_shed_mw": top.least_shed_mw,
        },
    )
    reading = read_statements(text, facts)
    row = replace(
        row,
        status="infeasible" if judgement is None else judgement.status,
        printed_status=_printed_status(physical),
        least_shed_mw=top.least_shed_mw,
        optimum_cost=top.cost,
        unit="$/h" if priced else "MW",
        ac_rounds=0 if on_ac is None else on_ac["rounds"] if on_ac["converged"] else -1,
        soc_rounds=0 if settings.coordination == "central" else len(result.trace.rounds),
        replans=physical.get("replans"),
        seconds=result.timing.total,
        second_optimum_percent=top.second_percent,
        statements=reading.checked,
        wrong=" | ".join(reading.wrong),
        unknown=" | ".join(reading.unknown),
        error=top.error,
    )
    if judgement is None:
        failure = getattr(result.redispatch, "failure", result.early)
        return replace(row, error=f"no AC state: {failure}; {row.error}".strip("; "))
    shed = judgement.figures["shed_mw"]
    cost = (
        judgement.figures["cost"]
        if priced
        else (judgement.generation_mw + shed_price(settings.voll, priced=False) * shed)
    )
    difference, name = figure_difference(judgement, physical)
    return replace(
        row,
        shed_mw=shed,
        cost=cost,
        gap_percent=100.0 * (cost - top.cost) / abs(top.cost)
        if cost is not None and top.cost
        else None,
        balancing_mw=judgement.figures["balancing_mw"],
        curtailed_mw=judgement.figures["curtailed_mw"],
        violations=len(judgement.violations),
        worst_pu=0.0 if judgement.worst is None else judgement.worst.amount,
        worst_at="" if judgement.worst is None else f"{judgement.worst.kind} {judgement.worst.at}",
        balance_mva=judgement.balance_mva,
        figure_difference=difference,
        generators_outside=judgement.overloaded_generators,
        wrong=" | ".join([*reading.wrong, *([name] if difference > 1e-5 else [])]),
    )


def _printed_status(physical: dict[str, Any]) -> str:
    """Return the status that gridpriv prints."""
    if "status" in physical:
        return str(physical["status"])
    return "feasible" if physical["ac_feasible"] else "infeasible"


def safely(instance: Instance, given: dict[str, str]) -> Row:
    """Return the row of an instance; if it fails, with its error."""
    try:
        return judged(instance, given)
    except Exception as error:
        if not isinstance(error, GridprivError):
            traceback.print_exc(limit=-3)
        return failed(instance, f"{type(error).__name__}: {error}")


def failed(instance: Instance, error: str) -> Row:
    """Return the row of an instance that ended with an error."""
    blank = Row(**{column.name: getattr(instance, column.name) for column in fields(Instance)})
    return replace(blank, status="error", error=" ".join(error.split())[:400])


# --- the table ---------------------------------------------------------------------------------


def stored(path: Path) -> list[Row]:
    """Return the rows of a CSV file; an incomplete last line is removed."""
    if not path.exists():
        return []
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    rows = [
        Row(**{name: _read(name, value) for name, value in line.items() if name in COLUMNS})
        for line in csv.DictReader(io.StringIO(whole))
    ]
    written = _csv(rows)
    if written != text:  # cut off, or of other columns
        path.write_text(written)
    return rows


def _csv(rows: Sequence[Row], *, header: bool = True) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if header:
        writer.writerow(COLUMNS)
    for row in rows:
        values = [getattr(row, name) for name in COLUMNS]
        writer.writerow([f"{v:.9g}" if isinstance(v, float) else v for v in values])
    return out.getvalue()


def _read(name: str, text: str) -> Any:
    kind = str(Row.__annotations__[name])
    if kind == "str":
        return text
    if text == "":
        return None
    return int(text) if kind.startswith("int") else float(text)


def append(path: Path, row: Row) -> None:
    """Add a row to a CSV file, with the header if the file is new."""
    new = not path.exists() or path.stat().st_size == 0
    with path.open("a", newline="") as file:
        file.write(_csv([row], header=new))
        file.flush()
        os.fsync(file.fileno())


def effort(instance: Instance) -> float:
    """Return the expected time of an instance in arbitrary units."""
    return 20.0 + instance.buses * (3.0 if instance.mode != "central" else 1.0)


def run_all(
    remaining: Sequence[Instance], path: Path, given: dict[str, str], timeout: float
) -> None:
    """Run instances one after the other in another process, and append their rows."""
    began, done, total = time.perf_counter(), 0.0, sum(map(effort, remaining))
    pool = multiprocessing.Pool(1)
    for number, instance in enumerate(remaining, 1):
        try:
            row = pool.apply_async(safely, (instance, given)).get(timeout)
        except multiprocessing.TimeoutError:  # a solver that runs hears no signal: it is killed
            pool.terminate()
            pool = multiprocessing.Pool(1)
            row = failed(instance, f"stopped after {timeout:g} s")
        append(path, row)
        done += effort(instance)
        spent = time.perf_counter() - began
        gap = "" if row.gap_percent is None else f" gap {row.gap_percent:.3f} %"
        print(
            f"[{number}/{len(remaining)}, {spent * (total / done - 1) / 60:.0f} min left] "
            f"{instance.label}: {row.status}{gap} {row.error[:100]}"
            f"{' WRONG ' + row.wrong[:160] if row.wrong else ''}",
            flush=True,
        )
    pool.terminate()


def remarkable(row: Row) -> bool:
    """Return True if a row is listed: not feasible, no AC optimum, or a gap above the aim."""
    listed = row.status != "feasible" or bool(row.error)
    return listed or abs(row.gap_percent or 0.0) > GAP_PERCENT


def _cell(value: Any, digits: int = 4) -> str:
    if value is None:
        return ""
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def _lines(rows: Sequence[Row], columns: dict[str, str]) -> list[str]:
    head = f"| {' | '.join(columns.values())} |"
    rule = f"|{' --- |' * len(columns)}"
    body = []
    for row in rows:
        cells = [
            "not converged"
            if name == "ac_rounds" and value == -1
            else _cell(value, 7 if "cost" in name else 4)
            for name in columns
            for value in [getattr(row, name)]
        ]
        body.append(f"| {' | '.join(cells)} |")
    return [head, rule, *body]


SHOWN = {
    "grid": "grid",
    "buses": "buses",
    "zones": "zones",
    "method": "partition",
    "load_scale": "load x",
    "mode": "mode",
    "status": "status",
    "shed_mw": "shed MW",
    "least_shed_mw": "least shed MW",
    "cost": "cost",
    "optimum_cost": "AC optimum",
    "unit": "unit",
    "gap_percent": "gap %",
    "balancing_mw": "balancing MW",
    "violations": "violations",
    "worst_pu": "worst p.u.",
    "ac_rounds": "AC rounds",
    "soc_rounds": "SOC rounds",
    "seconds": "s",
}
LISTED = SHOWN | {"curtailed_mw": "curtailed MW", "worst_at": "worst at", "error": "remark"}


def page(rows: Sequence[Row], command: str) -> str:
    """Return the table as a page of the documentation."""
    sections = [
        "# Corpus",
        "",
        "Runs on grids of MATPOWER, PGLib-OPF, pandapower and simbench, checked by independent",
        "arithmetic (`benchmarks/judge.py`): power balance, limits at both branch ends, costs,",
        "interchange. A row is AC-feasible (`feasible`) if no limit is exceeded by more than",
        "rounding (0.0001 p.u. of voltage; 0.01 degree or 0.01 MVA, or 0.01 % of the limit where",
        "that is less). It is",
        "*marginal* up to 0.1 % of the element's rating or voltage limit, else *infeasible*. The",
        "gap is relative to the AC optimum of the whole grid, shed load included at the value of",
        "lost load. On grids",
        "without convex costs, cost is generation in MW plus 200 times the shed load in MW (10,000",
        "over 50 $/MWh, as the objective `losses` weighs them). *Statements* is the number of",
        "printed numbers and sentences that were checked; *wrong* is the number of rows with a",
        "false one.",
        "",
        *(f"- *{mode}*: {MEANINGS[mode]}" for mode in MODES if any(r.mode == mode for r in rows)),
        "",
        "*AC rounds* are rounds of all zones on the AC equations. *SOC rounds* are rounds on the",
        "SOC relaxation, used where AC rounds have not converged; after converged AC rounds the",
        "number is 1, the exchange of the AC schedule. In a central schedule both are 0.",
        "",
        f"Measured with gridpriv at commit {_commit()}, {_today()}.",
        "",
        "<!-- not run: takes minutes to hours -->",
        "```sh",
        command,
        "```",
        "",
        "| mode | rows | feasible | marginal | infeasible | error | gap within +-0.3 % "
        "| median gap % | AC rounds not converged | statements | wrong | largest mismatch MVA |",
        f"|{' --- |' * 12}",
        *(
            _summary(mode, [r for r in rows if r.mode == mode])
            for mode in MODES
            if any(r.mode == mode for r in rows)
        ),
        "",
        *_optimum_lines(rows),
        "",
        f"## Rows that are not feasible, more than {GAP_PERCENT:g} % from the AC optimum, or where "
        "the second solver found no optimum",
        "",
        "A negative gap belongs to a state that exceeds a limit, or is within rounding of it.",
        "",
        *_lines([r for r in rows if remarkable(r)], LISTED),
        "",
        "## All rows",
        "",
        *_lines(rows, SHOWN),
        "",
    ]
    return "\n".join(sections)


def _commit() -> str:
    """Return the last commit that changed the package."""
    command = ["git", "log", "-1", "--format=%h", "--", "gridpriv"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def _summary(mode: str, rows: Sequence[Row]) -> str:
    verdicts = ("feasible", "marginal", "infeasible", "error")
    counts = " | ".join(str(sum(row.status == verdict for row in rows)) for verdict in verdicts)
    gaps = [r.gap_percent for r in rows if r.gap_percent is not None]
    small = sum(abs(gap) <= GAP_PERCENT for gap in gaps)
    median = f"{np.median(gaps):.3g}" if gaps else ""
    balance = max((r.balance_mva for r in rows if r.balance_mva is not None), default=0.0)
    wrong = sum(bool(r.wrong) for r in rows)
    stuck = sum(r.ac_rounds == -1 for r in rows)
    checked = sum(r.statements or 0 for r in rows)
    return (
        f"| {mode} | {len(rows)} | {counts} | {small} of {len(gaps)} | {median} | {stuck} | "
        f"{checked} | {wrong} | {balance:.2g} |"
    )


def _optimum_lines(rows: Sequence[Row]) -> list[str]:
    """Return the difference of a second formulation's AC optimum from gridpriv's, in words."""
    each = {
        (r.grid, r.load_scale): r.second_optimum_percent
        for r in rows
        if r.second_optimum_percent is not None
    }
    if not each:
        return []
    differences = {key: value for key, value in each.items() if abs(value) > 1e-3}
    lines = [
        f"`gridpriv acopf` against a second formulation (polar, CasADi's derivatives) on "
        f"{len(each)} grids and load scales of at most {POLAR_BUSES} buses: "
        f"{len(each) - len(differences)} within 0.001 % in cost."
    ]
    if differences:
        named = ", ".join(f"{g} x{s:.4g} {v:+.3g} %" for (g, s), v in differences.items())
        lines.append(f"The others, with the cost of the second optimum above the first: {named}.")
    if max(differences.values(), default=0.0) > 100.0:
        lines.append(
            "Both are local solutions. If the second one costs more than twice as much, it sheds "
            "load that the grid can serve (example_multivoltage x1.3: 53 of 232 MW)."
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="PATTERN", help="regular expression")
    parser.add_argument("--size", choices=("small", "medium", "large"), help="default: all")
    parser.add_argument("--mode", nargs="*", choices=MODES, default=["central", "rounds"])
    parser.add_argument("--seeds", type=int, default=3, help="of modes with noise")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="run settings")
    parser.add_argument("--timeout", type=float, default=3600.0, metavar="SECONDS", help="per row")
    parser.add_argument("--out", type=Path, default=Path("corpus.csv"), metavar="FILE.csv")
    parser.add_argument("--markdown", type=Path, metavar="FILE.md", help="write a page")
    parser.add_argument("--list", action="store_true", help="print the rows to run, and run none")
    args = parser.parse_args()
    os.environ["COLUMNS"] = "4000"  # tables and sentences of a run unwrapped
    given = dict(pair.split("=", 1) for pair in args.set)
    wanted = [
        instance
        for instance in instances(args.mode, args.seeds)
        if args.size in {None, instance.size} and re.search(args.only, instance.label)
    ]
    there = {row.key for row in stored(args.out)}
    remaining = [instance for instance in wanted if _key(instance) not in there]
    if args.list:
        print("\n".join(instance.label for instance in remaining))
        return
    print(f"{len(wanted)} rows, {len(remaining)} to run", flush=True)
    run_all(remaining, args.out, given, args.timeout)
    keys = {_key(instance) for instance in wanted}
    rows = [row for row in stored(args.out) if row.key in keys]
    listed = [row for row in rows if remarkable(row) or row.wrong or row.unknown]
    for row in listed:
        print(
            f"{row.status:10s} gap {_cell(row.gap_percent)} % {' '.join(row.key)} {row.worst_at} "
            f"{row.error} {row.wrong} {row.unknown}"
        )
    if args.markdown is not None:
        words = [w for w in sys.argv[1:] if w not in {"--markdown", str(args.markdown)}]
        args.markdown.write_text(page(rows, " ".join(["python benchmarks/corpus.py", *words])))


def _key(instance: Instance) -> tuple[str, ...]:
    return Row(**{column.name: getattr(instance, column.name) for column in fields(Instance)}).key


if __name__ == "__main__":
    main()
