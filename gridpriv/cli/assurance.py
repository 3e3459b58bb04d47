"""``gridpriv audit`` and ``gridpriv attack``: tests of epsilon, and disclosure by messages."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import gridpriv
from gridpriv.cli import flags, output
from gridpriv.core.errors import whole
from gridpriv.core.text import Json, counted
from gridpriv.grid.case import Case
from gridpriv.zonal.settings import PRESETS, Settings

if TYPE_CHECKING:
    import pandas as pd

    from gridpriv.assurance.attack import AttackResult

FAILED = 1
LEARNING = "learning"  # in place of a case: the algorithms of gridpriv learn
TOTALS = flags.number(lambda text: tuple(map(float, text.split(","))), "numbers, such as 0.5,1,5")
AVERAGED = (1, 2, 5, 10, 20, 40)
LEAST_GAIN = 0.01
"""Least improvement of an attack over the prior, as a share of its error, above solver accuracy."""
DISCLOSURE_FACTOR = 2.0
"""Multiple of beta below which a mean error gives a warning."""
STATISTICS = {
    "level": "observed",
    "delta": "delta",
    "nominal": "nominal",
    "certified": "cert.",
    "measured": "measured",
    "runs": "runs",
    "detectable": "detectable",
    "verdict": "verdict",
}


def _add_run(parser: argparse.ArgumentParser, *hidden: str) -> None:
    """Add the case, zones and settings of the audited run."""
    flags.flag(parser, "case", "CASE")
    flags.add_zone_arguments(parser)
    flags.add_settings(parser, Settings, PRESETS, ("temporal_basis", "stream"), hidden=hidden)
    flags.refer(parser, "run")


def _studied(args: argparse.Namespace) -> tuple[Case, gridpriv.Zoning, Settings]:
    """Return case, zones and settings of an audited run."""
    settings = flags.run_settings(args)
    case = flags.given_case(args, settings.load_scale)
    return case, flags.chosen_zoning(case, args), settings


def add_audit(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``audit``."""
    _add_run(parser)
    flags.flag(parser, "--runs", "N", flags.WHOLE)
    flags.flag(parser, "--confidence", "C", flags.REAL, 0.999)
    flags.flag(parser, "--audit-rounds", "R", flags.WHOLE, 5)
    flags.flag(parser, "--levels", "A,B", default="release,solution,messages")
    flags.flag(parser, "--bus", "BUS", flags.WHOLE)
    flags.add_output(parser, "DIR")
    parser.set_defaults(execute=execute_audit)


def execute_audit(args: argparse.Namespace) -> int:
    """Audit; print or write the verdict; return 1 if a certificate does not hold."""
    from gridpriv.assurance.audit import RUNS, AuditPlan, audit

    if args.case == LEARNING:
        return _audit_learning(args)
    case, zoning, settings = _studied(args)
    levels = tuple(args.levels.split(","))
    runs = None if args.runs is None else dict.fromkeys(RUNS, args.runs)
    plan = AuditPlan(runs, args.confidence, args.audit_rounds, levels=levels, bus=args.bus)
    output.output_folder(args.out)
    with output.progress(args, case.name, 100 * len(levels) + zoning.n_zone) as advance:
        result = audit(prepared := gridpriv.prepare(case, zoning, settings), plan, watch=advance)
    document = result.as_dict()

    def files() -> Json:
        from gridpriv.report.charts import audit_bars

        return {"audit": audit_bars(result)}

    def show() -> None:
        _print_audit(document, on_ac=prepared.in_ac_rounds)
        output.say(f"Protected: {prepared.rules.adjacency.protection(case.base_mva)}.")

    return output.finish(args, document, show, files, 0 if result.passed else FAILED)


