"""``gridpriv security``: the contingency analysis of a private run."""

from __future__ import annotations

import argparse
from contextlib import ExitStack

from gridpriv.cli.charging import add_ledger_arguments, charging
from gridpriv.cli.flags import (
    add_case_arguments,
    add_flags,
    add_output,
    add_settings,
    add_zone_arguments,
    chosen_zoning,
    given_case,
    given_settings,
)
from gridpriv.cli.output import output_folder, print_table, tell, write_results
from gridpriv.cli.progress import progress
from gridpriv.core.display import amount, counted
from gridpriv.core.document import Json
from gridpriv.core.errors import InputError
from gridpriv.zonal.settings import PRESETS, Settings, make_settings
from gridpriv.zonal.views import LOCAL, SHARED, Security, check_view_of

MOST_SHOWN = 10
SHED_TOLERANCE_MW = 0.01
VIEWS = {SHARED: "released demand", LOCAL: "true demand"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments: those of a run, and of the analysis."""
    add_case_arguments(parser)
    add_zone_arguments(parser)
    add_settings(parser, Settings, PRESETS, without=("stream", "temporal_basis"))
    add_flags(parser, Security)
    parser.add_argument(
        "--secure",
        action="store_true",
        help="plan so that no listed outage violates a limit (preventive, on released demand)",
    )
    parser.add_argument(
        "--corrective",
        action="store_true",
        help="find zones' redispatch after each outage that violates a limit (--secure does too)",
    )
    add_ledger_arguments(parser)
    parser.add_argument(
        "--public", action="store_true", help="write public figures only (releases and public data)"
    )
    add_output(parser, "write security.json, contingencies.csv")


def execute(args: argparse.Namespace) -> int:
    """Run, analyse every contingency, print the ranking."""
    from gridpriv.grid.contingencies import contingencies
    from gridpriv.privacy.statement import refuse_unprotected
    from gridpriv.zonal.prepared import prepare
    from gridpriv.zonal.run import run_prepared
    from gridpriv.zonal.security import check_secure, security

    settings = make_settings(args.preset, **given_settings(args, Settings))
    chosen = Security(**given_settings(args, Security))
    if args.secure:
        check_secure(chosen)
    if args.public:
        refuse_unprotected(settings.effective_mechanism())
        if chosen.view != SHARED:
            raise InputError(
                f"--public exports figures of released demand only, but --view is {chosen.view}. "
                f"Choose --view {SHARED} or drop --public."
            )
    folder = output_folder(args.out)
    case = given_case(args)
    prepared = prepare(case, chosen_zoning(case, args), settings)
    check_view_of(chosen.view, prepared.zoning.names, prepared.rules.perturbation.target)
    listed = contingencies(prepared.case, chosen.contingencies)
    with ExitStack() as stack:
        charge, admit = stack.enter_context(charging(args, case, prepared))
        advance = stack.enter_context(progress(args, case.name, settings.rounds + len(listed)))
        result = run_prepared(prepared, lambda _: advance("round"), charge=charge, admit=admit)
        found = security(
            result,
            listed,
            view=chosen.view,
            rating=chosen.rating,
            screen=chosen.screen,
            secure=args.secure,
            corrective=args.corrective,
            watch=lambda one: advance(one.contingency.name),
        )
    document = found.as_dict(public=args.public)
    if folder is not None:
        write_results(folder, "security", document, contingencies=found.table)
    tell(args, document, lambda: summarise(document), folder)
    return 0


def summarise(document: Json) -> None:
    """Print the most severe contingencies, and the verdict."""
    rows = document["contingencies"]
    loadings = any(row["worst_loading_percent"] is not None for row in rows)
    columns = [
        "outage",
        "at",
        "AC state",
        *(["loading %"] if loadings else []),
        "violations",
        "worst",
        "islanded MW",
        "shed MW",
    ]
    shown = [
        [
            row["name"],
            " ".join(row["at"]),
            row["status"],
            *([row["worst_loading_percent"]] if loadings else []),
            len(row["violations"]),
            _worst(row["violations"]),
            amount(row["islanded_mw"], "MW"),
            amount(row["shed_mw"], "MW"),
        ]
        for row in rows[:MOST_SHOWN]
    ]
    print_table(
        f"{document['case']}: {_contingencies(len(rows))}, "
        f"{VIEWS.get(document['view'], document['view'])}",
        columns,
        shown,
    )
    for sentence in sentences(document):
        print(sentence)


def sentences(document: Json) -> list[str]:
    """Return the verdict, its base case, and who may see it."""
    rows, base = document["contingencies"], document["base"]
    diverged = sum(row["status"] == "diverged" for row in rows)
    outside = sum(bool(row["violations"]) for row in rows)
    shed = sum(row["shed_mw"] > SHED_TOLERANCE_MW for row in rows)
    screened = sum(row["status"] == "screened" for row in rows)
    said = [
        "Secure: no contingency violates a limit or sheds load."
        if document["secure"]
        else f"Not secure. Of {_contingencies(len(rows))}, {outside} violate a limit, "
        f"{shed} shed load and {diverged} have no AC state."
    ]
    if base["violations"] or base["shed_mw"] > SHED_TOLERANCE_MW:
        said.append(
            f"Before any outage, {counted(len(base['violations']), 'limit')} are violated and "
            f"{base['shed_mw']:.4g} MW are shed."
        )
    if document["prevention"]["plans"]:
        said.append(_prevented(document["prevention"]))
    if document["corrected"] is not None:
        said.append(_corrected(rows))
    if screened:
        said.append(
            f"{screened} contingencies were screened by DC power flow: their voltages are not "
            "checked."
        )
    if document["visibility"] == "public":
        said.append(
            "Public: a function of releases and public data, at no epsilon beyond the run's "
            f"(total {document['privacy']['total_pure']:.4g}, pure)."
            if document["privacy"]["total_pure"] is not None
            else "Public: a function of releases and public data, at no further epsilon."
        )
    else:
        said.append("Local: computed from true demand. Do not publish it.")
    return said


def _prevented(prevention: Json) -> str:
    """Return the cost of the preventive plan and the contingencies left, as a sentence."""
    before, cost = prevention["cost_before"], prevention["cost"]
    priced = (
        ""
        if cost is None
        else (
            f" Cost {cost:,.1f} $/h, {cost - before:+,.1f} $/h over the plan without contingencies."
        )
    )
    left = len(prevention["not_prevented"])
    return (
        f"Preventive plan: {prevention['violations_before']} violations before, "
        f"{_contingencies(left)} not prevented; {counted(prevention['cuts'], 'cut')}, "
        f"{counted(prevention['plans'], 'plan')}.{priced}"
    )


def _corrected(rows: list[Json]) -> str:
    """Return the result of corrective redispatch as a sentence."""
    tried = [row["corrective"] for row in rows if row["corrective"] is not None]
    if not tried:
        return "Corrective redispatch: none is needed."
    done = [one for one in tried if one["status"] == "corrected"]
    shed = [one["shed_mw"] for one in done if one["shed_mw"] > SHED_TOLERANCE_MW]
    shedding = f", {len(shed)} by load shedding of up to {max(shed):.4g} MW" if shed else ""
    failed = len(tried) - len(done)
    left = f" No set points keep the limits after {_contingencies(failed)}." if failed else ""
    return f"Corrective redispatch secures {len(done)} of {len(tried)}{shedding}.{left}"


def _worst(violations: list[Json]) -> str:
    """Return the place of the limit that is passed most; lines and voltages come first."""
    first = ("line", "voltage")
    ranked = sorted(violations, key=lambda v: (v["kind"] not in first, -v["amount"]))
    return f"{ranked[0]['kind']} {ranked[0]['at']}" if ranked else ""


def _contingencies(number: int) -> str:
    return "1 contingency" if number == 1 else f"{number} contingencies"
