"""The answer of a report in words: what ways cost, and what a reader must know of that."""

from __future__ import annotations

import math

import pandas as pd

from gridpriv.core.display import figure
from gridpriv.core.reading import MissingFileError
from gridpriv.core.sealed import DamagedError
from gridpriv.core.stored import Study
from gridpriv.learning.adjacency import protected
from gridpriv.learning.interrupted import DRAWN, released
from gridpriv.privacy.adjacency import DemandAdjacency, parse_beta, parse_power_factors
from gridpriv.privacy.budget import NO_NOISE, NOTHING, QUIET
from gridpriv.privacy.statement import noise_caveat
from gridpriv.report.metrics import Metric
from gridpriv.report.source import run_document, step_rows
from gridpriv.report.summary import cost_metric, reference_budget, short
from gridpriv.study.manifest import LEARNING_RUN
from gridpriv.study.total import Total, differing, study_totals
from gridpriv.zonal.series_summary import series_sentences
from gridpriv.zonal.summary import not_converged, price, protection_told, sentences
from gridpriv.zonal.trace import AGREED


def answers(study: Study, table: pd.DataFrame) -> list[str]:
    """Return the answer: a sentence with numbers for every panel."""
    if table.empty or (not (table.seeds > 0).any() and study.withheld.empty):
        none = "No run finished, so there is no answer yet; the reasons are listed below."
        return [none, *_stays_released(study)]
    document = run_document(study)
    if document is not None:
        return [price(document), *sentences(document), *_left_out(study)]
    told = [
        _answer(study, str(name), rows[rows.seeds > 0])
        for name, rows in table.groupby("panel", sort=False)
        if (rows.seeds > 0).any()
    ]
    if "steps" in study.tables and study.withheld.empty:
        planned, settings = int(study.manifest["planned"]), study.manifest["study"]["settings"]
        told = [" ".join(series_sentences(step_rows(study), planned, settings))]
    caveat = simulation_caveat(study)
    if caveat:
        caveat = f"{caveat[0].upper()}{caveat[1:]}."
    ends = [*_protected(study), *_left_out(study), caveat]
    told = [*_claims_answer(study), *told, *_together(study), *ends]
    return list(filter(None, told))


def _stays_released(study: Study) -> list[str]:
    """Return what was released of data although no run finished."""
    if study.manifest.get("kind") == LEARNING_RUN:
        return _learning_released(study)
    return [
        f"What was begun on {short(total.case)} and may have released all the same costs "
        f"{_at_most(total)}."
        for total in study_totals(study)
        if total.epsilon is not None and math.isfinite(total.epsilon)
    ]


def _learning_released(study: Study) -> list[str]:
    told = study.manifest["study"]["settings"]
    if told["mechanism"] == NO_NOISE:
        return []
    what = f"Protected: {protected(told['algorithm'], told['adjacency'])}."
    if told["noise"] != "secure":
        return [
            f"What it released stays so: at most what its {told['rounds']} rounds at budget "
            f"{told['budget']} release, with simulated noise. {what}"
        ]
    try:
        return [f"It may have released {released(study.folder)}. {what}"]
    except MissingFileError:
        return [f"It released nothing, unless {DRAWN} was removed from its folder."]
    except DamagedError as error:
        return [f"What it released is not known: {error}."]


def _together(study: Study) -> list[str]:
    """Return what the runs of every data set cost together, where there are several."""
    told = []
    for total in study_totals(study):
        if total.runs < 2:
            continue
        what = "steps" if "steps" in study.tables else "noisy runs"
        runs = f"The {total.runs} {what} of {short(total.case)}, published together,"
        if total.epsilon is None:
            noisy = (study.runs["case"] == total.case) & ~study.runs["budget"].isin(QUIET)
            names = " and ".join(differing(study, study.runs[noisy]))
            told.append(f"{runs} protect different things (their {names} differ): no one total.")
        elif math.isinf(total.epsilon):
            told.append(f"{runs} certify nothing: of some release nothing is proved.")
        else:
            told.append(f"{runs} cost {_at_most(total)}, not what each of them states.")
    return told


def _at_most(total: Total) -> str:
    rest = f", and what {total.unknown} failed runs released" if total.unknown else ""
    epsilon = math.inf if total.epsilon is None else total.epsilon
    return f"at most epsilon {_epsilon(epsilon)} (delta {total.delta:g}){rest}"