def _audit_learning(args: argparse.Namespace) -> int:
    """Audit the algorithms of ``gridpriv learn`` on synthetic samples."""
    from gridpriv.assurance.learned import audit_learning

    checks = audit_learning()
    failed = [check for check in checks if not check.passed]
    verdict = "violation" if failed else "consistent"
    document: Json = {"case": LEARNING, "checks": [c.as_dict() for c in checks], "verdict": verdict}
    names = list(dict.fromkeys(check.check for check in checks))
    ratios: dict[str, dict[str, float]] = {}
    for check in checks:
        ratios.setdefault(check.lane, {})[check.check] = round(check.measured / check.allowed, 3)
    rows = [[lane, *(shares.get(name) for name in names)] for lane, shares in ratios.items()]

    def show() -> None:
        output.print_table("gridpriv learn: measured over allowed", ["algorithm", *names], rows)
        output.say(output.worded("audit-learning"))
        output.say(f"Verdict: {verdict}; {len(failed)} of {len(checks)} checks failed.")

    return output.finish(args, document, show, code=FAILED if failed else 0)


def _print_audit(document: Json, *, on_ac: bool = False) -> None:
    from gridpriv.assurance.audit import CHECKS
    from gridpriv.assurance.statistic import POWER

    replayed = [r | {"quantity": CHECKS[r["check"]] or r["neighbour"]} for r in document["replay"]]
    replayed += [
        {"check": name, "neighbours": 0, "quantity": "not checked: no cdf"}
        | dict.fromkeys(("measured", "allowed", "passed"))
        for name in document["not_checked"]
    ]
    columns = {"check": "check", "neighbours": "tests", "quantity": "quantity"}
    columns |= {name: name for name in ("measured", "allowed", "passed")}
    title = f"{document['case']}: replay on adjacent demand, releases frozen"
    output.print_records(title, columns, replayed)
    output.say(output.worded("audit-replay"))
    for lane in document["left_out"]:
        output.say(output.worded("audit-left-out", **lane))
    measured = [
        r | {"verdict": r["verdict"].removeprefix("claim ")} for r in document["statistical"]
    ]
    title = (
        f"Statistical audit, bus {document['neighbour']['bus']} of zone {document['zone']}, "
        f"{100 * document['confidence']:g} % confidence"
    )
    output.print_records(title, STATISTICS, measured)
    if on_ac:
        output.say(output.worded("audit-relaxed"))
    output.say(
        "observed: what the adversary sees; secure: the release under secure noise;\n"
        "nominal: epsilon according to the settings; cert.: certified epsilon, as charged;\n"
        "measured: lower bound of epsilon; detectable: least epsilon above nominal that so many\n"
        f"runs detect with probability {100 * POWER:g} % (randomized response; others need more)."
    )
    output.say(f"Verdict: {document['verdict']}.")


