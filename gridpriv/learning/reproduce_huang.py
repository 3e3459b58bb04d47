"""Figures 1 to 6 and table II of Huang et al.: Adult, L1 and L2 logistic regression.

The paper measures its private algorithms by the local models that are released (empirical loss
over agents of w_i); here the global model stands beside them, because it averages the agents'
noise away and orders the algorithms otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from gridpriv.learning.augmented import AugmentedObjective
from gridpriv.learning.clients import make_clients
from gridpriv.learning.datasets.split import split
from gridpriv.learning.regularizers import parse_regularizer
from gridpriv.learning.reproduce import (
    LINES,
    MARKERS,
    PALETTE,
    Bench,
    Claim,
    Outcome,
    claim,
    falling,
)
from gridpriv.report.figures import legend_below, plain_numbers

EPSILONS = (0.01, 0.05, 0.1, 0.2)
DELTAS = (1e-3, 1e-4, 1e-5, 1e-6)
AGENTS = (10, 50, 100, 200)
ROUNDS = 100
ONE_SPLIT = (
    "All seeds share one division of Adult into training and test rows, that of seed 0; a seed "
    "draws the noise and who holds which row."
)
PRIVATE: dict[str, dict[str, Any]] = {
    "DP-ADMM": {"algorithm": "dp-admm"},
    "PVP": {"algorithm": "pvp"},
    "DVP": {"algorithm": "dvp"},
    "DPSGD": {"algorithm": "dpsgd"},
    # at the paper's rate, 0.1, 100 steps do not leave the majority class
    "DPSGD at rate 3": {"algorithm": "dpsgd", "learning_rate": 3.0},
}
# PVP and DVP need a smooth objective
COMPARED = {"l1": ("DP-ADMM", "DPSGD", "DPSGD at rate 3"), "l2": tuple(PRIVATE)}
FREE = {"admm": "ADMM", "centralized": "central"}


def figure1(bench: Bench) -> Outcome:
    """Vary the number of agents, L1."""
    return _agents(bench, "l1")


def figure2(bench: Bench) -> Outcome:
    """Convergence, L1."""
    return _convergence(bench, "l1")


def figure3(bench: Bench) -> Outcome:
    """Accuracy, L1."""
    return _accuracy(bench, "l1")


def figure4(bench: Bench) -> Outcome:
    """Vary the number of agents, L2."""
    return _agents(bench, "l2")


def figure5(bench: Bench) -> Outcome:
    """Convergence, L2."""
    return _convergence(bench, "l2")


def figure6(bench: Bench) -> Outcome:
    """Accuracy, L2."""
    return _accuracy(bench, "l2")


def _seeds(bench: Bench) -> range:
    return range(10 if bench.full else 2)


def _agents(bench: Bench, kind: str) -> Outcome:
    """Return loss and error of DP-ADMM for several numbers of agents, and the centralized ones."""
    preset, seeds = f"huang-{kind}", _seeds(bench)
    central = bench.run("adult", preset, algorithm="centralized", mechanism="none", clients=100)
    rows = []
    for agents in AGENTS:
        for epsilon in (0.05, 0.1, 0.2):
            given = {"clients": agents, "budget": f"per-release:{epsilon}", "evaluate_every": 100}
            rows.append(
                {"agents": agents, "epsilon": epsilon}
                | {
                    figure: bench.mean("adult", preset, figure, seeds, **given)
                    for figure in ("local_loss", "local_error", "test_error")
                }
            )
    table = pd.DataFrame(rows)
    claims = []
    for epsilon, part in table.groupby("epsilon"):
        claims.append(
            falling(
                f"The error grows with the number of agents (eps {epsilon:g}).",
                "local error from most agents to fewest",
                part.local_error.tolist()[::-1],
            )
        )
    best = float(table.local_error.min())
    claims.append(
        claim(
            "The centralized solution has the lowest error.",
            [("centralized against the best", central["final"]["test_error"], best)],
        )
    )

    def draw(figure: Any) -> None:
        axes = figure.subplots(1, 2)
        for ax, key in zip(axes, ("local_loss", "local_error"), strict=True):
            for k, (epsilon, part) in enumerate(table.groupby("epsilon")):
                ax.plot(
                    part.agents,
                    part[key],
                    marker=MARKERS[k],
                    linestyle=LINES[k],
                    color=PALETTE[k],
                    label=f"epsilon {epsilon:g} per release",
                )
            reference = central["final"]["train_loss" if key == "local_loss" else "test_error"]
            ax.axhline(reference, color="black", linestyle=":", label="central (no noise)")
            ax.set_xlabel("agents")
            ax.set_ylabel(TITLES[key])
            ax.grid(alpha=0.3)
        legend_below(figure, axes[0])

    return Outcome(_in_words(table), claims, draw, _notes(seeds))


def _convergence(bench: Bench, kind: str) -> Outcome:
    preset, seed = f"huang-{kind}", 0
    dataset = bench.dataset("adult")
    clients = make_clients(dataset, split(dataset, "iid", 100, seed))
    levels = [(e, 1e-3) for e in EPSILONS] + [(0.1, d) for d in DELTAS[1:]]
    curves: dict[tuple[float, float], Any] = {}
    for epsilon, delta in levels:
        watcher = AugmentedObjective(clients, parse_regularizer(f"{kind}:1e-6"), kind == "l1")
        record = bench.run(
            "adult",
            preset,
            watcher,
            budget=f"per-release:{epsilon},{delta}",
            seed=seed,
            evaluate_every=100,
        )
        rounds = np.array(record["series"]["round"])
        values = np.array(record["series"]["augmented_objective"], dtype=float)
        there = np.isfinite(values)
        curves[epsilon, delta] = (rounds[there], values[there])
    table = pd.DataFrame(
        [
            {
                "epsilon": e,
                "delta": d,
                "first": v[0],
                "round_50": v[list(t).index(50)],
                "last": v[-1],
            }
            for (e, d), (t, v) in curves.items()
        ]
    )
    by_epsilon = [float(curves[e, 1e-3][1][-1]) for e in EPSILONS]
    by_delta = [float(curves[0.1, d][1][-1]) for d in reversed(DELTAS)]
    claims = [
        falling(
            "A larger epsilon converges to a lower augmented objective.",
            "last value by rising epsilon",
            by_epsilon,
        ),
        falling(
            "A larger delta converges to a lower augmented objective.",
            "last value by rising delta",
            by_delta,
        ),
        claim(
            "The augmented objective falls over the run.",
            [
                (f"eps {e:g}, delta {d:g}", float(v[-1]), float(v[1]))
                for (e, d), (_, v) in curves.items()
            ],
        ),
    ]

    def draw(figure: Any) -> None:
        axes = figure.subplots(1, 2, sharey=True)
        for k, epsilon in enumerate(EPSILONS):
            axes[0].plot(*curves[epsilon, 1e-3], color=PALETTE[k], linestyle=LINES[k],
                         label=f"epsilon {epsilon:g}")  # fmt: skip
        for k, delta in enumerate(DELTAS):
            axes[1].plot(*curves[0.1, delta], color=PALETTE[k], linestyle=LINES[k],
                         label=f"delta {delta:g}")  # fmt: skip
        axes[0].set_title("delta 1e-3")
        axes[1].set_title("epsilon 0.1")
        axes[0].set_ylabel("augmented objective")
        for ax in axes:
            ax.set_yscale("log")
            plain_numbers(ax.yaxis)
            ax.set_xlabel("round")
            # every curve falls from the upper left
            ax.legend(fontsize=8, loc="upper right")
            ax.grid(alpha=0.3)

    notes = [f"Seed 0, {len(levels)} levels, {ROUNDS} rounds."]
    return Outcome(_in_words(table), claims, draw, notes)


def _accuracy(bench: Bench, kind: str) -> Outcome:
    preset, seeds = f"huang-{kind}", _seeds(bench)
    rows = []
    for algorithm, name in FREE.items():
        final = bench.run(
            "adult", preset, algorithm=algorithm, mechanism="none", evaluate_every=100
        )["final"]
        rows.append({"algorithm": name, "epsilon": np.inf} | _figures(final))
    for epsilon in EPSILONS:
        for name in COMPARED[kind]:
            finals = [
                bench.run(
                    "adult",
                    preset,
                    **PRIVATE[name],
                    budget=f"per-release:{epsilon}",
                    seed=seed,
                    evaluate_every=100,
                )
                for seed in seeds
            ]
            mean = {k: float(np.mean([r["final"][k] for r in finals])) for k in FIGURES}
            total = finals[0]["privacy"]["total"]["epsilon"]
            rows.append({"algorithm": name, "epsilon": epsilon} | mean | {"certified_total": total})
    table = pd.DataFrame(rows)
    return Outcome(
        _in_words(table),
        _accuracy_claims(table, kind),
        lambda figure: _draw_accuracy(figure, table),
        [*_notes(seeds), "Delta 1e-3 per release; totals are certified at delta 1e-5."],
    )


FIGURES = ("local_loss", "local_error", "train_loss", "test_error")
TITLES = {
    "local_loss": "loss, local models",
    "local_error": "test error, local models",
    "test_error": "test error, global model",
}


def _in_words(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose headers are short and can be broken between words."""
    short = table.rename(columns={"epsilon": "eps", "certified_total": "total"})
    return short.rename(columns=lambda name: name.replace("_", " "))


