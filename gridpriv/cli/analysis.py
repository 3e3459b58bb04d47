"""``gridpriv exchange`` and ``gridpriv security``: analyses of a noisy run."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import gridpriv
from gridpriv.cli import flags, output
from gridpriv.core.errors import InputError
from gridpriv.core.text import Json, Message, amount, counted
from gridpriv.privacy.certificate import NO_SAMPLER, refuse_unprotected
from gridpriv.privacy.mechanism import has_secure_sampler
from gridpriv.zonal.settings import (
    LOCAL,
    PRESETS,
    SHARED,
    FlowBased,
    Security,
    Settings,
    check_view_of,
)

if TYPE_CHECKING:
    from gridpriv.grid.case import Case
    from gridpriv.study.context import RunContext
    from gridpriv.zonal.prepared import Prepared
    from gridpriv.zonal.result import RunResult

MOST_SHOWN, MOST_NAMED = 10, 3
STATES = {"diverged": "no AC state", "screened": "not known: DC loading only"}
NO_ROOM_MW = 0.01
MEGAWATTS = ("largest_mw", "most_mw", "generation_mw")
VIEWS = {SHARED: "released demand", LOCAL: "true demand"}
OF_A_SERIES = ("stream", "temporal_basis")
"""Settings of a series, which do not apply to an analysis of one step."""
LOCAL_NOTE = "Local: computed from true demand. Do not publish it."


def _add_arguments(parser: argparse.ArgumentParser, kind: type[FlowBased | Security]) -> None:
    """Add the arguments of a run and of its analysis."""
    flags.add_case_arguments(parser)
    flags.add_zone_arguments(parser)
    flags.add_settings(parser, Settings, PRESETS, without=OF_A_SERIES)
    flags.refer(parser, "run")
    flags.add_flags(parser, kind)


def _prepared(args: argparse.Namespace, chosen: FlowBased | Security) -> tuple[Case, Prepared]:
    """Return the case and the analysed run; refuse a view that it does not have."""
    settings = flags.run_settings(args)
    if args.public:
        refuse_unprotected(settings.effective_mechanism())
        if chosen.view != SHARED:
            raise InputError(
                f"--public exports figures of released demand only, but --view is {chosen.view}. "
                f"Choose --view {SHARED} or drop --public."
            )
    output.output_folder(args.out)
    case = flags.given_case(args, settings.load_scale)
    prepared = gridpriv.prepare(case, flags.chosen_zoning(case, args), settings)
    check_view_of(chosen.view, prepared.zoning.names, prepared.rules.perturbation.target)
    return case, prepared


def _publishable(privacy: Json) -> str:
    """Return the sentence on the publication of values computed from released demand."""
    if privacy["noise"] != "simulated":
        return output.worded("publishable")
    if has_secure_sampler(privacy["mechanism"]):
        return output.worded("publishable-if-secure")
    return output.worded("publishable-no-sampler", missing=NO_SAMPLER.format(privacy["mechanism"]))


def _context(args: argparse.Namespace) -> RunContext:
    from gridpriv.study.context import RunContext

    return RunContext(
        ledger=args.ledger, ledger_key=args.ledger_key, progress=partial(output.progress, args)
    )


def _shown_seed(args: argparse.Namespace, result: RunResult) -> int | None:
    """Return the seed of a run, if it may be printed."""
    return None if args.public or result.settings.noise == "secure" else result.seed


def add_exchange(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``exchange``."""
    _add_arguments(parser, FlowBased)
    flags.add_ledger_arguments(parser)
    flags.switch(parser, "--public")
    flags.add_output(parser, "DIR")
    parser.set_defaults(execute=execute_exchange)


def execute_exchange(args: argparse.Namespace) -> int:
    """Run, analyse the exchange between zones, print and write it."""
    chosen = FlowBased(**flags.given_settings(args, FlowBased))
    case, prepared = _prepared(args, chosen)
    if prepared.zoning.n_zone < 2:
        raise InputError("exchange needs at least two zones. Give --zones 2 or more.")
    if not (prepared.case.rate > 0).any():
        raise InputError(
            f"{case.name} has no branch with a rating, so nothing limits an exchange. Give ratings "
            "in the case file: rateA of MATPOWER's branch, max_i_ka of pandapower's line."
        )
    with _context(args).charged(case, prepared) as (result, _):
        analysis = gridpriv.exchange(
            result, view=chosen.view, ptdf=chosen.ptdf, threshold=chosen.threshold
        )
    document, seed = analysis.as_dict(public=args.public), _shown_seed(args, result)

    def files() -> Json:
        from gridpriv.report.charts import DomainFigure

        corners = document["domain"]["corners"]
        return {"branches": analysis.table} | (
            {"domain": DomainFigure(document)} if corners else {}
        )

    return output.finish(args, document, lambda: _print_exchange(document, seed), files)