def _protected(study: Study) -> list[str]:
    """Return what noisy runs protect, and of learning's from whom, by way where it differs."""
    noisy = study.runs[~study.runs["budget"].isin(QUIET)]
    if "adjacency" in noisy:
        noisy = noisy.assign(adjacency=noisy["adjacency"] + ".")
    elif "beta" in noisy:
        noisy = noisy.assign(adjacency=_demand_protected(study, noisy))
    else:
        return []
    kinds = dict(iter(noisy.groupby("adjacency", sort=False)))
    if len(kinds) == 1:
        return [f"Protected: {what}" for what in kinds]
    by = "case" if noisy.groupby("case").adjacency.nunique().max() == 1 else "scheme"
    of = {"case": "in", "scheme": "by"}[by]
    return [
        f"Protected {of} {' and '.join(_named(rows, by))}: {what}" for what, rows in kinds.items()
    ]


def _named(rows: pd.DataFrame, by: str) -> list[str]:
    """Return the cases or the ways of some runs."""
    names = [str(name) for name in rows[by].unique()]
    return [short(name) for name in names] if by == "case" else [f'"{name}"' for name in names]


def _demand_protected(study: Study, runs: pd.DataFrame) -> list[str | None]:
    """Return what each of some runs protects of demand; None where its base is not known."""
    bases = {one.get("case"): one.get("base_mva") for one in study.manifest.get("cases") or []}
    steps = ", in every step (where steps are factors, of the demand that they scale)"
    ending = steps if "steps" in study.tables else ""
    told: list[str | None] = []
    for case, beta, protects, band in zip(
        runs.case, runs.beta, runs.protects, runs.get("power_factor", [None] * len(runs)),
        strict=True,
    ):  # fmt: skip
        factors, base = band if isinstance(band, str) else None, bases.get(case)
        if base is None:
            told.append(None)
            continue
        distance = parse_beta(str(beta)).per_unit(base)
        known = parse_power_factors(factors) if factors else None
        what = DemandAdjacency(distance, protects, known).protection(base)
        told.append(protection_told(f"{what}{ending}", protects, factors))
    return told


def _left_out(study: Study) -> list[str]:
    if not study.public:
        return []
    quiet = (
        " Of runs without certified noise only settings are told." if len(study.withheld) else ""
    )
    return [f"Figures computed from private data are left out.{quiet}"]


def simulation_caveat(study: Study) -> str:
    """Return what simulated noise means for privacy; nothing where none of a study's noise is."""
    runs = study.runs
    noisy = runs[~runs["budget"].isin(QUIET)] if len(runs) else runs
    if noisy.empty or ("noise" in noisy and (noisy["noise"] == "secure").all()):
        return ""
    return noise_caveat(noisy["budget"].iloc[0], "simulated")


def _claims_answer(study: Study) -> list[str]:
    """Return, of a reproduction, how many of the paper's statements hold."""
    claims = study.tables.get("claims", pd.DataFrame())
    if "outcome" not in claims:  # local
        return []
    told = [
        f"{int((rows.outcome == 'holds').sum())} of {len(rows)} hold{words}"
        for kind, words in (("", ""), ("paper", " with the noise that the paper states"),
                            ("sound", " with noise that certifies what it states"))
        if len(rows := claims[claims.calibration == kind])
    ]  # fmt: skip
    text = "Of the orderings that the paper states for this figure, " + ", ".join(told) + "."
    ratios = study.tables["statements"]
    paper = set(study.done.loc[study.done.calibration == "paper", "run"])
    if len(ratios) and paper:
        here = ratios[ratios.run.isin(paper)].ratio
        text += (
            f" The proven sensitivity is {here.min():.3g} to {here.max():.3g} times the one that "
            "the paper's noise is calibrated to; above 1, less privacy is delivered than stated."
        )
    return [text]


