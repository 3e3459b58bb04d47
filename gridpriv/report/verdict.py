"""The first page of a report: verdict cards, the messages beside them, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from gridpriv.core.stored import Study
from gridpriv.core.text import Json, amount, counted, figure
from gridpriv.privacy.settings import NO_NOISE, QUIET
from gridpriv.report.protection import epsilon_text
from gridpriv.report.source import step_rows
from gridpriv.study.engine import study_totals
from gridpriv.zonal.series_summary import series_figures
from gridpriv.zonal.summary import FEASIBILITY, noise, results

STATES = {"feasible": "good", "marginal": "warn", "infeasible": "bad"}


@dataclass(frozen=True)
class Fact:
    """A figure of a card: label, value, and what qualifies it.

    ``state`` is its look: good, warn or bad, wide for a sentence, or none.
    """

    label: str
    value: str
    note: str = ""
    state: str = ""

    def __str__(self) -> str:
        return f"{self.label}: {self.value}{f' ({self.note})' if self.note else ''}"


@dataclass(frozen=True)
class Card:
    """The verdict on a run, a series, or the methods of a panel."""

    title: str
    facts: tuple[Fact, ...]


def run_card(document: Json, study: Study | None = None) -> Card:
    """Return the verdict on one run, from its document; of a public one, its certificate.

    The tables of ``study`` add the dispatch, the worst loading and the range of voltages.
    """
    physical = document["final"]["physical"]
    facts = []
    if physical["status"] is not None:
        violated = len(physical["violations"] or ())
        note = counted(violated, "violated limit") if violated else "no violated limit"
        lines = pd.DataFrame() if study is None else study.tables.get("res_line", pd.DataFrame())
        if "loading_percent" in lines and lines["loading_percent"].isna().all():
            note += "; no branch has a rating"
        failed = "the AC power flow fails" if physical["failure"] else note
        status = physical["status"]
        facts.append(Fact("AC-feasible", FEASIBILITY[status], failed, STATES[status]))
        facts.append(_load_shedding(physical["shed_mw"], physical["load_mw"] or 0.0))
    facts += [
        Fact(str(name).strip().capitalize(), f"{value} {unit}".rstrip(), f"{note}{guess}")
        for name, value, unit, note in results(document)
        for guess in (_prior(document["settings"]) if name == "saved by the release" else "",)
        if name != "load shedding"
    ]
    if study is not None:
        facts += _state(study.tables)
    facts += _deviation(physical)
    title = f"{document['case']}: {noise(document['settings'])}"
    return Card(title, (*facts, *_certificate(document["privacy"])))


def _prior(settings: Json) -> str:
    """Return the public data from which the prior-only baseline guesses demand."""
    source = "--public-demand" if settings.get("public_demand") else "installed capacity"
    return f"; compared with guessing demand from {source}"


def _state(tables: Mapping[str, pd.DataFrame]) -> Iterator[Fact]:
    """Yield the dispatch, the worst loading and the range of voltages of a run's AC state."""
    none = pd.DataFrame()
    units, lines, buses = (tables.get(f"res_{of}", none) for of in ("gen", "line", "bus"))
    if "p_mw" not in units or units.empty:  # a public run, or one without an AC state
        return
    dispatch = units.groupby("bus")["p_mw"].sum().sort_values(ascending=False)
    largest = ", ".join(f"bus {bus}: {amount(p, 'MW')}" for bus, p in dispatch[:4].items())
    yield Fact("Dispatch", f"{amount(dispatch.sum(), 'MW')} MW", largest)
    if lines["loading_percent"].notna().any():
        worst = lines.loc[lines["loading_percent"].idxmax()]
        state = "bad" if worst["loading_percent"] > 100.0 + 1e-3 else ""
        at = f"branch {worst['from_bus']}-{worst['to_bus']}"
        yield Fact("Worst loading", f"{worst['loading_percent']:.0f} %", at, state)
    else:
        yield Fact("Worst loading", "not known", "no branch has a rating")
    energized = buses[buses["vm_pu"] > 0]
    if energized.empty:
        yield Fact("Voltages", "0 p.u.", "no bus is energized")
        return
    low, high = (energized.loc[at] for at in (energized.vm_pu.idxmin(), energized.vm_pu.idxmax()))
    ends = f"{low['vm_pu']:.3f} to {high['vm_pu']:.3f} p.u."
    dead = len(buses) - len(energized)
    off = f"; {counted(dead, 'bus')} de-energized" if dead else ""
    yield Fact("Voltages", ends, f"buses {low['index']:.0f} and {high['index']:.0f}{off}")