def _no_room(exchanges: list[Json]) -> str:
    """Return the reason if no exchange has capacity; else an empty text."""
    room = [row["most_mw"] for row in exchanges]
    if not room or any(most is None or most > NO_ROOM_MW for most in room):
        return ""
    branches = ", ".join(dict.fromkeys(row["limit_at"] for row in exchanges if row["limit_at"]))
    return output.worded("exchange-no-room", branches=branches) if branches else ""


def _paid(row: Json) -> str:
    """Return a payment between two zones."""
    price, power = amount(row["amount"], "$/h"), amount(row["energy_mwh"], "MW")
    return f"zone {row['from_zone']} pays zone {row['to_zone']} {price} $/h for {power} MW"


def _print_exchange(document: Json, seed: int | None) -> None:
    """Print zones, exchanges and the branches that limit them."""
    zones = {
        "zone": "zone",
        "net_position_mw": "net position",
        "least_mw": "least",
        "most_mw": "most",
        "congestion_cost": "congestion $/h",
        "tie_revenue": "tie revenue $/h",
    }
    units = dict.fromkeys(("net_position_mw", "least_mw", "most_mw"), "MW")
    units |= dict.fromkeys(("congestion_cost", "tie_revenue"), "$/h")
    model = document["ptdf_model"].upper()
    title = f"{document['case']}: exchange between zones (MW), PTDFs by {model} power flow"
    output.print_records(title, zones, document["zones"], **units)
    output.say(output.worded("exchange-zones"))
    pairs = {
        "from_zone": "from",
        "to_zone": "to",
        "largest_mw": "exchange",
        "most_mw": "network limit",
        "limit_at": "limiting branch",
        "generation_mw": "headroom",
    }
    shown = [
        row
        | {"limit_at": row["limit_at"] or "-"}
        | {"largest_mw": min(row[key] for key in MEGAWATTS[1:] if row[key] is not None)}
        for row in document["exchanges"][:MOST_SHOWN]
    ]
    title = "Largest exchange (MW), other zones unchanged"
    output.print_records(title, pairs, shown, **dict.fromkeys(MEGAWATTS, "MW"))
    output.say(output.worded("exchange-headroom"))
    if any(row["most_mw"] == 0 and not row["limit_at"] for row in document["exchanges"]):
        output.say(output.worded("exchange-islands"))
    if sentence := _no_room(document["exchanges"]):
        output.say(sentence)
    if paid := [_paid(row) for row in document["payments"]]:
        output.say(output.worded("exchange-payment", paid="; ".join(paid)))
    if document["visibility"] == "public":
        output.say(_publishable(document["privacy"]), *_certificate(document["privacy"], seed))
    else:
        output.say(LOCAL_NOTE)


