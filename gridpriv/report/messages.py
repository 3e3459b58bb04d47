"""Messages of a study, by code; those of a run are in :mod:`gridpriv.zonal.messages`."""

from __future__ import annotations

from functools import partial

from gridpriv.core.message import Severity, make_message

TEMPLATES: dict[str, tuple[Severity, str]] = {
    "no-finished-run": ("warning", "No run finished. The reasons are listed below."),
    "lowest": (
        "info",
        "{panel}: {method} has the lowest {figure} ({value}). The difference from every other "
        "method is significant (95 %, paired seeds).",
    ),
    "lowest-noise-free": ("info", "{panel}: {method} has the lowest {figure} ({value})."),
    "not-distinguishable": (
        "info",
        "{panel}: {method} has the lowest mean {figure}. Not distinguishable from it (95 %, paired "
        "seeds): {others}.",
    ),
    "budget-unused": (
        "warning",
        "{panel}: {shares} of the certified total. Its noise is larger than the budget asks.",
    ),
    "one-seed": (
        "warning",
        "{panel}: methods have one seed each, so they have no interval and are not ranked.",
    ),
    "infeasible-methods": (
        "warning",
        "{panel}: no run of {methods} is AC-feasible, so they have no cost.",
    ),
    "partly-infeasible": (
        "warning",
        "{panel}: some runs are not AC-feasible ({shares}). Costs are means over the others, and "
        "these methods are not ranked.",
    ),
    "noise-free-infeasible": (
        "warning",
        "{panel}: no noise-free baseline is AC-feasible, so there is no cost of privacy.",
    ),
    "noise-free-not-converged": (
        "warning",
        "{panel}: the noise-free baseline {method} has not converged (consensus residual "
        "{residual} p.u.), so the cost of privacy is approximate.",
    ),
    "prior-only-cheaper": (
        "warning",
        "{panel}: no method costs less than the prior-only baseline (epsilon = 0). This budget "
        "buys nothing.",
    ),
    "prior-only-infeasible": (
        "info",
        "{panel}: the prior-only baseline (epsilon = 0) is not AC-feasible, so it has no cost.",
    ),
    "not-converged": (
        "warning",
        "{panel}: the rounds of {methods} have not converged (consensus residual up to "
        "{residual} p.u.); that says nothing of AC feasibility.",
    ),
    "composition": (
        "warning",
        "Publishing all {runs} {kind} of {case} would cost at most epsilon {epsilon} at "
        "delta = {delta}{unknown}. One alone costs what its row says.",
    ),
    "composition-differs": (
        "warning",
        "The {runs} {kind} of {case} protect different things (their {names} differ), so they "
        "have no common total.",
    ),
    "composition-uncertified": (
        "warning",
        "Published together, the {runs} {kind} of {case} certify nothing: a release has no proven "
        "sensitivity.",
    ),
    "released-by-unfinished": (
        "warning",
        "Unfinished runs of {case} may have released values that cost at most epsilon {epsilon} "
        "at delta = {delta}{unknown}.",
    ),
    "released-by-learning": ("warning", "The unfinished run may have released {released}."),
    "released-simulated": (
        "warning",
        "The unfinished run released at most {rounds} rounds at budget {budget}, with simulated "
        "noise.",
    ),
    "released-nothing": (
        "info",
        "The unfinished run released nothing, unless {file} was removed from its folder.",
    ),
    "released-unknown": ("warning", "The releases of the unfinished run are not known: {error}."),
    "protected": ("info", "Protected: {adjacency}."),
    "protected-by": ("info", "Protected {by}: {adjacency}."),
    "private-left-out": ("info", "Figures computed from private data are left out."),
    "withheld": ("info", "Runs without certified noise show their settings only."),
    "caveat": ("warning", "{caveat}."),
    "claims": (
        "info",
        "Orderings that the paper states for this figure: {holding} of {stated} hold{noise}.",
    ),
    "published-ratio": (
        "warning",
        "The proven sensitivity is {least} to {most} times the one that the paper's noise is "
        "calibrated to. Above 1, less privacy is delivered than stated.",
    ),
    "intervals": (
        "info",
        "Points and bars are means over seeds with 95 % confidence intervals (Student's t). "
        "Dashed lines are noise-free and prior-only baselines. A value below the axis is drawn on "
        "its lower edge. A triangle at an edge says that an interval goes on beyond it. Points of "
        "one epsilon stand side by side.",
    ),
    "two-seeds": (
        "warning",
        "With two seeds an interval is 12.7 standard errors to each side: more seeds narrow it.",
    ),
    "cost-of-privacy": (
        "info",
        "Cost of privacy: cost minus that of the cheapest AC-feasible noise-free method. Its first "
        "part, the method without noise, is what other rounds, another objective, penalty or "
        "update cost; the rest is the noise.",
    ),
    "costs-include": (
        "info",
        "Costs are generation plus load shedding, without payments between zones for balancing "
        "power.",
    ),
    "negative-cost": (
        "info",
        "A negative cost of privacy is chance, not a gain: the noise happened to lead to a "
        "cheaper dispatch.",
    ),
    "by-round": (
        "info",
        "Means over seeds; bands span the seeds. A heading names what a figure is computed from. "
        "A method with one point needs one round on the relaxation; its AC rounds are not shown.",
    ),
    "steps": (
        "info",
        "Each step is a run of its own under one budget for all steps. Residuals are computed "
        "from releases only, demand and load shedding from private demand.",
    ),
    "claims-table": (
        "info",
        "Every ordering that the paper states for this figure, compared on means over seeds and "
        "the last ten rounds (noise: all rounds). Sensitivity 'published' draws the noise that "
        "the paper states, 'proven' what its epsilon per release needs.",
    ),
    "maps": ("info", "Dashed lines are tie lines between zones."),
    "maps-shed": ("info", "Load shedding per bus is after AC redispatch, the mean over {over}."),
    "certificates": (
        "info",
        "Epsilons of the worst zone or client. Nominal: of one release, according to the "
        "settings. Certified: of the noise drawn, under a proven sensitivity. Totals are "
        "certified: pure by basic composition, at a delta from the privacy loss distribution.",
    ),
    "certificates-of-steps": ("info", "Totals are of all steps together."),
    "plan": (
        "info",
        "gridpriv plan tried each method on demand scenarios sampled from public data. The true "
        "demand was not read and may lie outside: ranges are no bounds.",
    ),
    "audit": (
        "info",
        "The audit runs the mechanism many times on neighbouring data. Measured epsilon is a "
        "lower bound at the stated confidence: above the certified epsilon it is a violation; "
        "below, it is no proof.",
    ),
    "attack": (
        "info",
        "The attack fits demand to the messages that cross the network. An attack whose error is "
        "that of the prior has learned nothing.",
    ),
    "no-ratings": (
        "info",
        "{cases}: no branch has a rating, so there is no loading violation to find.",
    ),
    "plan-measured-other": (
        "info",
        "This run is {gap} $/h over the AC optimum. The plan did not try its settings.",
    ),
    "plan-measured": (
        "info",
        "This run is {gap} $/h over the AC optimum. On the plan's scenarios its method is {least} "
        "to {most} over, in the median {median}.",
    ),
    "gaussian-delta": (
        "info",
        "Epsilon of one Gaussian release holds at the delta of that release. Totals are not sums "
        "of it.",
    ),
    "bound-source": ("info", "Sensitivities: {source}."),
    "limits": ("info", "{panel}, {run}: {explanation}."),
    "failed": ("warning", "{failed} of {runs} runs failed. Means are over the rest."),
    "interrupted": (
        "warning",
        "{missing} planned runs are missing: the study was interrupted. Repeat the command with "
        "--resume.",
    ),
    "repeat": ("info", "To repeat: {command}"),
    "next-seeds": ("next", "To rank the methods, add seeds (--seeds {seeds})."),
    "next-rounds": (
        "next",
        "Add rounds (--rounds) or a larger --penalty where runs have not converged.",
    ),
    "next-once": (
        "next",
        "Where methods draw noise in every round, draw it once (--perturbation demand "
        "--noise-schedule once): noise in every round keeps the residual up.",
    ),
    "next-budget": (
        "next",
        "Raise the budget, protect a smaller change (--beta), or release "
        "fewer values (--release auto): gridpriv plan CASE compares them.",
    ),
    "next-infeasible": (
        "next",
        "See which limits are violated: gridpriv run CASE with the same settings names them.",
    ),
    "next-run": (
        "next",
        "Run {method} alone for its dispatch, interchange and prices: gridpriv run {case}.",
    ),
    "next-secure": (
        "next",
        "For deployment draw the noise with --noise secure and record the release in a ledger "
        "(--ledger).",
    ),
}
message = partial(make_message, TEMPLATES)