def _figures(final: dict[str, float]) -> dict[str, float]:
    return {key: final[key] for key in FIGURES}


def _accuracy_claims(table: pd.DataFrame, kind: str) -> list[Claim]:
    look = table.set_index(["algorithm", "epsilon"])
    claims = []
    for key, which in (
        ("local_loss", "empirical loss of the released local models"),
        ("local_error", "error of the released local models"),
        ("test_error", "error of the global model"),
    ):
        for rival in COMPARED[kind][1:]:
            pairs = [
                (
                    f"eps {e:g}",
                    float(look.loc[("DP-ADMM", e), key]),
                    float(look.loc[(rival, e), key]),
                )
                for e in EPSILONS
            ]
            claims.append(claim(f"DP-ADMM beats {rival} in {which}.", pairs))
    errors = [float(look.loc[("DP-ADMM", e), "local_error"]) for e in EPSILONS]
    claims.append(falling("DP-ADMM's error falls as epsilon grows.", "local error", errors))
    free = float(look.loc[("ADMM", np.inf), "test_error"])
    claims.append(
        claim(
            "Non-private ADMM has the lowest error.", [("ADMM against DP-ADMM", free, min(errors))]
        )
    )
    return claims


def _draw_accuracy(figure: Any, table: pd.DataFrame) -> None:
    axes = figure.subplots(1, 3)
    private = table[np.isfinite(table.epsilon)]
    for ax, key in zip(axes, ("local_loss", "local_error", "test_error"), strict=True):
        for k, (name, part) in enumerate(private.groupby("algorithm", sort=False)):
            ax.plot(part.epsilon, part[key], marker=MARKERS[k], color=PALETTE[k],
                    linestyle=LINES[k], label=name)  # fmt: skip
        for style, name in (("-", "ADMM"), (":", "central")):
            value = float(table.loc[table.algorithm == name, key].iloc[0])
            ax.axhline(value, color="black", linestyle=style, label=f"{name} (no noise)")
        ax.set_xscale("log")
        plain_numbers(ax.xaxis, EPSILONS)
        ax.set_xlabel("epsilon per release")
        ax.set_title(TITLES[key], fontsize=11)
        ax.grid(alpha=0.3)
        if key == "local_loss":
            ax.set_yscale("log")
            plain_numbers(ax.yaxis)
    legend_below(figure, axes[0])


