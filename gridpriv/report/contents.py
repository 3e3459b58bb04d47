"""The tables of a report, in order, and messages on the protected change and on totals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from gridpriv.core.files import read_sealed
from gridpriv.core.store import Study
from gridpriv.core.tables import TableSchema
from gridpriv.core.text import Json, Message, number_text, shown
from gridpriv.learning.accounting import protected
from gridpriv.power.ac.state import negligible_mw
from gridpriv.privacy.certificate import noise_caveat
from gridpriv.privacy.settings import NO_BUDGET, NO_NOISE
from gridpriv.report import schema
from gridpriv.report.source import (
    COMBINATION,
    budget_words,
    means_over,
    message,
    named_runs,
    short,
    step_rows,
)
from gridpriv.report.tables import Table, make_table
from gridpriv.study import engine
from gridpriv.zonal import documents
from gridpriv.zonal.summary import protection, series_summary, summary_table, zone_interchange

PLANNED = (
    (documents.StorageStep.table, "Storage by step"),
    (documents.ReserveStep.table, "Reserves by step"),
    (documents.CommitmentStep.table, "Commitment by step"),
)
"""Tables of a joint plan, and their captions."""


def noisy_runs(study: Study) -> pd.DataFrame:
    """Return the runs that draw noise."""
    runs = study.runs
    return runs[~runs["budget"].isin(NO_BUDGET)] if len(runs) else runs


def simulation_caveat(study: Study) -> str:
    """Return the caveat of simulated noise; empty where no noise of a study is simulated."""
    noisy = noisy_runs(study)
    if noisy.empty or ("noise" in noisy and (noisy["noise"] == "secure").all()):
        return ""
    mechanisms = noisy.get("mechanism", ())
    secure = "as in every study of grids; a run can use --noise secure"
    return noise_caveat(noisy["budget"].iloc[0], "simulated", *mechanisms, secure=secure)


def composition(study: Study) -> Iterator[Message]:
    """Yield the joint cost of the runs on each data set, if there are several."""
    kind = "steps" if "steps" in study.tables else "noisy runs"
    for total in engine.study_totals(study):
        values = {"runs": total.runs, "kind": kind, "case": short(total.case)}
        if total.runs < 2:
            continue
        if total.epsilon is None:
            noisy = (study.runs["case"] == total.case) & ~study.runs["budget"].isin(NO_BUDGET)
            names = " and ".join(engine.differing(study.runs[noisy]))
            yield message("composition-differs", values | {"names": names})
        elif math.isinf(total.epsilon):
            yield message("composition-uncertified", values)
        else:
            yield message("composition", values | _at_most(total))


def released_by_unfinished(study: Study) -> Iterator[Message]:
    """Yield the releases of data sets without a finished run."""
    if study.manifest.get("kind") == engine.LEARNING_RUN:
        yield from _learning_released(study)
        return
    for total in engine.study_totals(study):
        if total.epsilon is not None and math.isfinite(total.epsilon):
            values = {"case": short(total.case)} | _at_most(total)
            yield message("released-by-unfinished", values)


def _learning_released(study: Study) -> Iterator[Message]:
    settings = study.manifest["study"]["settings"]
    if settings["mechanism"] == NO_NOISE:
        return
    values = {name: settings[name] for name in ("rounds", "budget", "noise")}
    values["again"] = ", and the rounds drawn again" if settings["noise"] == "secure" else ""
    yield message("released-by-learning", values)
    adjacency = protected(settings["algorithm"], settings["adjacency"])
    yield message("protected", {"adjacency": adjacency})


def _at_most(total: engine.StudyTotal) -> dict[str, str]:
    assert total.epsilon is not None
    unknown = ""
    if total.unknown:
        unknown = (
            f", not counting {total.unknown} failed runs without a record of what they released"
        )
    epsilon, delta = epsilon_text(total.epsilon), f"{total.delta:g}"
    return {"epsilon": epsilon, "delta": delta, "unknown": unknown}


def epsilon_text(value: float) -> str:
    """Return an epsilon with three digits."""
    return f"{value:.3g}" if value < 1000.0 else number_text(value)


def protections(study: Study) -> list[Message]:
    """Return the protected change of noisy runs, by case or method where it differs."""
    noisy = study.runs[~study.runs["budget"].isin(NO_BUDGET)]
    column = "adjacency" if "adjacency" in noisy else "protection"
    if column not in noisy:
        return []
    noisy = noisy[noisy[column].notna()]
    kinds = dict(iter(noisy.groupby(column, sort=False)))
    if len(kinds) == 1:
        messages = [message("protected", {"adjacency": adjacency}) for adjacency in kinds]
    else:
        by_case = noisy.groupby("case")[column].nunique().max() == 1
        messages = [
            message("protected-by", {"by": _named(rows, by_case=by_case), "adjacency": adjacency})
            for adjacency, rows in kinds.items()
        ]
    limits = noisy.reindex(columns=["protects", "power_factor"]).drop_duplicates().fillna("")
    for protects, factors in limits.itertuples(index=False):
        messages += protection("", protects, factors or None)[1:]
    return messages


def _named(rows: pd.DataFrame, *, by_case: bool) -> str:
    """Return the cases or the methods of some runs."""
    if by_case:
        return f"in {' and '.join(map(short, rows['case'].unique()))}"
    return f"by {' and '.join(map(quoted, rows['method'].unique()))}"


def quoted(name: str) -> str:
    """Return a method's name for messages."""
    return f'"{name}"'