def _load_shedding(shed: float, load: float) -> Fact:
    """Return load shedding (MW) with its share of the load."""
    share = f"{figure(100.0 * shed / load, 2)} % of the load" if load > 0 and shed > 0 else ""
    return Fact("Load shedding", f"{amount(shed, 'MW')} MW", share)


def _deviation(physical: Json) -> Iterator[Fact]:
    """Yield the largest deviation from scheduled interchange."""
    known = [z for z in physical["interchange"] or () if z.get("deviation_mw") is not None]
    if known:
        worst = max(known, key=lambda zone: abs(zone["deviation_mw"]))
        ends = (f"{amount(worst[key], 'MW')}" for key in ("scheduled_mw", "actual_mw"))
        note = "zone {}: scheduled {}, actual {} MW".format(worst["zone"], *ends)
        yield Fact("Interchange deviation", f"{amount(abs(worst['deviation_mw']), 'MW')} MW", note)


def share_of(difference: float, base: float) -> str:
    """Return a difference of costs in $/h with its sign, and in percent of the base."""
    percent = f" ({figure(100.0 * difference / base, 2)} %)" if base > 0 else ""
    sign = "+" if difference > 0 else ""
    return f"{sign}{amount(difference, '$/h')} $/h{percent}"


def _certificate(privacy: Json) -> Iterator[Fact]:
    """Yield what is protected, and the certified total."""
    if privacy["mechanism"] == NO_NOISE:
        yield Fact("Privacy", "none", "no noise", "bad")
        return
    total = privacy["total"]
    if privacy["releases_per_zone"] == 0:
        yield Fact("Certified total", "epsilon 0", "no demand is released", "good")
    elif total["epsilon"] is None:
        yield Fact("Certified total", "none", "a release has no proven sensitivity", "bad")
    else:
        pure, shown = privacy["total_pure"], epsilon_text(total["epsilon"])
        is_pure = pure is not None and epsilon_text(pure) == shown
        kind = "pure" if is_pure else f"at delta = {total['delta']:g}"
        yield Fact("Certified total", f"epsilon {shown}", kind)
    yield Fact("Protected", privacy["adjacency"], state="wide")
    if privacy.get("noise") != "secure" and privacy["releases_per_zone"] != 0:
        yield Fact("Noise", "simulated", "no privacy: the seed is known", "warn")


def series_card(study: Study) -> Card:
    """Return the verdict on a series."""
    steps, planned = step_rows(study), study.manifest["planned"]
    facts = [Fact("Steps", f"{len(steps)} of {planned}", "finished")]
    known = [step["status"] for step in steps if step.get("status") is not None]
    if known:
        feasible = sum(status == "feasible" for status in known)
        state = "good" if feasible == len(known) else "bad"
        facts.append(Fact("AC-feasible", f"{feasible} of {len(known)} steps", "", state))
    facts += [
        Fact(str(name).strip().capitalize(), f"{value} {unit}")
        for name, value, unit in series_figures(steps)
        if not str(name).startswith(("demand", " "))
    ]
    facts += _series_certificate(study)
    return Card(str(study.manifest["title"]), tuple(facts))


def _series_certificate(study: Study) -> Iterator[Fact]:
    """Yield the certified total of all steps together, and what is protected."""
    noisy = study.runs[~study.runs["budget"].isin(QUIET)]
    for total in study_totals(study):
        if total.epsilon is not None and math.isfinite(total.epsilon):
            note = f"of all steps together, at delta = {total.delta:g}"
            yield Fact("Certified total", f"epsilon {epsilon_text(total.epsilon)}", note)
    kinds = noisy.get("protection", pd.Series(dtype=str)).dropna().unique()
    if len(kinds) == 1:
        yield Fact("Protected", str(kinds[0]), state="wide")