def add_attack(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``attack``."""
    _add_run(parser, "noise")  # simulated only; secure noise is refused with the reason
    flags.flag(parser, "--seeds", "N", flags.WHOLE, 5)
    flags.flag(parser, "--totals", "E,E", TOTALS, ())
    flags.flag(parser, "--attack-rounds", "R", flags.WHOLE, 10)
    flags.flag(parser, "--prior", "NAME", default="grid")
    flags.flag(parser, "--prior-spread", "S", flags.REAL, 1.0)
    flags.flag(parser, "--bus", "BUS", flags.WHOLE)
    flags.switch(parser, "--averaging")
    flags.add_output(parser, "DIR")
    parser.set_defaults(execute=execute_attack)


def execute_attack(args: argparse.Namespace) -> int:
    """Attack; print or write the results."""
    from gridpriv.assurance.attack import AttackPlan, attack, averaging

    case, zoning, settings = _studied(args)
    whole("attack_rounds", args.attack_rounds)
    plan = AttackPlan(
        args.seeds, args.totals, args.attack_rounds, args.prior, args.prior_spread, args.bus
    )
    output.output_folder(args.out)
    prepared = gridpriv.prepare(case, zoning, settings)
    noisy = settings.mechanism != "none"
    zones = zoning.n_zone if args.bus is None else 1
    steps = zones * (1 + noisy * plan.seeds * (1 + len(plan.totals)))
    steps += args.averaging * zones * 2 * plan.seeds * len(AVERAGED)
    with output.progress(args, case.name, steps) as advance:
        result, curve = attack(prepared, plan, advance), None
        if args.averaging and noisy:
            curve = averaging(prepared, plan, AVERAGED, advance)
    document = result.as_dict()
    document["averaging"] = None if curve is None else curve.to_dict("records")
    files = partial(_attack_files, result, curve)
    return output.finish(args, document, lambda: _print_attack(result), files)


def _attack_files(result: AttackResult, curve: pd.DataFrame | None) -> Json:
    """Return the tables and figures of an attack by name."""
    from gridpriv.report.charts import error_map, errors_bars

    files: Json = {
        "buses": result.buses(),
        "by_distance": result.by_distance(),
        "attack": errors_bars(result),
        "map": error_map(result),
        "map_noise_free": error_map(result, "noise-free"),
    }
    return files if curve is None else files | {"averaging": curve}


def _print_attack(result: AttackResult) -> None:
    from gridpriv.assurance.attack import PROTECTED

    document = result.as_dict()
    columns = {
        "configuration": "run",
        "adversary": "channel",
        "mae_mw": "MW",
        "interval_mw": "+- MW",
        "error_percent": "median %",
        "recovered": "within 5 %",
        "of_prior": "of prior",
    }
    shown, scale = result.shown, result.prepared.settings.load_scale
    after = "" if scale == 1.0 else f" after --load-scale {scale:g}"
    title = (
        f"{result.prepared.case.name}: error of active demand{after}, "
        f"{counted(len(result.attacked), 'bus')}, {counted(result.plan.seeds, 'seed')}"
    )
    output.print_records(title, columns, _three(document["summary"], columns))
    output.say(output.worded("attack-columns"))
    if len({outcome.adversary for outcome in result.outcomes}) > 1:
        output.say(output.worded("attack-channels"))
    if result.prepared.in_ac_rounds:
        output.say(output.worded("audit-relaxed"))
    mean = float(result.errors(shown).mean())
    if shown.label == PROTECTED:
        beta = result.beta_mw
        if beta is None:
            output.say(output.worded("attack-unprotected", mean=mean, after=after))
        elif mean < DISCLOSURE_FACTOR * beta:
            output.say(output.worded("attack-disclosed", mean=mean, beta=beta, after=after))
    _print_identifiability(result, document["zones"])
    errors = result.errors(shown).mean(axis=0)
    closer = int((errors < (1.0 - LEAST_GAIN) * result.prior_errors).sum())
    named = {"run": shown.label, "adversary": shown.adversary, "prior": result.plan.prior}
    buses, share = counted(len(result.attacked), "bus"), 100 * LEAST_GAIN
    output.say(output.worded("attack-closer", **named, closer=closer, buses=buses, share=share))
    output.say(f"Worst protected buses: {', '.join(map(str, result.worst()))}.")


def _print_identifiability(result: AttackResult, of_zones: list[Json]) -> None:
    from gridpriv.assurance.inversion import VERDICTS

    zones = {name: name for name in ("zone", "unknowns", "rank", *VERDICTS)}
    zone_rows = [row | {"zone": str(row["zone"])} for row in of_zones]
    title = (
        "Identifiability in noise-free messages (unknowns and rank count p and q, the other "
        "columns buses)"
    )
    output.print_records(title, zones, zone_rows)
    table = result.by_distance()
    near = {
        "configuration": "run",
        "lines_to_tie": "lines",
        "buses": "buses",
        "identifiable": "identifiable",
        "recovered": "within 5 %",
        "within_1mw": "within 1 MW",
    }
    rows = table[table["adversary"] == "messages"].astype({"lines_to_tie": int, "buses": int})
    title = "Share of buses recovered, by number of lines to the nearest tie bus"
    output.print_records(title, near, _three(rows.to_dict("records"), near))


def _three(rows: list[Json], columns: Mapping[str, str]) -> list[Json]:
    """Return rows of texts, numbers with three digits and gaps as dashes."""

    def shown(value: Any) -> Any:
        whole = isinstance(value, str | int)
        return value if whole else "-" if value is None else f"{value:.3g}"

    return [{name: shown(row[name]) for name in columns} for row in rows]
