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
from gridpriv.learning.reproduce import PALETTE, Bench, Claim, Outcome, claim, falling
from gridpriv.privacy.accounting import total_epsilon
from gridpriv.privacy.mechanism import Charge

DELTA, SAMPLES, CLIENTS, ROUNDS = 1e-4, 325.0, 100, 100


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
        pairs = [(f"total {t:g}", fair[t, "FedSPD-DP"], fair[t, rival]) for t in (1.0, 5.0)]
        claims.append(
            claim(f"At equal certified totals its objective is still below {rival}'s.", pairs)
        )
    table = pd.concat(
        [
            pd.DataFrame(rows),
            pd.DataFrame(
                [
                    {"epsilon": t, "algorithm": f"{n} (sound, certified total)", "objective": v}
                    for (t, n), v in fair.items()
                ]
            ),
        ],
        ignore_index=True,
    )

    def draw(figure: Any) -> None:
        axes = figure.subplots(1, 2, sharey=True)
        for ax, epsilon in zip(axes, (0.1, 1.0), strict=True):
            for k, name in enumerate(algorithms):
                series = curves[epsilon, name]
                ax.plot(series["round"], 1.0 - series["test_error"], color=PALETTE[k], label=name)
            ax.set_title(f"epsilon {epsilon:g} a round")
            ax.set_xlabel("round")
            ax.grid(alpha=0.3)
        axes[0].set_ylabel("test accuracy")
        axes[0].legend(fontsize=8)

    note = (
        f"FedSPD-DP without any noise ends at objective {free['objective']:.4f}: where a rival "
        "with noise is below that, noise is not what decides. Lemma 2 bounds the change of a "
        "batch's gradient by 2 G whatever b is, 5 G for the round with Q = 5, where DP-ADMM's "
        f"full gradient moves by 2 G/m = {2 / SAMPLES:.4f} G."
    )
    return Outcome(table, claims, draw, [*_notes(bench), note])


def _sound(bench: Bench, algorithms: dict[str, dict[str, Any]]) -> dict[tuple[float, str], float]:
    found = {}
    for epsilon in (1.0, 5.0):
        for name, given in algorithms.items():
            if name == "DP-FedAvg":  # another adjacency: a client, not a sample
                continue
            series = _mean(bench, calibration="sound", budget=f"total:{epsilon},1e-5", **given)
            found[epsilon, name] = float(series["objective"][-1])
    return found


def figure6(bench: Bench) -> Outcome:
    """Total privacy loss: the paper's formulas and what can be certified."""
    del bench
    rounds = np.array([1, 5, 10, 20, 50, 100])
    epsilon = 0.1
    rows = []
    for t in rounds:
        row = {"rounds": int(t), "DP-ADMM (paper)": 3.04 * math.sqrt(float(t)) * epsilon}
        for label, share in (("full", 1.0), ("K = 20", 0.2)):
            for draw_label, replaced in (("without", False), ("with", True)):
                row[f"FedSPD {label}, {draw_label} replacement (paper)"] = paper_total(
                    epsilon, 5, 10, SAMPLES, share, int(t), replaced
                )
        for text, one in (
            ("certified, no amplification", _plain(epsilon)),
            ("certified, Poisson batches, add-one", _sampled(epsilon)),
        ):
            row[text] = total_epsilon({one: int(t)}, DELTA)
        rows.append(row)
    table = pd.DataFrame(rows)
    last = table.iloc[-1]
    without = "FedSPD full, without replacement (paper)"
    claims = [
        claim(
            "FedSPD-DP's total is below DP-ADMM's, by the paper's formulas.",
            [
                (c, float(last[c]), float(last["DP-ADMM (paper)"]))
                for c in table.columns
                if "FedSPD" in c
            ],
        ),
        claim(
            "Drawing with replacement costs less than without, by the paper's formulas.",
            [
                (
                    s,
                    float(last[f"FedSPD {s}, with replacement (paper)"]),
                    float(last[f"FedSPD {s}, without replacement (paper)"]),
                )
                for s in ("full", "K = 20")
            ],
        ),
        claim(
            "The paper's total for full participation covers the certified one.",
            [
                (
                    "certified against stated",
                    float(last["certified, Poisson batches, add-one"]),
                    float(last[without]),
                )
            ],
        ),
        claim(
            "The paper's total for K = 20 covers a client drawn in every round.",
            [
                (
                    "certified against stated",
                    float(last["certified, Poisson batches, add-one"]),
                    float(last["FedSPD K = 20, without replacement (paper)"]),
                )
            ],
        ),
    ]

    def draw(figure: Any) -> None:
        ax = figure.subplots()
        for k, name in enumerate(table.columns[1:]):
            ax.plot(
                table.rounds,
                table[name],
                marker=".",
                color=PALETTE[k % len(PALETTE)],
                label=name,
                linestyle="-" if "paper" in name else "--",
            )
        ax.set_xlabel("rounds a client takes part in")
        ax.set_ylabel("total epsilon at delta 1e-4")
        ax.set_yscale("log")
        ax.grid(alpha=0.3)
        ax.legend(fontsize=7)

    notes = [
        "(21) averages the log moment over client sampling, which whoever sees who takes part does "
        "not; the certified lines are per round of participation, for the algorithm that restarts "
        "from released values with the noise of the sensitivity it claims."
    ]
    return Outcome(table, claims, draw, notes)


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
            axes[0].plot(series["round"], 1.0 - series["test_error"], color=PALETTE[k], label=name)
            axes[1].plot(series["round"], series["objective"], color=PALETTE[k], label=name)
        for ax, text in zip(axes, ("test accuracy", "objective"), strict=True):
            ax.set_xlabel("round")
            ax.set_ylabel(text)
            ax.grid(alpha=0.3)
        axes[0].legend(fontsize=8)

    return Outcome(table, claims, draw, [*_notes(bench), *notes])


def _notes(bench: Bench) -> list[str]:
    return [
        f"{10 if bench.full else 2} seeds, {ROUNDS} rounds, 105 columns (the paper's 162 "
        "parameters are not described), rows of norm 1 so that G = 1."
    ]