def add_security(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``security``."""
    _add_arguments(parser, Security)
    flags.switch(parser, "--secure")
    flags.switch(parser, "--corrective")
    flags.add_ledger_arguments(parser)
    flags.switch(parser, "--public")
    flags.add_output(parser, "DIR")
    parser.set_defaults(execute=execute_security)


def execute_security(args: argparse.Namespace) -> int:
    """Run, analyse every contingency, print the ranking."""
    from gridpriv.zonal.security import check_screen, check_secure, security

    chosen = Security(**flags.given_settings(args, Security))
    if args.secure:
        check_secure(chosen)
    case, prepared = _prepared(args, chosen)
    check_screen(chosen, prepared.case)
    outages = gridpriv.contingencies(prepared.case, chosen.contingencies)
    with _context(args).charged(case, prepared, len(outages)) as (result, advance):
        analysis = security(
            result,
            outages,
            view=chosen.view,
            rating=chosen.rating,
            screen=chosen.screen,
            secure=args.secure,
            corrective=args.corrective,
            watch=lambda outcome: advance(outcome.contingency.name),
        )
    document, seed = analysis.as_dict(public=args.public), _shown_seed(args, result)
    return output.finish(
        args,
        document,
        lambda: _print_security(document, seed, args.out),
        lambda: {"contingencies": analysis.table},
    )


def _print_security(document: Json, seed: int | None, folder: str | None) -> None:
    """Print the most severe contingencies, and the verdict."""
    from gridpriv.zonal.security import corrective_columns

    rows = document["contingencies"]
    shown = [
        row
        | {"outage": f"{row['name']} ({' '.join(row['at'])})"}
        | {"count": None if row["status"] in STATES else len(row["violations"])}
        | {"worst": STATES.get(row["status"]) or _worst(row["violations"])}
        | corrective_columns(row["corrective"])
        for row in _shown(rows)
    ]
    # an empty column would take width from others
    optional = {
        "worst_loading_percent": "loading %",
        "islanded_mw": "islanded MW",
        "shed_mw": "shed MW",
        "up_mw": "raise MW",
        "down_mw": "lower MW",
    }
    columns = {"outage": "outage", "count": "limits violated", "worst": "worst violation"}
    columns |= {key: name for key, name in optional.items() if any(row[key] for row in shown)}
    number = f"the worst {len(shown)} of " if len(shown) < len(rows) else ""
    outages = f"{number}{counted(len(rows), 'outage')}"
    order = "" if number else ", worst first"
    title = f"{document['case']}: {outages}{order}, {_demand(document)}"
    units = {key: "MW" for key in columns if key.endswith("_mw")}
    output.print_records(title, columns, shown, **units)
    output.say(*sentences(document), *_certificate(document["privacy"], seed))
    if number:
        all_rows = "--out DIR or --json" if folder is None else Path(folder) / "contingencies.csv"
        output.say(f"For all outages see {all_rows}.")


def _shown(rows: list[Json]) -> list[Json]:
    """Return the printed outages: the most severe ones, first those that are not secure."""
    return ([row for row in rows if not _is_secure(row)] or rows)[:MOST_SHOWN]


def _is_secure(row: Json) -> bool:
    """Return True where an AC state after an outage is known, without violations or shed load."""
    solved = row["status"] not in STATES
    return solved and not row["violations"] and row["shed_mw"] == 0.0


def _demand(document: Json) -> str:
    """Return the demand that the analysis reads: released, true, or known in a zone."""
    if document["privacy"]["mechanism"] == "none":  # released unchanged
        return VIEWS[LOCAL]
    return VIEWS.get(document["view"], f"demand as known in zone {document['view']}")


def _certificate(privacy: Json, seed: int | None) -> list[str | Message]:
    """Return the certificate of the analysed run in the form of ``gridpriv run``."""
    from gridpriv.zonal.summary import privacy_line, protection  # imports the AC model

    if privacy["mechanism"] == "none":
        return []
    drawn = "" if seed is None else f"; seed {seed}"
    return [
        privacy_line(privacy),
        f"This run: {privacy['caveat']}{drawn}.",
        *protection(privacy["adjacency"], privacy["protects"], None),
    ]


def _verdict(document: Json) -> str:
    """Return the verdict, with the demand of the analysis."""
    rows = document["contingencies"]
    noisy = document["view"] != LOCAL and document["privacy"]["mechanism"] != "none"
    on = f"On the {_demand(document)}{' (an estimate)' if noisy else ''}"
    other = " On the true demand this can differ (--view local)." if noisy else ""
    if document["secure"]:
        return output.worded("security-secure", on=on, other=other)
    screened = sum(row["status"] == "screened" for row in rows)
    outages = counted(len(rows), "outage")
    if document["secure"] is None:
        return output.worded("security-not-known", on=on, screened=screened, outages=outages)
    cut_off = [row for row in rows if row["shed_mw"] > 0.0]
    shed = [f"{row['name']} {row['shed_mw']:.4g} MW" for row in cut_off]
    unsolved = [row["name"] for row in rows if row["status"] == "diverged"]
    violated = sum(bool(row["violations"]) for row in rows)
    events = (
        f"limits are violated after {violated} of {outages}",
        f"load is shed after {len(shed)}{_some(shed)}" if shed else "none sheds load",
        f"{len(unsolved)} have no AC state{_some(unsolved)}"
        if unsolved
        else "all have an AC state",
    )
    return output.worded(
        "security-not-secure",
        on=on,
        events=f"{events[0]}, {events[1]}, and {events[2]}",
        unknown=f"; {screened} are not known (--screen)" if screened else "",
        other=other,
    )


def _some(names: list[str]) -> str:
    """Return the first names in parentheses."""
    more = ", ..." if len(names) > MOST_NAMED else ""
    return f" ({', '.join(names[:MOST_NAMED])}{more})" if names else ""


def sentences(document: Json) -> list[str]:
    """Return the verdict, its base case, and who may see it."""
    from gridpriv.zonal.security import worst_limit  # imports the AC model

    rows, base = document["contingencies"], document["base"]
    screened = sum(row["status"] == "screened" for row in rows)
    noise_free = document["privacy"]["mechanism"] == "none"
    violated, shed = base["violations"], base["shed_mw"]
    inside = not violated and shed == 0.0
    lines = [
        _verdict(document),
        "Before any outage, no limit is violated and no load is shed."
        if inside
        else f"Before any outage, limits violated: {len(violated)}; load shed: {shed:.4g} MW.",
        _ratings(document["rating"], [base, *rows]),
    ]
    if any(not _is_secure(row) for row in rows):
        lines.append(output.worded("security-ranking"))
    violations = (row["violations"] for row in _shown(rows))
    if any(some and worst_limit(some).kind == "generator Q" for some in violations):
        lines.append(output.worded("security-not-within-q"))
    if any(row["islanded_mw"] for row in _shown(rows)):
        estimated = "; estimated demand is above 0 also at buses without demand" * (not noise_free)
        lines.append(
            output.worded("security-islanded", demand=_demand(document), estimated=estimated)
        )
    if document["prevention"]["plans"]:
        lines.append(_prevented(document["prevention"], rows, _demand(document)))
    if document["corrected"] is not None:
        lines.append(_corrected(rows))
    if screened:
        lines.append(output.worded("security-screened", outages=counted(screened, "outage")))
    if document["secure"] is False and document["corrected"] is None:
        violated_after = any(row["violations"] or row["status"] == "diverged" for row in rows)
        preventive = "--secure finds a dispatch that keeps limits after outages, if possible; "
        of_shared = preventive if document["view"] == SHARED and violated_after else ""
        lines.append(output.worded("security-next", preventive=of_shared))
    public = document["visibility"] == "public"
    return [*lines, _publishable(document["privacy"]) if public else LOCAL_NOTE]


def _ratings(rating: str, states: list[Json]) -> str:
    """Return the branch ratings that limit loading, or that there are none."""
    if all(state["worst_loading_percent"] is None for state in states):
        return "No branch has a rating: overloads are not checked."
    fallback = "" if rating == "A" else ", or the one before it where a branch has none"
    return f"Branch limits: rating A before an outage, rating {rating} after it{fallback}."


def _prevented(prevention: Json, rows: list[Json], demand: str) -> str:
    """Return the cost of the preventive plan and the contingencies left, as a sentence."""
    before, cost = prevention["cost_before"], prevention["cost"]
    worst, loadings = prevention["loading_before"], [row["worst_loading_percent"] for row in rows]
    after = max((percent for percent in loadings if percent is not None), default=None)
    loading = priced = ""
    if worst is not None and after is not None:
        loading = f"; largest loading {worst:.1f} % before, {after:.1f} % after"
    if cost is not None:
        over = f"{cost - before:+,.1f} $/h over the plan without contingencies"
        priced = f" Cost on the {demand} {cost:,.1f} $/h, {over}."
    return output.worded(
        "security-prevented",
        before=prevention["outages_before"],
        after=len(prevention["not_prevented"]),
        loading=loading,
        cuts=counted(prevention["cuts"], "linear constraint"),
        plans=counted(prevention["plans"], "plan"),
        priced=priced,
    )


def _corrected(rows: list[Json]) -> str:
    """Return the result of corrective redispatch as a sentence."""
    tried = [row["corrective"] for row in rows if row["corrective"] is not None]
    if not tried:
        return "Corrective redispatch: none is needed."
    done = [outcome for outcome in tried if outcome["status"] == "corrected"]
    shed = [outcome["shed_mw"] for outcome in done if outcome["shed_mw"] > 0.0]
    shedding = f"; {len(shed)} of these shed load, up to {max(shed):.4g} MW" if shed else ""
    failed = len(tried) - len(done)
    note = f" No set points keep the limits after {counted(failed, 'outage')}." if failed else ""
    outages = counted(len(tried), "outage")
    return output.worded(
        "security-corrected", done=len(done), tried=outages, shedding=shedding, left=note
    )


def _worst(violations: list[Json]) -> str:
    """Return the violation to name, with its value and limit."""
    from gridpriv.zonal.security import worst_limit  # imports the AC model

    if not violations:
        return ""
    top = worst_limit(violations)
    sign = ">" if top.limit == "upper" else "<"
    value, bound = f"{top.value:.5g}", f"{top.bound:.4g}"
    value = f"{top.value:.6g}" if value == bound else value
    generator = f"of gen:{top.element} (bus {top.at})"
    quantity = {
        "line": f"line {top.at}",
        "voltage": f"voltage at bus {top.at}",
        "angle": f"angle difference of branch {top.at}",
        "generator P": f"P {generator}",
        "generator Q": f"Q {generator}",
    }[top.kind]
    return f"{quantity}: {value} {sign} {bound} {top.unit}{' (marginal)' * top.marginal}"
