"""Figures 2 to 6 of Li et al.: FedSPD-DP on Adult.

The paper's noise needs epsilon <= 1 a round (classical Gaussian), so totals are chosen for
which (36) gives that. Figures show test accuracy and the training objective F/N of the global
model in place of the paper's augmented Lagrangian, whose multipliers no algorithm shares.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from gridpriv.learning.algorithms.fedspd_dp import paper_total
from gridpriv.learning.reproduce import LINES, PALETTE, Bench, Claim, Outcome, claim, falling
from gridpriv.learning.settings import make_learn_settings
from gridpriv.privacy.accounting import total_epsilon
from gridpriv.privacy.mechanism import Charge
from gridpriv.report.figures import legend_below, plain_numbers

DELTA, SAMPLES, CLIENTS, ROUNDS = 1e-4, 325.0, 100, 100
# a column of figure 6's table, and what it holds
FULL, FULL_WITH, SOME, SOME_WITH = "full", "full repl.", "K = 20", "K = 20 repl."
PLAIN, POISSON = "sound plain", "sound Poisson"
TOTALS = {
    "DP-ADMM": "DP-ADMM (paper)",
    FULL: "FedSPD, all clients, without replacement (paper)",
    FULL_WITH: "FedSPD, all clients, with replacement (paper)",
    SOME: "FedSPD, K = 20 clients, without replacement (paper)",
    SOME_WITH: "FedSPD, K = 20 clients, with replacement (paper)",
    PLAIN: "certified, no amplification",
    POISSON: "certified, Poisson batches, add-one",
}


def per_round(total_loss: float, steps: int, batch: int, share: float, rounds: int) -> float:
    """Return epsilon of a round from a total by (36)."""
    one = paper_total(1.0, steps, batch, SAMPLES, share, rounds, with_replacement=False)
    return total_loss / one


def figure2(bench: Bench) -> Outcome:
    """Vary the total privacy loss."""
    totals = (0.5, 1.0, 1.5, 2.0)
    runs = {
        f"total {t:g}": _mean(bench, budget=f"per-release:{per_round(t, 5, 10, 0.2, ROUNDS)!r}")
        for t in totals
    }
    return _curves(bench, runs, "A larger total privacy loss", [])


def figure3(bench: Bench) -> Outcome:
    """Clients of a round."""
    runs = {}
    for chosen in (10, 20, 50, 100):
        epsilon = per_round(1.0, 5, 10, chosen / CLIENTS, ROUNDS)
        runs[f"K = {chosen}"] = _mean(
            bench, sampled_clients=chosen, budget=f"per-release:{epsilon!r}"
        )
    return _curves(bench, runs, "More clients a round", [])


def figure4(bench: Bench) -> Outcome:
    """Local steps."""
    runs = {}
    for steps in (2, 5, 10, 20):
        epsilon = min(1.0, per_round(3.0, steps, 10, 0.1, ROUNDS))
        runs[f"Q = {steps}"] = _mean(
            bench, local_updates=steps, sampled_clients=10, budget=f"per-release:{epsilon!r}"
        )
    note = "total 3 by (36), or epsilon 1 a round where that asks for more."
    return _curves(bench, runs, "More local steps", [note])


def figure5(bench: Bench) -> Outcome:
    """FedSPD-DP against DP-SGD, DP-FedAvg and DP-ADMM at equal epsilon a round."""
    algorithms: dict[str, dict[str, Any]] = {
        "FedSPD-DP": {},
        "DP-ADMM": {"algorithm": "dp-admm", "batch": None, "sampled_clients": None},
        "DP-SGD": {"algorithm": "dpsgd", "clip": 1.0},
        "DP-FedAvg": {"algorithm": "dp-fedavg", "clip": 1.0},
    }
    curves, claims, rows = {}, [], []
    for epsilon in (0.1, 1.0):
        for name, given in algorithms.items():
            curves[epsilon, name] = _mean(bench, budget=f"per-release:{epsilon}", **given)
            rows.append({"epsilon": epsilon, "algorithm": name} | _last(curves[epsilon, name]))
    free = _last(_mean(bench, mechanism="none"))
    rows.append({"epsilon": math.inf, "algorithm": "FedSPD-DP, no noise"} | free)
    for rival in list(algorithms)[1:]:
        for key, text in (("objective", "objective"), ("test_error", "test error")):
            pairs = [
                (
                    f"eps {e:g}",
                    float(curves[e, "FedSPD-DP"][key][-1]),
                    float(curves[e, rival][key][-1]),
                )
                for e in (0.1, 1.0)
            ]
            claims.append(claim(f"FedSPD-DP has a lower {text} than {rival}.", pairs))
    fair = _sound(bench, algorithms)
    for rival in ("DP-ADMM", "DP-SGD"):
        pairs = [
            (f"total {t:g}", fair[t, "FedSPD-DP"]["objective"], fair[t, rival]["objective"])
            for t in (1.0, 5.0)
        ]
        claims.append(
            claim(f"At equal certified totals its objective is still below {rival}'s.", pairs)
        )
    rows += [
        {"epsilon": t, "algorithm": f"{n} (sound, certified total)"} | last
        for (t, n), last in fair.items()
    ]

    def draw(figure: Any) -> None:
        axes = figure.subplots(1, 2, sharey=True)
        for ax, epsilon in zip(axes, (0.1, 1.0), strict=True):
            for k, name in enumerate(algorithms):
                series = curves[epsilon, name]
                ax.plot(series["round"], 1.0 - series["test_error"], color=PALETTE[k],
                        linestyle=LINES[k], label=name)  # fmt: skip
            _draw_majority(ax, bench)
            ax.set_title(f"epsilon {epsilon:g} a round")
            ax.set_xlabel("round")
            ax.grid(alpha=0.3)
        axes[0].set_ylabel("test accuracy")
        legend_below(figure, axes[0], columns=5)

    note = (
        f"FedSPD-DP without any noise ends at objective {free['objective']:.4f}: where a rival "
        "with noise is below that, noise is not what decides. Lemma 2 bounds the change of a "
        "batch's gradient by 2 G whatever b is, 5 G for the round with Q = 5, where DP-ADMM's "
        f"full gradient moves by 2 G/m = {2 / SAMPLES:.4f} G."
    )
    return Outcome(pd.DataFrame(rows), claims, draw, [*_notes(bench), note])


def _majority(bench: Bench) -> float:
    """Return the accuracy of who always names the larger class."""
    labels = bench.dataset("adult", make_learn_settings("adult", "li").missing).y_test
    larger = float(np.mean(labels > 0))
    return max(larger, 1.0 - larger)


def _draw_majority(ax: Any, bench: Bench) -> None:
    ax.axhline(
        _majority(bench), color="#BBBBBB", linewidth=5, zorder=0, label="the larger class, always"
    )


def _sound(
    bench: Bench, algorithms: dict[str, dict[str, Any]]
) -> dict[tuple[float, str], dict[str, float]]:
    found = {}
    for epsilon in (1.0, 5.0):
        for name, given in algorithms.items():
            if name == "DP-FedAvg":  # another adjacency: a client, not a sample
                continue
            series = _mean(bench, calibration="sound", budget=f"total:{epsilon},1e-5", **given)
            found[epsilon, name] = _last(series)
    return found


def figure6(bench: Bench) -> Outcome:
    """Total privacy loss: the paper's formulas and what can be certified."""
    del bench
    table = pd.DataFrame([_totals(t, 0.1) for t in (1, 5, 10, 20, 50, 100)])
    last = table.iloc[-1]
    stated = [FULL, FULL_WITH, SOME, SOME_WITH]

    def covers(text: str, sound: str, paper: str) -> Claim:
        return claim(text, [("certified against stated", float(last[sound]), float(last[paper]))])

    claims = [
        claim(
            "FedSPD-DP's total is below DP-ADMM's, by the paper's formulas.",
            [(name, float(last[name]), float(last["DP-ADMM"])) for name in stated],
        ),
        claim(
            "Drawing with replacement costs less than without, by the paper's formulas.",
            [(s, float(last[f"{s} repl."]), float(last[s])) for s in (FULL, SOME)],
        ),
        covers(
            "The paper's total for full participation covers the one certified with Poisson "
            "batches under add-one.", POISSON, FULL,
        ),
        covers(
            "The paper's total for full participation covers the one certified without "
            "amplification.", PLAIN, FULL,
        ),
        covers(
            "The paper's total for K = 20 covers a client drawn in every round, certified with "
            "Poisson batches under add-one.", POISSON, SOME,
        ),
    ]  # fmt: skip
    notes = [
        "Total epsilon at delta 1e-4, at epsilon 0.1 a round. full, K = 20: the paper's formula "
        "for FedSPD-DP with all clients or 20 of 100 in a round; repl.: batches drawn with "
        "replacement, else without. sound: certified, plain without amplification by sampling, "
        "Poisson with Poisson batches under add-one.",
        "(21) averages the log moment over client sampling, which whoever sees who takes part does "
        "not; the certified lines are per round of participation, for the algorithm that restarts "
        "from released values with the noise of the sensitivity it claims.",
    ]
    return Outcome(table, claims, lambda figure: _draw_totals(figure, table), notes)