MOST_LISTED = 12

Rows = Sequence[Sequence[object]]
Content = tuple[TableSchema, str, pd.DataFrame]
"""Schema, caption and figures of a table."""


def contents(study: Study, table: pd.DataFrame) -> tuple[Table, ...]:
    """Return the tables with rows; headers of certificates include simulated noise.

    Parameters
    ----------
    table : DataFrame
        Its :func:`gridpriv.report.source.summary`.
    """
    tables = [make_table(*content) for content in _contents(study, table)]
    if simulation_caveat(study):
        tables = [replace(t, columns=tuple(map(schema.marked, t.columns))) for t in tables]
    return tuple(table for table in tables if table.rows)


def _contents(study: Study, table: pd.DataFrame) -> Iterator[Content]:
    document, text, current = study.manifest.get("document"), _worded(study, table), study.tables
    if document is not None:
        caption, _, rows = summary_table(document)
        yield _outcome(caption, rows)
        yield _interchange(document)
        yield schema.ShedBus.table, "Load shedding by bus", _shed(current)
    elif means_over(study) == "steps":
        yield _outcome("Means of the steps", series_summary(step_rows(study)))
        # a plan's shortage could be mistaken for load shedding; the status has more than the flag
        plan = ["objective", "ac_feasible", *documents.PlanBalance.table.names]
        steps = current.get("steps", pd.DataFrame()).drop(columns=plan, errors="ignore")
        yield documents.StepRow.table, "Steps", steps
        planned = plan_tables(study.folder)
        for item, caption in PLANNED:
            yield item, caption, pd.DataFrame(planned[item.name])
    else:
        all_ran = len(text) and not text.failed.any()
        rows = text.drop(columns="failed") if all_ran else text
        costs = " (costs: over AC-feasible runs)" if "ac_feasible_pct" in rows else ""
        yield schema.SUMMARY, f"Means over seeds{costs}", rows
        yield schema.ConvexMeans.table, "SOC relaxation, means over seeds", _relaxed(study, text)
    yield engine.ClaimRow.table, "Claims of the paper", current.get("claims", pd.DataFrame())
    yield schema.ZoneMeans.table, _zones_caption(study), _zones(study)
    if len(text):
        yield schema.Guarantee.table, "Privacy, nominal and certified", _private(study, text)
    yield schema.Failures.table, "Runs that did not converge or failed", _alike(noted(study))
    yield schema.Provenance.table, "This study", _provenance(study)
    yield engine.GridRow.table, "Cases", _grids(study.manifest)
    yield schema.SettingValue.table, "Settings", _settings(study)


