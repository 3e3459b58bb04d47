"""Figures of a grid, a run, a study and a series; used by ``.plot`` of their results.

Every method takes ``ax``, Matplotlib axes to draw on (default: those of a new figure), and returns
the axes. ``axes.figure.savefig`` writes a file.

Readable copies of a run or series (CSV, JSON, pictures) are made from its tables and never read
back. A public folder has public tables only, so its copies are public.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, check_choice
from gridpriv.core.settings import shortest
from gridpriv.core.store import NETWORK_TABLES, Store, Study
from gridpriv.core.tables import publish
from gridpriv.core.text import Json, amount, counted, frame_csv, json_ready, number_text
from gridpriv.grid.case import Case
from gridpriv.grid.layout import network_tables
from gridpriv.grid.zoning import Zoning
from gridpriv.privacy.certificate import noise_caveat
from gridpriv.privacy.settings import NO_BUDGET, nominal_epsilon
from gridpriv.report.charts import convergence_charts, cost_chart, horizon_charts, horizon_figure
from gridpriv.report.contents import plan_tables
from gridpriv.report.curves import LOG_FROM, Chart, Series, tick
from gridpriv.report.figures import (
    Bar,
    Bars,
    Size,
    looks,
    set_title,
    stacked,
    styled_axes,
    write_figure,
)
from gridpriv.report.network import GridMap
from gridpriv.report.source import REDISPATCH_SHED, Metric, budget_words, cost_metric, summary
from gridpriv.study.record import STORED
from gridpriv.study.run_folder import RunFolder, releases_in, run_document
from gridpriv.zonal.documents import SERIES_FILE, SeriesDocument
from gridpriv.zonal.horizon import Horizon, HorizonResult, Stream
from gridpriv.zonal.prepared import zone_certificates
from gridpriv.zonal.result import RunResult, totals
from gridpriv.zonal.tables import result_tables

SIZE: Size = (6.4, 3.2)
"""Inches."""
Frames = tuple[pd.DataFrame, ...]


def zones_map(case: Case, zoning: Zoning) -> GridMap:
    """Return the map of a case's zones and tie lines (public)."""
    sizes = {"bus": case.n_bus, "branch": case.n_branch, "generator": case.n_gen}
    note = ", ".join(counted(number, noun) for noun, number in sizes.items())
    note += "; the source's coordinates" if case.xy is not None else "; laid out by distance"
    title = f"{case.name}: zones ({zoning.source})"
    return GridMap(title, *network_tables(case, zoning), note=note)


def loading_noun(flows: pd.DataFrame | None) -> str:
    """Return the name of the quantity by which a map colours branches."""
    rated = flows is None or flows["loading_percent"].notna().any()
    return "loading" if rated else "flow (MVA)"


def loading_map(
    name: str, network: Frames, shed: dict[int, float], flows: pd.DataFrame | None, **options: Any
) -> GridMap:
    """Return the map of load shedding per bus (MW) and loading per branch (local)."""
    total = sum(max(value, 0.0) for value in shed.values())
    note = f"load shedding: {number_text(total)} MW. Computed from true demand: not for publication"
    title = f"{name}: branch {loading_noun(flows)} and load shedding"
    return GridMap(title, network[0], network[1], shed=shed, flows=flows, note=note, **options)


def flows_of(study: Study) -> pd.DataFrame | None:
    """Return MVA and loading of every branch of a single run, where its folder has them."""
    lines = study.tables.get("res_line", pd.DataFrame())
    return None if lines.empty or "step" in lines else loading_of(lines)


def loading_of(lines: pd.DataFrame) -> pd.DataFrame:
    """Return per branch the larger end's ``mva``, and ``loading_percent`` (NaN: no limit)."""
    ends = [np.hypot(lines[f"p_{end}_mw"], lines[f"q_{end}_mvar"]) for end in ("from", "to")]
    mva = np.maximum(*ends).to_numpy()
    percent = lines["loading_percent"].to_numpy(dtype=float)
    return pd.DataFrame({"mva": mva, "loading_percent": percent})