def _totals(rounds: int, epsilon: float) -> dict[str, float]:
    """Return the total after some rounds by every accounting."""

    def paper(share: float, *, replaced: bool) -> float:
        return paper_total(epsilon, 5, 10, SAMPLES, share, rounds, replaced)

    return {
        "rounds": rounds,
        "DP-ADMM": 3.04 * math.sqrt(rounds) * epsilon,
        FULL: paper(1.0, replaced=False),
        FULL_WITH: paper(1.0, replaced=True),
        SOME: paper(0.2, replaced=False),
        SOME_WITH: paper(0.2, replaced=True),
        PLAIN: total_epsilon({_plain(epsilon): rounds}, DELTA),
        POISSON: total_epsilon({_sampled(epsilon): rounds}, DELTA),
    }


def _draw_totals(figure: Any, table: pd.DataFrame) -> None:
    ax = figure.subplots()
    colours = [colour for colour in PALETTE if colour != "#F0E442"]
    for k, (name, words) in enumerate(TOTALS.items()):
        ax.plot(
            table.rounds, table[name], marker="osD^vPX"[k], markersize=4, color=colours[k],
            label=words, linestyle="--" if name in (PLAIN, POISSON) else "-",
        )  # fmt: skip
    ax.set_xlabel("rounds a client takes part in")
    ax.set_ylabel("total epsilon at delta 1e-4")
    ax.set_yscale("log")
    plain_numbers(ax.yaxis)
    ax.set_xlim(left=0.0)
    ax.grid(alpha=0.3)
    legend_below(figure, ax, columns=2)