def _relaxed(study: Study, text: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of methods whose rounds are on the relaxation, not on the AC equations."""
    rounds, runs = study.rounds, study.done
    if "objective" not in rounds or "imbalance_mw" not in runs:
        return text
    on_ac = rounds.run[rounds.objective.isna()]
    return text.merge(runs.loc[~runs.run.isin(on_ac), COMBINATION].drop_duplicates())


def _private(study: Study, means: pd.DataFrame) -> pd.DataFrame:
    """Return the certificates of noisy methods; of a series, of all steps together."""
    noisy, totals = means[~means.budget.isin(NO_BUDGET)], engine.study_totals(study)
    if means_over(study) == "steps" and totals:
        drawn = study.tables["releases"].groupby("zone")["count"].sum()
        pure, total = totals[0].pure, totals[0].epsilon
        noisy = noisy.assign(releases_per_zone=drawn.max(), total_pure=pure, total_epsilon=total)
    # of steps that draw nothing; Gaussian noise whose delta alone covers a release has epsilon 0
    none = (noisy.epsilon_certified == 0.0) & (noisy.mechanism != "gaussian")
    of_one = ("epsilon_nominal", "epsilon_certified")
    return noisy.assign(**{name: noisy[name].mask(none) for name in of_one})


def noted(study: Study) -> pd.DataFrame:
    """Return the runs that failed or have not converged."""
    if "reason" in study.runs:  # local: of finished runs, too
        return study.runs[study.runs["reason"].fillna("") != ""]
    return study.failed


def _outcome(caption: str, rows: Rows) -> Content:
    """Return the result of runs with the terminal's names and digits."""
    lines = [(name, shown(value), unit) for name, value, unit in rows]
    table = schema.RunOutcome.table
    return table, caption, pd.DataFrame(lines, columns=table.names)


def _interchange(document: Json) -> Content:
    """Return scheduled and actual interchange in the order of the document's zones."""
    rows = [row for row in zone_interchange(document) if row.get("scheduled_mw") is not None]
    caption = "Interchange, exports positive; each zone bears half of a tie line's losses"
    return documents.Interchange.table, caption, pd.DataFrame(rows if len(rows) > 1 else [])


def _shed(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the buses of a run that shed load, the largest first."""
    buses, column = tables.get("buses", pd.DataFrame()), "redispatch_shed_mw"
    if column not in buses:  # local
        return pd.DataFrame()
    rounding = negligible_mw(float(buses["pd_mw"].clip(lower=0.0).sum()))
    return buses[buses[column] > rounding].sort_values(column, ascending=False)


def _worded(study: Study, table: pd.DataFrame) -> pd.DataFrame:
    """Return the summary with columns as text and shares."""
    if table.empty:
        return table
    percent = table.ac_feasible * 100.0
    if "method_cost" in table:  # all of the cost of privacy of a noise-free method
        own = table.method_cost.where(table.budget == NO_NOISE)
        table = table.assign(cost_of_privacy=table.cost_of_privacy.fillna(own))
    table = table.assign(budget_shown=table.budget.map(budget_words), ac_feasible_pct=percent)
    certificates = study.tables["certificates"]
    if len(certificates) and "ratio" in certificates:
        worst = certificates.assign(multiplier=certificates.scale / certificates.sensitivity)
        runs = study.done[["run", *COMBINATION]].merge(worst, on="run")
        extremes = runs.groupby(COMBINATION, dropna=False, as_index=False)
        extremes = extremes.agg(
            sensitivity_ratio=("ratio", "max"), noise_multiplier=("multiplier", "min")
        )
        table = table.merge(extremes, on=COMBINATION, how="left")
    return table


def _zones(study: Study) -> pd.DataFrame:
    """Return the zones of every grid, once for all methods."""
    zones = study.tables["zones"]
    if zones.empty:
        return pd.DataFrame()
    joined = zones.merge(named_runs(study)[["run", "panel"]], on="run")
    return joined.drop_duplicates(["panel", "zone"])


def plan_tables(folder: Path) -> dict[str, list[Json]]:
    """Return the rows of a joint plan's storages, reserves and commitment; none without one."""
    path = folder / documents.PLAN_FILE
    tables = read_sealed(path) if path.is_file() else {}
    return {item.name: tables.get(item.name, []) for item, _ in PLANNED}


def _zones_caption(study: Study) -> str:
    """Return the caption of the zones; of a series it names the step of the loads."""
    steps = step_rows(study)
    if not steps:
        return "Zones"
    return f"Zones; demand of step {steps[0]['step']}; generators include storage units"


def _alike(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row per method, budget and status: number of runs, and the first reason."""
    if runs.empty:
        return runs
    named = runs.assign(budget_shown=runs.budget.map(budget_words))
    if "reason" in named:  # of finished runs: not converged, or without a zone's redispatch
        named["status"] = named.status.mask(
            named.status == "done", named.reason.str.split(":").str[0]
        )
    groups = named.groupby(["case", "method", "budget_shown", "status"], sort=False)
    first = groups[[c for c in ("finished_rounds", "reason") if c in named]].first()
    return first.assign(count=groups.size()).reset_index()


def _provenance(study: Study) -> pd.DataFrame:
    manifest = study.manifest
    done, failed, withheld = len(study.done), len(study.failed), len(study.withheld)
    runs = f"{done} finished, {failed} failed"
    entries = {
        "runs": runs + (f", {withheld} without certified noise are withheld" if withheld else ""),
        "seeds": ", ".join(map(str, manifest.get("seeds", []))),
        "created": manifest.get("created", "").replace("T", " ").replace("+00:00", " UTC"),
    }
    for name in ("machine", "versions"):
        entries[name] = ", ".join(f"{k} {v}" for k, v in manifest.get(name, {}).items())
    rows = [(name, value) for name, value in entries.items() if value]
    return pd.DataFrame(rows, columns=schema.Provenance.table.names)


def _grids(manifest: Json) -> pd.DataFrame:
    grids = pd.DataFrame(manifest.get("cases", []))
    if grids.empty:
        return grids
    if "fingerprint" in grids:
        grids["fingerprint"] = grids["fingerprint"].str[:16]
    unused = ["name", "map"] if grids["zoning"].any() else ["name", "map", "zoning"]
    return grids.replace({"zoning": {"": "default"}}).drop(columns=unused, errors="ignore")


UNUSED_ON_AC = ("acceleration", "tolerance", "penalty", "solver", "rounds")
"""Settings of rounds on the relaxation; rounds on the AC equations that converge and central AC
schedules use none of them."""


def _settings(current: Study) -> pd.DataFrame:
    manifest = current.manifest
    study = manifest["study"]
    noise = {} if "mechanism" in study.get("settings", {}) else _mechanisms(current.runs)
    methods = {
        f"method: {item['name']}": noise.get(item["name"], {}) | item
        for item in study.get("methods") or []
    }
    axes = {k: v for k, v in study.items() if isinstance(v, list) and v not in ([], [""])}
    scopes = {"all runs": study.get("settings", {}), "axis": axes} | methods
    on_ac = ((manifest.get("document") or {}).get("final") or {}).get("ac_rounds") or {}
    settings = (manifest.get("document") or {}).get("settings") or {}
    central = settings.get("coordination") == "central" and settings.get("planning") == "ac"
    unused = UNUSED_ON_AC if on_ac.get("converged") or central else ()
    rows = [
        (scope, name, f"{_valued(value)}{' (not used)' if name in unused else ''}")
        for scope, settings in scopes.items()
        for name, value in settings.items()
        if name != ("methods" if scope == "axis" else "name")
    ]
    return pd.DataFrame(rows, columns=schema.SettingValue.table.names)


def _mechanisms(runs: pd.DataFrame) -> dict[str, Json]:
    """Return the mechanism of every method, for methods that do not state it."""
    if not {"method", "mechanism"} <= set(runs):
        return {}
    noise = runs.groupby("method").mechanism.first().dropna()
    return {str(method): {"mechanism": f"{value} (default)"} for method, value in noise.items()}


def _valued(value: object) -> str:
    """Return a value as text: a list by commas, or a long one by its ends and length."""
    if not isinstance(value, list):
        return "none" if value is None else str(value)
    if len(value) > MOST_LISTED:
        return f"{value[0]} to {value[-1]}, {len(value)} in all"
    return ", ".join(map(str, value)) or "none"
