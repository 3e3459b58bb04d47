"""Figures 5, 6 and 7 of Ryu and Kim: MNIST and FEMNIST."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from gridpriv.learning.reproduce import LINES, PALETTE, Bench, Claim, Outcome, claim
from gridpriv.report.figures import legend_below, plain_numbers

EPSILONS = (0.05, 0.1, 0.5, 1.0)
TOTALS = (0.5, 1.0, 5.0)
OUTPUT = "OutG"


def figure5(bench: Bench) -> Outcome:
    """MNIST: noise, objective and test error of ObjG and OutG."""
    return _noise_objective_error(bench, "mnist")


def figure6(bench: Bench) -> Outcome:
    """FEMNIST."""
    return _noise_objective_error(bench, "femnist")


def _sizes(bench: Bench, name: str) -> tuple[int, tuple[int, ...], range]:
    """Return rounds, local updates and seeds."""
    if bench.full:
        return 5000, (1, 5, 10), range(10)
    return (60, (1, 5), range(1)) if name == "mnist" else (30, (1, 5), range(1))


def _noise_objective_error(bench: Bench, name: str) -> Outcome:
    rounds, updates, seeds = _sizes(bench, name)
    every = rounds // (20 if bench.full else 6)
    runs: dict[tuple[float, str], list[dict[str, Any]]] = {}
    for epsilon in EPSILONS:
        for label, given in _variants(updates):
            runs[epsilon, label] = [
                bench.run(
                    name,
                    "ryu-kim",
                    budget=f"per-release:{epsilon}",
                    rounds=rounds,
                    evaluate_every=every,
                    seed=seed,
                    **given,
                )
                for seed in seeds
            ]
    table = pd.DataFrame([_row(*key, "release (paper)", found) for key, found in runs.items()])
    equal = _equal_totals(bench, name, rounds, updates)
    labels = [label for label, _ in _variants(updates)]
    return Outcome(
        table=pd.concat([table, equal], ignore_index=True).rename(
            columns={"epsilon": "eps", "test_error": "test error"}
        ),
        claims=_claims(table, updates, equal),
        draw=lambda figure: _draw(figure, runs, labels),
        notes=[
            f"{rounds} rounds, {len(seeds)} seed(s); the noise is (6.5), a mean over parameters "
            "and a sum over clients and local updates.",
            "The budget is epsilon per release with the paper's noise, or a certified total with "
            "sound noise; total is what is certified at delta 1e-5.",
            _seconds({label: found[0] for (_, label), found in runs.items()}),
            *sorted({note for r in runs.values() for note in r[0]["privacy"]["notes"]}),
        ],
    )


def _variants(updates: tuple[int, ...]) -> list[tuple[str, dict[str, Any]]]:
    objective: list[tuple[str, dict[str, Any]]] = [
        (f"ObjG E={e}", {"local_updates": e}) for e in updates
    ]
    return [*objective, (OUTPUT, {"perturbation": "output"})]


def _equal_totals(bench: Bench, name: str, rounds: int, updates: tuple[int, ...]) -> pd.DataFrame:
    """Return sound runs at equal certified totals, where the paper compares per release."""
    rows = []
    for total in TOTALS:
        for label, given in _variants(updates):
            record = bench.run(
                name,
                "ryu-kim",
                calibration="sound",
                budget=f"total:{total},1e-5",
                rounds=rounds,
                evaluate_every=rounds,
                **given,
            )
            rows.append(_row(total, label, "total (sound)", [record]))
    return pd.DataFrame(rows)


def _row(epsilon: float, label: str, budget: str, records: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "budget": budget,
        "epsilon": epsilon,
        "variant": label,
        "noise": _noise(records),
        "objective": _final(records, "objective"),
        "test_error": _final(records, "test_error"),
        "total": records[0]["privacy"]["total"]["epsilon"],
    }


def _seconds(records: dict[str, dict[str, Any]]) -> str:
    """Return in words what a round takes, by variant."""
    told = [
        f"{np.median(record['series']['seconds']):.2g} ({label})"
        for label, record in records.items()
    ]
    return f"Seconds of the median round: {', '.join(told)}."


def _claims(table: pd.DataFrame, updates: tuple[int, ...], equal: pd.DataFrame) -> list[Claim]:
    one, most = f"ObjG E={updates[0]}", f"ObjG E={updates[-1]}"
    stated = (
        ("The noise of ObjG is greater than that of OutG (E = 1).", "noise", OUTPUT, one),
        ("ObjG's objective is below OutG's (E = 1).", "objective", one, OUTPUT),
        (f"E = {updates[-1]} has a lower objective than E = 1.", "objective", most, one),
        ("ObjG's test error is below OutG's (E = 1).", "test_error", one, OUTPUT),
        (f"E = {updates[-1]} has a lower test error than E = 1.", "test_error", most, one),
    )
    fair = [
        (f"At equal certified totals: {text}", *rest)
        for text, *rest in stated
        if rest[0] == "test_error"
    ]
    return [*_compared(table, EPSILONS, stated), *_compared(equal, TOTALS, fair)]


def _compared(
    table: pd.DataFrame, levels: tuple[float, ...], stated: Sequence[Any]
) -> Iterator[Claim]:
    """Yield the claim, for each (text, figure, a, b), that a's figure is below b's everywhere."""
    look = table.set_index(["epsilon", "variant"])
    for text, figure, a, b in stated:
        pairs = [
            (f"eps {e:g}", float(look.loc[(e, a), figure]), float(look.loc[(e, b), figure]))
            for e in levels
        ]
        yield claim(text, pairs)


def _noise(records: list[dict[str, Any]]) -> float:
    """Return (6.5), the mean over parameters of |noise|, as a mean over rounds and seeds."""
    magnitude = np.mean([np.mean(r["series"]["noise_magnitude"]) for r in records])
    settings = records[0]["settings"]
    size = 784 * (10 if settings["box"] == 0.1 else 62)
    return float(magnitude / size)


def _final(records: list[dict[str, Any]], figure: str) -> float:
    return float(np.mean([r["final"][figure] for r in records]))


def _draw(figure: Any, runs: dict[tuple[float, str], Any], labels: list[str]) -> None:
    rows = (
        ("noise_magnitude", "noise (sum of |noise|)"),
        ("objective", "objective"),
        ("test_error", "test error"),
    )
    axes = figure.subplots(len(rows), len(EPSILONS), sharex=True, sharey="row")
    for j, epsilon in enumerate(EPSILONS):
        for i, (key, text) in enumerate(rows):
            for k, label in enumerate(labels):
                t, values = _mean_series(runs[epsilon, label], key)
                axes[i, j].plot(
                    t,
                    values,
                    color=PALETTE[k],
                    linestyle=LINES[k % len(LINES)],
                    label=label,
                )
            axes[i, j].grid(alpha=0.3)
            if j == 0:
                axes[i, j].set_ylabel(text)
            if key == "noise_magnitude":
                axes[i, j].set_yscale("log")
        axes[0, j].set_title(f"epsilon {epsilon:g} per release")
        axes[-1, j].set_xlabel("round")
    legend_below(figure, axes[0, 0])


def _mean_series(records: list[dict[str, Any]], key: str) -> tuple[Any, Any]:
    rounds = np.array(records[0]["series"]["round"])
    values = np.mean([np.array(r["series"][key], dtype=float) for r in records], axis=0)
    there = np.isfinite(values)
    return rounds[there], values[there]


def figure7(bench: Bench) -> Outcome:
    """Run the output baseline under other penalties: it depends on epsilon, not on rho."""
    seeds = range(10 if bench.full else 1)
    rows = []
    for name, first in (
        ("mnist", "growing:2,1.2,10000,1e9,5"),
        ("femnist", "growing:0.005,1.2,2000,1e9,0.05"),
    ):
        rounds = 5000 if bench.full else (60 if name == "mnist" else 15)
        numbers = first.removeprefix("growing:").split(",")
        small = ",".join(
            [str(float(numbers[0]) / 100), *numbers[1:4], str(float(numbers[4]) / 100)]
        )
        penalties = {
            "0.1": "0.1",
            "1": "1",
            "10": "10",
            "rho^t": first,
            "rho^t/100": f"growing:{small}",
        }
        for epsilon in EPSILONS:
            for label, penalty in penalties.items():
                error = bench.mean(
                    name,
                    "ryu-kim",
                    "test_error",
                    seeds,
                    perturbation="output",
                    rounds=rounds,
                    evaluate_every=rounds,
                    budget=f"per-release:{epsilon}",
                    penalty=penalty,
                )
                rows.append(
                    {"dataset": name, "epsilon": epsilon, "penalty": label, "test_error": error}
                )
    table = pd.DataFrame(rows)
    return Outcome(
        table,
        [_spread_claim(table, name) for name in ("mnist", "femnist")],
        lambda figure: _draw7(figure, table),
    )


def _spread_claim(table: pd.DataFrame, name: str) -> Claim:
    part = table[table.dataset == name].pivot(
        index="epsilon", columns="penalty", values="test_error"
    )
    over_penalty = float((part.max(axis=1) - part.min(axis=1)).mean())
    over_epsilon = float((part.max(axis=0) - part.min(axis=0)).mean())
    return claim(
        f"OutG on {name} depends on epsilon more than on the penalty (mean range of test error).",
        [("over penalties against over epsilons", over_penalty, over_epsilon)],
    )


def _draw7(figure: Any, table: pd.DataFrame) -> None:
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (name, part) in zip(axes, table.groupby("dataset", sort=False), strict=True):
        for k, (label, line) in enumerate(part.groupby("penalty", sort=False)):
            ax.plot(line.epsilon, line.test_error, marker="osD^v"[k], color=PALETTE[k],
                    linestyle=LINES[k % len(LINES)], label=f"penalty {label}")  # fmt: skip
        ax.set_xscale("log")
        plain_numbers(ax.xaxis, EPSILONS)
        ax.set_title(name)
        ax.set_xlabel("epsilon per release")
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("test error of OutG")
    legend_below(figure, axes[0], columns=5)