def _plain(epsilon: float) -> Charge:
    return Charge("gaussian", math.sqrt(2.0 * math.log(1.25 / DELTA)) / epsilon)


def _sampled(epsilon: float) -> Charge:
    rate = 1.0 - (1.0 - 10.0 / SAMPLES) ** 5
    return Charge("sampled-gaussian", _plain(epsilon).parameter, rate)


def _mean(bench: Bench, **given: Any) -> dict[str, Any]:
    """Return series of a run, as means over seeds."""
    seeds = range(10 if bench.full else 2)
    records = [
        bench.run("adult", "li", seed=seed, rounds=ROUNDS, evaluate_every=5, **given)
        for seed in seeds
    ]
    rounds = np.array(records[0]["series"]["round"])
    found = {
        key: np.mean([np.array(r["series"][key], dtype=float) for r in records], axis=0)
        for key in ("objective", "test_error")
    }
    there = np.isfinite(found["objective"])
    return {"round": rounds[there]} | {key: values[there] for key, values in found.items()}


def _last(series: dict[str, Any]) -> dict[str, float]:
    return {key: float(series[key][-1]) for key in ("objective", "test_error")}


def _curves(bench: Bench, runs: dict[str, dict[str, Any]], what: str, notes: list[str]) -> Outcome:
    table = pd.DataFrame([{"run": name} | _last(series) for name, series in runs.items()])
    claims: list[Claim] = [
        falling(f"{what} gives a lower objective.", "objective", table.objective.tolist()),
        falling(f"{what} gives a lower test error.", "test error", table.test_error.tolist()),
        claim(
            "The objective falls over the run.",
            [
                (name, float(s["objective"][-1]), float(s["objective"][0]))
                for name, s in runs.items()
            ],
        ),
    ]

    def draw(figure: Any) -> None:
        axes = figure.subplots(1, 2)
        for k, (name, series) in enumerate(runs.items()):
            look = {"color": PALETTE[k], "linestyle": LINES[k], "label": name}
            axes[0].plot(series["round"], 1.0 - series["test_error"], **look)
            axes[1].plot(series["round"], series["objective"], **look)
        _draw_majority(axes[0], bench)
        for ax, text in zip(axes, ("test accuracy", "objective"), strict=True):
            ax.set_xlabel("round")
            ax.set_ylabel(text)
            ax.grid(alpha=0.3)
        legend_below(figure, axes[0], columns=5)

    return Outcome(table, claims, draw, [*_notes(bench), *notes])


def _notes(bench: Bench) -> list[str]:
    return [
        f"{10 if bench.full else 2} seeds, {ROUNDS} rounds, 105 columns (the paper's 162 "
        "parameters are not described), rows of norm 1 so that G = 1.",
        "All seeds share one division of Adult into training and test rows, that of seed 0; a "
        "seed draws the noise, the batches and who holds which row.",
        f"Who always names the larger class is right in {100.0 * _majority(bench):.1f} % of the "
        "test rows: a model at that accuracy may have learned no more.",
    ]