def _answer(study: Study, panel: str, rows: pd.DataFrame) -> str:
    metric = cost_metric(rows)
    budget = reference_budget(rows)
    if metric is None:
        return f"{panel}: figures computed from private demand are left out."
    if budget == NO_NOISE:
        ranked = rows.dropna(subset=[metric.key]).sort_values(metric.key)
        least = ranked.iloc[0]
        one = f"{panel}: {metric.noun} is {metric.told(least[metric.key])}"
        said = _leading(f"{panel}: drawing no noise", metric, ranked) if len(rows) > 1 else one
        return " ".join([sentence(said), *_carried(least), *_not_agreed(rows)])
    quiet, nothing = rows[rows.budget == NO_NOISE], rows[rows.budget == NOTHING]
    ranked = rows[rows.budget == budget].dropna(subset=[metric.key]).sort_values(metric.key)
    if ranked.empty:
        return f"{panel}: no run at budget {budget} has a figure to compare."
    where = f"{panel}{_load(study, rows)}: {_at(ranked, budget)}"
    lost = ranked[ranked.carried == 0.0]
    ranked = ranked.drop(lost.index)
    if ranked.empty:
        told = [f"{where}, the grid can carry no run of {_ways(lost)}: what they cost is no price."]
        told += [*_nothing_released(metric, nothing), *_yardstick(metric, quiet)]
        return " ".join([*told, *_not_agreed(lost)])
    best, worst = ranked.iloc[0], ranked.iloc[-1]
    told, others = [sentence(_leading(where, metric, ranked)), *_carried(best)], []
    if not quiet.empty and math.isfinite(quiet[metric.key].min()):
        others.append(f"without noise it is {metric.told(quiet[metric.key].min())}")
    # what the grid cannot carry is no yardstick for what it can
    yardsticks = nothing[nothing.carried > 0.0] if best.carried > 0.0 else nothing
    silent = yardsticks[metric.key].min()
    if math.isfinite(silent):
        others.append(f"with nothing released, at epsilon 0, it is {metric.told(silent)}")
    if not _equal(metric, worst, best):
        most, has = ("dearest", "costs") if metric.spent else ("worst", "has")
        others.append(
            f'the {most} of the {len(ranked)} ways, "{worst.series}", {has} '
            f"{metric.told(worst[metric.key])}"
        )
    if others:
        text = "; ".join(others)
        told.append(sentence(f"{text[0].upper()}{text[1:]}"))
    if len(nothing) and (nothing.carried == 0.0).all():
        told.append("With nothing released, at epsilon 0, the grid can carry no run.")
    if silent < best[metric.key] - _same(metric, best):
        told.append("That budget is worth nothing here, whichever of these ways it is spent on.")
    if len(lost):
        told.append(f"It can carry no run of {_ways(lost)}.")
    told += [*_slope(rows, str(best.series), metric), *_yardstick(metric, quiet)]
    return " ".join([*told, *_not_agreed(pd.concat([ranked, lost]))])


def _carried(row: pd.Series) -> list[str]:
    if pd.isna(row.carried):
        return []
    share = {0.0: "none", 1.0: "all"}.get(row.carried, f"{100.0 * row.carried:.3g} %")
    return [f"The grid can carry {share} of its runs."]


def _nothing_released(metric: Metric, nothing: pd.DataFrame) -> list[str]:
    """Return what nothing released comes to, beside ways of which the grid can carry no run."""
    known = nothing[nothing.carried.notna()].sort_values(metric.key)
    if known.empty:
        return []
    held = known[known.carried > 0.0]
    if held.empty:
        return ["With nothing released, at epsilon 0, it cannot either."]
    least = held[metric.key].iloc[0]
    priced = f", and {metric.noun} is {metric.told(least)}" if math.isfinite(least) else ""
    return [sentence(f"With nothing released, at epsilon 0, it can{priced}")]


def _yardstick(metric: Metric, quiet: pd.DataFrame) -> list[str]:
    """Return what is wrong with the way without noise that costs are held against, if anything."""
    if metric.key != "cost_of_privacy" or quiet.cost.isna().all():
        return []
    plain = quiet.loc[quiet.cost.idxmin()]
    told = []
    if plain.carried == 0.0:
        told.append(f'The grid cannot carry "{plain.series}", which the cost of privacy is beyond.')
    if plain.consensus_residual > AGREED:
        told.append(
            f'Zones of "{plain.series}" have not converged: they differ by '
            f"{figure(plain.consensus_residual)} p.u. in what they share, and the cost of privacy "
            "is beyond that."
        )
    return told


def sentence(text: str) -> str:
    """Return a text with one full stop at its end."""
    return f"{text.rstrip('. ')}."


def _ways(rows: pd.DataFrame) -> str:
    """Return the ways by name, or how many they are."""
    named = " and ".join(f'"{name}"' for name in rows.series)
    return named if len(rows) < 4 else f"{len(rows)} ways"