@dataclass(frozen=True, eq=False)
class RunPlots:
    """Figures of a run; those of the zones and of the consensus residual are public.

    Every method takes ``ax``, ``figsize`` (inches of a new figure) and ``legend`` (True: draw it).
    """

    result: RunResult

    def convergence(
        self, ax: Axes | None = None, *, quantity: str = "consensus_residual", **options: Any
    ) -> Axes:
        """Draw a column of :attr:`RunResult.rounds` against the round.

        Parameters
        ----------
        quantity : {'consensus_residual', 'dual_residual', 'cost', 'objective', 'plan_shortage_mw'}

        Raises
        ------
        InputError
            For a quantity that the rounds do not have.
        """
        charts = convergence_charts(self.result.rounds)
        check_choice("quantity", quantity, charts)
        return _named(charts[quantity], self._name).plot(ax, **options)

    def zones(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw a map of the zones and their tie lines (public)."""
        return zones_map(self.result.case, self.result.zoning).plot(ax, **options)

    def network(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw a map of branch loading and load shedding."""
        tables = result_tables(self.result.solution)
        shed = {int(bus): float(mw) for bus, mw in tables["res_shed"]["p_mw"].items()}
        network = network_tables(self.result.case, self.result.zoning)
        drawn = loading_map(self._name, network, shed, loading_of(tables["res_line"]))
        return drawn.plot(ax, **options)

    def voltages(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw voltage magnitude (p.u.) at every bus, by zone, with its limits."""
        case = self.result.case
        value = result_tables(self.result.solution)["res_bus"]["vm_pu"].to_numpy()
        limits = {"lower limit": case.vmin, "upper limit": case.vmax}
        return self._by_bus(value, "voltage magnitude", "p.u.", limits).plot(ax, **options)

    def zone_prices(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw the price of active power to its zone at every bus, by zone."""
        prices = self.result.zone_prices
        if prices.empty:
            raise _empty("prices")
        value, unit = prices["p_price"].to_numpy(dtype=float), str(prices["p_unit"].iloc[0])
        return self._by_bus(value, "price of active power to its zone", unit, {}).plot(
            ax, **options
        )

    def loading(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw branch loading in falling order (% of limit; MVA where no branch has a limit)."""
        flows = loading_of(result_tables(self.result.solution)["res_line"])
        limited = flows.loading_percent.notna().any()
        column = flows.loading_percent if limited else flows.mva
        value = tuple(column.dropna().sort_values(ascending=False))
        series = [Series("branches", tuple(np.arange(1.0, len(value) + 1)), value)]
        if limited:
            series.append(Series("limit", (), (100.0,), flat=True))
        label, unit = ("loading (% of limit)", "%") if limited else ("flow (MVA)", "MVA")
        words = f"{self._name}: branch loading", "branches, in order of loading", label
        return Chart(*words, tuple(series), unit, log_from=math.inf).plot(ax, **options)

    def interchange(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw each zone's actual interchange (MW), its schedule marked; exports are positive."""
        rows = self.result.physical["interchange"]
        if not rows:
            raise _empty("interchange")
        bars = [
            Bar(
                f"zone {row['zone']}",
                (row["actual_mw"] or 0.0,),
                note=f"{amount(row['actual_mw'], 'MW')} MW",
                marks=(row["scheduled_mw"],),
            )
            for row in rows
        ]
        title, label = f"{self._name}: interchange", "interchange, exports positive (MW)"
        return Bars(title, label, bars, ("actual",), ("scheduled",)).plot(ax, **options)

    @property
    def _name(self) -> str:
        return str(self.result.case.name)

    def _by_bus(self, value: Floats, quantity: str, unit: str, limits: dict[str, Floats]) -> Chart:
        """Return a value at every bus, in the order of zones and bus numbers."""
        zoning, numbers = self.result.zoning, self.result.case.bus_id
        order = np.lexsort((numbers, zoning.zone_of))
        at, zone = np.arange(1.0, len(order) + 1), zoning.zone_of[order]
        series = [
            Series(f"zone {name}", tuple(at[zone == z]), tuple(value[order[zone == z]]))
            for z, name in enumerate(zoning.names)
        ]
        curves = looks([s.name for s in series])
        style = {name: look | {"linestyle": ""} for name, look in curves.items()}
        series += [Series(name, tuple(at), tuple(limit[order])) for name, limit in limits.items()]
        grey = {"color": "#777777", "linestyle": "--", "linewidth": 1.0, "marker": ""}
        words = f"{self._name}: {quantity}", "bus, by zone", f"{quantity} ({unit})"
        names, style = tuple(map(str, numbers[order])), style | dict.fromkeys(limits, grey)
        log_from = math.inf
        return Chart(*words, tuple(series), unit, x_names=names, log_from=log_from, style=style)


@dataclass(frozen=True, eq=False)
class StudyPlots:
    """Figures of a study, of means over seeds with 95 % intervals."""

    study: Study

    def cost(self, ax: Axes | None = None, *, panel: str | None = None, **options: Any) -> Axes:
        """Draw the study's first cost against certified total epsilon.

        Parameters
        ----------
        panel : str, optional
            Case (with zoning and load scale, where they vary); the first if left out.
        """
        table = self._table()
        return self._chart(table, _cost_of(table), panel).plot(ax, **options)

    def shedding(self, ax: Axes | None = None, *, panel: str | None = None, **options: Any) -> Axes:
        """Draw load shedding (MW) against certified total epsilon."""
        return self._chart(self._table(), REDISPATCH_SHED, panel).plot(ax, **options)

    def heatmap(
        self, ax: Axes | None = None, *, panel: str | None = None, figsize: Size | None = None
    ) -> Axes:
        """Draw the mean of the study's first cost by method and budget."""
        table = self._table()
        metric, name = _cost_of(table), self._panel(table, panel)
        rows = table[(table.panel == name) & ~table.budget.isin(NO_BUDGET)]
        wide = rows.pivot(index="series", columns="budget", values=metric.key)
        wide = wide.loc[list(dict.fromkeys(rows.series)), sorted(wide.columns, key=nominal_epsilon)]
        size = 2.6 + 0.95 * wide.shape[1], 1.4 + 0.4 * len(wide)
        with styled_axes(ax, figsize or size) as axes:
            cells = wide.to_numpy(dtype=float)
            least, most = np.nanmin(cells), np.nanmax(cells)
            log = least > 0 and most >= LOG_FROM * least
            norm = "log" if log else "linear"
            drawn = axes.imshow(cells, norm=norm, cmap="cividis", aspect="auto")
            bar = axes.get_figure().colorbar(drawn, ax=axes, format=tick)  # type: ignore[union-attr]
            bar.set_label(metric.label, parse_math=False)
            for (row, column), value in np.ndenumerate(cells):
                ink = "white" if float(drawn.norm(value)) < 0.5 else "black"  # type: ignore[arg-type]
                text = number_text(value) if np.isfinite(value) else "–"
                axes.text(column, row, text, ha="center", va="center", color=ink, fontsize=9)
            axes.set_xticks(range(wide.shape[1]), [shortest(nominal_epsilon(b)) for b in wide])
            axes.set_yticks(range(len(wide)), list(wide.index), parse_math=False)
            axes.spines[:].set_visible(False)
            axes.tick_params(length=0)
            scope = budget_words(wide.columns[0]).rpartition(" ")[0]
            set_title(axes, f"{name}: {metric.title.lower()}")
            axes.set_xlabel(scope, parse_math=False)
        return axes

    def _table(self) -> pd.DataFrame:
        table = summary(self.study)
        if table.empty or not (table.seeds > 0).any():
            raise _empty("finished runs")
        return table[table.seeds > 0]

    def _panel(self, table: pd.DataFrame, panel: str | None) -> str:
        names = list(dict.fromkeys(table.panel))
        if panel is not None:
            check_choice("panel", panel, names)
        return panel or str(names[0])

    def _chart(self, table: pd.DataFrame, metric: Metric, panel: str | None) -> Chart:
        chart = cost_chart(table, metric, self._panel(table, panel), {})
        if not chart.series:
            raise _empty(metric.noun)
        return replace(chart, size=(7.6, 3.6))


@dataclass(frozen=True, eq=False)
class HorizonPlots:
    """Figures of a series against its steps; that of the residual is public."""

    result: HorizonResult

    def demand(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw demand (MW)."""
        return self._draw(ax, "demand_mw", **options)

    def shedding(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw load shedding (MW)."""
        return self._draw(ax, "redispatch_shed_mw", **options)

    def residual(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw the consensus residual (p.u.)."""
        return self._draw(ax, "consensus_residual", **options)

    def _draw(self, ax: Axes | None, quantity: str, **options: Any) -> Axes:
        charts = horizon_charts(self.result.table())
        if quantity not in charts:
            raise _empty(quantity)
        return _named(charts[quantity], self.result.series.case.name).plot(ax, **options)


def _named(chart: Chart, name: str) -> Chart:
    """Return a separate chart, with its subject in the title."""
    return replace(chart, title=f"{name}: {chart.title[0].lower()}{chart.title[1:]}", size=SIZE)


def _cost_of(table: pd.DataFrame) -> Metric:
    metric = cost_metric(table)
    if metric is None:
        raise _empty("costs")
    return metric


def _empty(quantity: str) -> InputError:
    return InputError(
        f"There is nothing to draw: this result has no {quantity}. Draw another figure."
    )


STATE = ("res_bus", "res_line", "res_gen", "res_shed")
COPIED = ("rounds", "zones", "buses", "zone_prices", "tie_prices", "binding")


def write_run_copies(run_folder: RunFolder) -> Json | None:
    """Write tables and pictures of a run; return its document, None without one."""
    store, runs = run_folder.store, run_folder.runs
    study, document = run_folder.study(), run_document(store.folder)
    if document is None:
        return None
    document.pop("repeat", None)  # of the folder alone
    _write_tables(store, study)
    folder, private = study.folder, not study.public
    zones = zones_map(runs.case, runs.zoning)
    write_figure(zones, folder / "zones.png", private=private)
    if len(study.rounds):
        item = study.runs.iloc[0]
        charts = list(convergence_charts(study.rounds).values())
        picture = stacked(charts, f"{item.case}: {item['update']}, {item.method}")
        write_figure(picture, folder / "convergence.png", private=private)
    if "res_line" in study.tables:
        network = tuple(study.tables[name] for name in NETWORK_TABLES)
        shed = study.tables["res_shed"].set_index("index")["p_mw"].to_dict()
        loading = loading_map(runs.case.name, network, shed, flows_of(study))
        write_figure(loading, folder / "network.png", private=True)
    return document


def write_series_copies(run_folder: RunFolder, horizon: Horizon) -> Json:
    """Write ``horizon.json``, tables and a picture of a series; return its document."""
    store = run_folder.store
    study = run_folder.study()
    steps = study.tables.get("steps", pd.DataFrame({"run": [], "step": []}))
    if len(timing := study.tables["timing"]):
        seconds = timing[["run", "total"]].rename(columns={"total": "seconds"})
        steps = steps.merge(seconds, on="run")
    store.text("steps.csv", frame_csv(_copied(steps)))
    _write_tables(store, study)
    plan = plan_tables(study.folder)
    for name, rows in plan.items():
        if rows:
            store.text(f"{name}.csv", frame_csv(pd.DataFrame(rows)))
    document = _series_document(run_folder, study, horizon, _copied(steps).to_dict("records"), plan)
    store.text(SERIES_FILE, json.dumps(document, allow_nan=False) + "\n")
    if len(steps) > 1:
        picture = horizon_figure(steps, horizon.series.case.name)
        write_figure(picture, study.folder / "horizon.png", private=not study.public)
    return document


def _write_tables(store: Store, study: Study) -> None:
    for name in (*COPIED, *STATE):
        table = study.tables.get(name)
        if table is not None and len(table):
            store.text(f"{name}.csv", frame_csv(_copied(table)))
        elif name in COPIED and not study.public:
            store.text(f"{name}.csv", frame_csv(pd.DataFrame(columns=STORED[name].names)))


def _copied(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table for readers: the step first, without the store's identity."""
    first = [name for name in ("step",) if name in table]
    return table[[*first, *(name for name in table if name not in ("run", "step"))]]


STREAM_COUNTS = ("window_hours", "block_hours", "releases_per_window")
"""Values of a stream's budget that do not grow with attempts."""


def _stream_costs(stream: Stream, interrupted: int) -> Json:
    """Return the costs of a stream; every interrupted attempt counts as a stream of its own."""
    attempts = 1 + math.ceil(interrupted / stream.draws)
    return {
        name: value if value is None or name in STREAM_COUNTS else attempts * value
        for name, value in stream.costs.items()
    }


def _reserve_shortage(horizon: Horizon, reserves: list[Json]) -> float | None:
    """Return the largest part of a step's required reserve, up or down, that is not held, in MW."""
    if horizon.chronology is None or not reserves:
        return None
    required = horizon.series.case.base_mva * horizon.chronology.reserve_required
    by_step = np.array([[row["up_mw"], row["down_mw"]] for row in reserves])
    # rows are in the order of steps
    reserve = by_step.reshape(required.shape[1], -1, 2).sum(axis=1)
    return float(np.maximum(required - reserve.T, 0.0).max())


def _series_document(
    run_folder: RunFolder,
    study: Study,
    horizon: Horizon,
    rows: list[Json],
    plan: dict[str, list[Json]],
) -> Json:
    prepared, settings = horizon.prepared(0), horizon.settings
    drawn, planned, interrupted = releases_in(study)
    certificates = zone_certificates(drawn, settings, prepared.rules, horizon.planned_of(planned))
    case, seed = horizon.series.case, run_folder.runs.known_seed
    document = {
        "case": case.name,
        "buses": case.n_bus,
        "series": horizon.series.source,
        "planned": len(horizon.series),
        "finished": len(rows),
        "settings": settings.effective_values(prepared.case)
        | {"zoning": horizon.zoning.source, "seed": seed},
        "released_once": horizon.released_rows(),
        "steps": json_ready(rows),
        "step_hours": horizon.chronology.hours if horizon.chronology is not None else None,
        "coupled": list(horizon.chronology.coupled) if horizon.chronology is not None else [],
        **plan,
        "reserve_shortage_mw": _reserve_shortage(horizon, plan["reserves"]),
        "privacy": {
            "mechanism": settings.effective_mechanism(),
            "noise": settings.noise,
            "caveat": noise_caveat(
                settings.noise_budget, settings.noise, settings.effective_mechanism()
            ),
            "adjacency": horizon.adjacency,
            "noise_multiplier": horizon.multiplier,
            "stream": _stream_costs(horizon, interrupted) if isinstance(horizon, Stream) else None,
            **json_ready(totals(settings, certificates)),
            "interrupted_releases_per_zone": interrupted,
            "zones": json_ready([s.as_dict() for s in certificates]),
        },
        "seed": seed,
        "version": version("gridpriv"),
    }
    if run_folder.store.public:
        document = publish(document, SeriesDocument.table, protected=True)
    return document