def table2(bench: Bench) -> Outcome:
    """Time 100 rounds."""
    rows, pairs = [], []
    given: dict[str, Any] = {"evaluate_every": ROUNDS}
    admm = _seconds(bench.run("adult", "huang-l2", algorithm="admm", mechanism="none", **given))
    for epsilon in (0.01, 0.05, 0.1):
        given["budget"] = f"per-release:{epsilon}"
        took = {"ADMM": admm} | {
            name: _seconds(bench.run("adult", "huang-l2", **PRIVATE[name], **given))
            for name in ("PVP", "DVP", "DP-ADMM")
        }
        fastest = min(took["ADMM"], took["PVP"], took["DVP"])
        pairs.append((f"eps {epsilon:g}", took["DP-ADMM"], fastest / 5.0))
        rows.append({"epsilon": epsilon} | {f"{name} (s)": took[name] for name in took})
    table = pd.DataFrame(rows)
    claims = [
        claim("DP-ADMM takes less than a fifth of the time of the fastest exact ADMM.", pairs)
    ]
    return Outcome(table, claims, lambda figure: _draw_times(figure, table), [TIMED])


TIMED = (
    f"Seconds are the median round's times {ROUNDS}: a sum counts every moment in which the "
    "machine did something else. A load that lasts moves the median too, so the ratio depends on "
    "what else the machine does: repeat it on an idle one. Exact updates: Nesterov's method to "
    "1e-6, warm started."
)


def _seconds(record: dict[str, Any]) -> float:
    """Return what a run's rounds take, from the median one."""
    return ROUNDS * float(np.median(record["series"]["seconds"]))


def _draw_times(figure: Any, table: pd.DataFrame) -> None:
    ax = figure.subplots()
    for k, column in enumerate(table.columns[1:]):
        bars = ax.bar(
            np.arange(len(table)) + 0.2 * k, table[column], width=0.2, color=PALETTE[k],
            hatch=("", "//", "..", "xx")[k], edgecolor="black", linewidth=0.5,
            label=column.removesuffix(" (s)"),
        )  # fmt: skip
        ax.bar_label(bars, fmt="%.2g", fontsize=8, padding=1)
    ax.set_xticks(np.arange(len(table)) + 0.3, [f"{e:g}" for e in table.epsilon])
    ax.set_xlabel("epsilon per release")
    ax.set_ylabel(f"seconds for {ROUNDS} rounds")
    ax.margins(y=0.08)
    legend_below(figure, ax)


def _notes(seeds: range) -> list[str]:
    return [
        f"{len(seeds)} seeds, {ROUNDS} rounds, 40,000 training and 5,222 test rows, 104 columns.",
        ONE_SPLIT,
    ]