def _not_agreed(rows: pd.DataFrame) -> list[str]:
    """Return a sentence where zones have not come to agree, else nothing."""
    apart = rows[rows.consensus_residual > AGREED]
    if apart.empty:
        return []
    most = figure(apart.consensus_residual.max())
    differ = (
        f"zones differ in what they share by up to {most} p.u. in the mean over seeds "
        f"({_ways(apart)})"
    )
    return [not_converged(differ, set(~apart.budget.isin(QUIET) & (apart.refresh != "run")))]


def _at(rows: pd.DataFrame, budget: str) -> str:
    totals = rows.total_epsilon.dropna()
    delta = rows.target_delta.dropna()
    if totals.empty:
        return f"at budget {budget}"
    low, high = totals.min(), totals.max()
    if high <= 1.01 * low:
        return f"at a certified total epsilon of {high:.3g} (delta {delta.iloc[0]:g})"
    return (
        f"at the stated {budget.replace(':', ' epsilon ')}, which certifies totals of "
        f"{_epsilon(low)} to {_epsilon(high)} (delta {delta.iloc[0]:g})"
    )


def _epsilon(value: float) -> str:
    return f"{value:.3g}" if value < 1000.0 else figure(value)


def _same(metric: Metric, best: pd.Series) -> float:
    """Return by how much a figure may differ from the best and count as the same."""
    return max(metric.least, 1e-9 * abs(float(best[metric.key])))


def _equal(metric: Metric, row: pd.Series, best: pd.Series) -> bool:
    """Return whether a figure differs from the best by nothing that counts, or that is shown."""
    value, least = row[metric.key], best[metric.key]
    return value <= least + _same(metric, best) or metric.told(value) == metric.told(least)


def _leading(where: str, metric: Metric, ranked: pd.DataFrame) -> str:
    """Return which of several ways is the least, or that a figure does not tell them apart."""
    best = ranked.iloc[0]
    equal = ranked[[_equal(metric, row, best) for _, row in ranked.iterrows()]]
    if len(equal) == len(ranked) > 1:
        exact = ranked[metric.key].iloc[-1] <= best[metric.key] + _same(metric, best)
        return (
            f"{where}, {metric.noun} does not tell the {len(ranked)} ways apart: "
            f"{metric.told(best[metric.key])} each{'' if exact else ', to the digits shown'}"
        )
    return f"{where}, {_ways(equal)} {_least(metric, best, equal=len(equal), ways=len(ranked))}"


def _least(metric: Metric, best: pd.Series, *, equal: int, ways: int) -> str:
    """Return what the best of several ways costs, or has least of; what the only one does."""
    value, interval = metric.told(best[metric.key]), _interval_of(best, metric)
    several = equal > 1
    if ways == 1:
        said = f"costs {value} {metric.noun}" if metric.spent else f"has {metric.noun} {value}"
        return f"{said}{interval}"
    if metric.spent:
        return f"cost{'' if several else 's'} the least, {value} {metric.noun}{interval}"
    return f"{'have' if several else 'has'} the lowest {metric.noun}, {value}{interval}"


def _interval_of(row: pd.Series, metric: Metric) -> str:
    low, high = row[f"{metric.key}_low"], row[f"{metric.key}_high"]
    if not math.isfinite(low) or high < metric.least:
        return ""
    return f" (95 % interval {figure(low)} to {figure(high)}, {row.seeds} seeds)"


def _slope(rows: pd.DataFrame, series: str, metric: Metric) -> list[str]:
    """Return what the cheapest way costs at the least and at the most total epsilon."""
    curve = rows[(rows.series == series) & ~rows.budget.isin(QUIET)].sort_values("total_epsilon")
    curve = curve[curve[metric.key].notna() & curve.total_epsilon.notna()]
    if len(curve) < 2 or curve[metric.key].abs().max() < metric.least:
        return []
    first, last = curve.iloc[0], curve.iloc[-1]
    low, high = (_epsilon(row.total_epsilon) for row in (first, last))
    ends = " to ".join(metric.told(row[metric.key]) for row in (first, last))
    return [sentence(f'From total epsilon {low} to {high}, "{series}" goes from {ends}')]


def _load(study: Study, rows: pd.DataFrame) -> str:
    for grid in study.manifest.get("cases", []):
        if grid["case"] == rows.iloc[0]["case"] and grid.get("load_mw") is not None:
            return f" ({figure(grid['load_mw'] * rows.iloc[0].load_scale, 4)} MW of load)"
    return ""
