"""Measure costs after AC redispatch, by grid, noise, public prior and method.

    python benchmarks/release_costs.py measure rows.csv [--seeds N] [--cases A,B]
    python benchmarks/release_costs.py table rows.csv docs/where-a-release-pays.csv
    python benchmarks/release_costs.py figure docs/where-a-release-pays.csv figure.png

``measure`` appends a row per run and skips rows of the file, so it can be stopped and restarted.
Coordination is central: the cost of rounds is not part of the comparison.

The public prior is the estimate from capacity, or a file with normal errors of 10 or 30 % in the
demand of every zone and of every bus (one draw per grid, seed 0).
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from gridpriv.consensus.transport import ReusedAgents, in_process
from gridpriv.core.errors import GridprivWarning, SolverError
from gridpriv.grid.case import Case
from gridpriv.grid.library import load_case, zoning_of
from gridpriv.grid.zoning import Zoning
from gridpriv.zonal.prepared import prepare
from gridpriv.zonal.run import run_prepared
from gridpriv.zonal.settings import PRIOR_ONLY, Settings, make_settings

GRIDS = {
    "case14": ("case14", None, 1.0),
    "case24_ieee_rts": ("case24_ieee_rts", 3, 1.0),
    "case39": ("case39", None, 1.0),
    "case57": ("case57", None, 1.0),
    "case118": ("case118", None, 1.0),
    "case118 x1.8": ("case118", None, 1.8),
    "case300": ("case300", None, 1.0),
    "ACTIVSg500": ("case_ACTIVSg500", 5, 1.0),
}
PAIRS = ((10, 1.0), (10, 5.0), (20, 5.0), (10, 0.5), (20, 0.5))
"""beta in MW and total epsilon. Equal ratios draw equal noise: (20, 1) is (10, 0.5)."""
PRIORS = {"capacity": None, "10 %": 0.1, "30 %": 0.3}
SOLVER_ERROR_MW = 1e-5
RELEASES = ("bus", "total", "tree", "auto")
COLUMNS = (
    "grid",
    "prior",
    "method",
    "beta",
    "total",
    "seed",
    "status",
    "cost",
    "shed_mw",
    "balancing_mw",
)
KEY = COLUMNS[:6]
NOISES = (4, 8, 20, 40, 80)  # MW, of the pairs
FLOOR = 1e-3  # %, below which costs are drawn as equal


@dataclass(frozen=True)
class Cell:
    """One run: its labels, and the settings that make it."""

    labels: tuple[str, ...]
    settings: Settings


def prior_file(case: Case, zoning: Zoning, error: float, folder: Path) -> str:
    """Write a public demand that is off by a relative error in every zone and at every bus."""
    generator = np.random.default_rng(0)
    factor = 1.0 + error * generator.standard_normal(case.n_bus)
    for members in zoning.members:
        factor[members] *= 1.0 + error * generator.standard_normal()
    path = folder / f"{case.name}-{error:g}.csv"
    values = zip(
        case.bus_id, case.base_mva * factor * case.pd, case.base_mva * factor * case.qd, strict=True
    )
    lines = [f"{bus},{float(p)!r},{float(q)!r}\n" for bus, p, q in values]
    path.write_text("bus,pd_mw,qd_mvar\n" + "".join(lines), encoding="utf-8")
    return str(path)


def cells(grid: str, priors: dict[str, str | None], scale: float, seeds: int) -> Iterator[Cell]:
    """Yield every run of a grid; baselines once, then seed by seed."""
    common = make_settings(coordination="central", load_scale=scale, seed=0)
    yield Cell((grid, "", "noise-free", "", "", ""), replace(common, mechanism="none"))
    for prior, path in priors.items():
        silent = replace(common, public_demand=path, **PRIOR_ONLY)
        yield Cell((grid, prior, "prior-only", "", "", ""), silent)
    for seed, (prior, path), (beta, total), release in product(
        range(1, seeds + 1), priors.items(), PAIRS, RELEASES
    ):
        settings = make_settings(
            coordination="central",
            load_scale=scale,
            seed=seed,
            release=release,
            beta=f"{beta}MW",
            budget=f"total:{total}",
            public_demand=path,
        )
        yield Cell((grid, prior, release, str(beta), f"{total:g}", str(seed)), settings)


def measure(path: Path, grids: list[str], seeds: int) -> None:
    """Run the rows that the file lacks."""
    done = set()
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            done = {tuple(row[name] for name in KEY) for row in csv.DictReader(file)}
    else:
        path.write_text(",".join(COLUMNS) + "\n", encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, path.open("a", encoding="utf-8") as file:
        for grid in grids:
            name, zones, scale = GRIDS[grid]
            case = load_case(name)
            zoning = zoning_of(case, zones, None)
            assert zoning is not None
            priors = {
                prior: None if error is None else prior_file(case, zoning, error, Path(folder))
                for prior, error in PRIORS.items()
            }
            with closing(ReusedAgents(in_process)) as transport:
                for cell in cells(grid, priors, scale, seeds):
                    if cell.labels in done:
                        continue
                    try:
                        result = run_prepared(
                            prepare(case, zoning, cell.settings), transport=transport
                        ).physical
                        figures = [result[name] for name in COLUMNS[6:]]
                    except SolverError:
                        figures = ["none", "", "", ""]
                    file.write(",".join(map(str, (*cell.labels, *figures))) + "\n")
                    file.flush()


def cost_table(path: Path) -> pd.DataFrame:
    """Return costs over the noise-free run in %, one row per grid, prior, method and noise.

    Columns: ``over`` the mean over seeds with an AC-feasible outcome, ``error`` its standard error,
    ``runs`` and ``infeasible``, ``shed_mw`` and ``balancing_mw`` means.
    """
    rows = pd.read_csv(path)
    base = rows[rows["method"] == "noise-free"].set_index("grid")["cost"]
    rows["over"] = 100.0 * (rows["cost"] / rows["grid"].map(base) - 1.0)
    rows["infeasible"] = rows["status"].isin(["none", "infeasible"])
    rows["noise"] = 2.0 * rows["beta"] / rows["total"]
    rows.loc[rows["infeasible"], "over"] = np.nan
    # methods without draws have no noise; equal noise means equal draws
    private = rows[rows["method"] != "noise-free"].drop_duplicates(
        ["grid", "prior", "method", "noise", "seed"]
    )
    groups = private.groupby(["grid", "prior", "method", "noise"], dropna=False, sort=False)
    return groups.agg(
        over=("over", "mean"),
        error=("over", "sem"),
        runs=("over", "size"),
        infeasible=("infeasible", "sum"),
        shed_mw=("shed_mw", "mean"),
        balancing_mw=("balancing_mw", "mean"),
    ).reset_index()


def figures(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per grid, prior and noise: costs in %, balancing power, infeasible runs."""
    keys = ["grid", "prior", "noise"]
    silent = table[table["method"] == "prior-only"].set_index(keys[:2])
    released = table[table["method"].isin(RELEASES)].pivot(index=keys, columns="method")
    figures = released["over"].reindex(columns=RELEASES).add_suffix("_percent")
    places = figures.index.droplevel("noise")
    figures.insert(0, "prior_only_percent", silent["over"].loc[places].to_numpy())
    drawn = silent["balancing_mw"].loc[places].to_numpy()
    figures["prior_only_balancing_mw"] = np.where(drawn < SOLVER_ERROR_MW, 0.0, drawn)
    auto = released["balancing_mw", "auto"]
    figures["auto_balancing_mw"] = auto.where(auto >= SOLVER_ERROR_MW, 0.0)
    of_baseline = silent["infeasible"].loc[places].to_numpy()
    figures["infeasible_runs"] = (released["infeasible"].sum(axis=1) + of_baseline).astype(int)
    return figures.reset_index().rename(columns={"grid": "case", "noise": "noise_mw"})


