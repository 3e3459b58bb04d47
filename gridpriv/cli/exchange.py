"""``gridpriv exchange``: zonal PTDFs, margins and the flow-based domain of a private run."""

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
from gridpriv.core.display import amount
from gridpriv.core.document import Json
from gridpriv.core.errors import InputError
from gridpriv.zonal.settings import PRESETS, Settings, make_settings
from gridpriv.zonal.views import SHARED, FlowBased, check_view_of

MOST_SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments: those of a run, and of the analysis."""
    add_case_arguments(parser)
    add_zone_arguments(parser)
    add_settings(parser, Settings, PRESETS)
    add_flags(parser, FlowBased)
    add_ledger_arguments(parser)
    parser.add_argument("--public", action="store_true", help="write public figures only")
    add_output(parser, "folder for exchange.json, branches.csv, domain.png")


def execute(args: argparse.Namespace) -> int:
    """Run, analyse the exchange between zones, print and write it."""
    from gridpriv.privacy.statement import refuse_unprotected
    from gridpriv.zonal.exchange import exchange
    from gridpriv.zonal.prepared import prepare
    from gridpriv.zonal.run import run_prepared

    settings = make_settings(args.preset, **given_settings(args, Settings))
    chosen = FlowBased(**given_settings(args, FlowBased))
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
    if prepared.zoning.n_zone < 2:
        raise InputError("exchange needs at least two zones. Give --zones 2 or more.")
    if not (prepared.case.rate > 0).any():
        raise InputError(
            f"case {case.name} has no rated branch (rateA), so nothing limits an exchange"
            ": give ratings"
        )
    with ExitStack() as stack:
        charge, admit = stack.enter_context(charging(args, case, prepared))
        advance = stack.enter_context(progress(args, case.name, settings.rounds))
        result = run_prepared(prepared, lambda _: advance("round"), charge=charge, admit=admit)
        analysis = exchange(result, view=chosen.view, ptdf=chosen.ptdf, threshold=chosen.threshold)
    document = analysis.as_dict(public=args.public)
    if folder is not None:
        from gridpriv.report.exchange import DomainFigure
        from gridpriv.report.figures import write_figure

        write_results(folder, "exchange", document, branches=analysis.table)
        if document["domain"]["corners"]:
            drawn = DomainFigure(document).plot().get_figure(root=True)
            if drawn is not None:
                write_figure(drawn, folder / "domain.png", private=True)
    tell(args, document, lambda: summarise(document), folder)
    return 0


def summarise(document: Json) -> None:
    """Print zones, exchanges and the branches that limit them."""
    print_table(
        f"{document['case']}: exchange between zones, PTDFs by {document['ptdf_model'].upper()} "
        "power flow",
        ["zone", "net position", "least", "most", "redispatch $/h", "tie revenue $/h"],
        [
            [
                row["zone"],
                *(_mw(row[name]) for name in ("net_position_mw", "least_mw", "most_mw")),
                row["redispatch_cost"],
                row["tie_revenue"],
            ]
            for row in document["zones"]
        ],
    )
    print_table(
        "Largest exchange, other zones unchanged",
        ["from", "to", "limit of the network", "limiting branch", "room of generators"],
        [
            [
                row["from_zone"],
                row["to_zone"],
                _mw(row["most_mw"]),
                row["limit_at"] or "-",
                _mw(row["generation_mw"]),
            ]
            for row in document["exchanges"][:MOST_SHOWN]
        ],
    )
    for row in document["payments"]:
        print(
            f"Zone {row['from_zone']} pays zone {row['to_zone']} {row['amount']:.6g} $/h for "
            f"{row['energy_mwh']:.4g} MWh at tie prices."
        )
    if document["visibility"] == "public":
        print("Public: a function of releases and public data, at no epsilon beyond the run's.")
    else:
        print("Local: computed from true demand. Do not publish it.")


def _mw(value: float | None) -> object:
    return None if value is None else amount(value, "MW")