def draw(table: pd.DataFrame, path: Path) -> None:
    """Draw one panel per case of the CSV file: the automatic release and prior-only."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator

    figure, axes = plt.subplots(2, 4, figsize=(11, 5.2), sharex=True, constrained_layout=True)
    colors = dict(zip(PRIORS, ("#0b5fa5", "#d1730f", "#3d8c40"), strict=True))
    cases = table["case"].unique()
    for ax, case in zip(axes.flat, cases, strict=False):
        for prior, color in colors.items():
            line = table[(table["case"] == case) & (table["prior"] == prior)]
            costs = line["auto_percent"].clip(lower=FLOOR)
            ax.plot(line["noise_mw"], costs, "o-", color=color, ms=3.5)
            ax.axhline(max(line["prior_only_percent"].iloc[0], FLOOR), color=color, ls="--", lw=1)
        ax.set(title=case, xscale="log", yscale="log", xlabel="noise: 2 beta / epsilon (MW)")
        ax.set_xticks(NOISES, [str(noise) for noise in NOISES])
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.minorticks_off()
        ax.grid(alpha=0.25)
        ax.tick_params(labelbottom=True)
    for ax in axes[:, 0]:
        ax.set_ylabel("cost over noise-free (%)")
    for ax in axes.flat[len(cases) :]:
        ax.axis("off")
    labels = ("capacity", "forecast, 10 % error", "forecast, 30 % error")
    handles = [
        plt.Line2D([], [], color=color, label=f"prior: {label}")
        for color, label in zip(colors.values(), labels, strict=True)
    ]
    grey = {"color": "0.3"}
    handles.append(plt.Line2D([], [], marker="o", ms=3.5, label="private release (auto)", **grey))
    handles.append(plt.Line2D([], [], ls="--", label="prior-only (epsilon = 0)", **grey))
    axes.flat[-1].legend(handles=handles, loc="center", frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("do", choices=("measure", "table", "figure"))
    parser.add_argument("rows", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--cases", default=",".join(GRIDS))
    args = parser.parse_args()
    warnings.simplefilter("ignore", GridprivWarning)
    if args.do == "measure":
        measure(args.rows, args.cases.split(","), args.seeds)
        return
    if args.do == "figure":
        draw(pd.read_csv(args.rows), args.out)
    else:
        figures(cost_table(args.rows)).to_csv(args.out, index=False, float_format="%.3g")


if __name__ == "__main__":
    main()
