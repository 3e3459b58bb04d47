"""``gridpriv-ipopt``: the Ipopt inside the CasADi wheel, behind the AMPL solver interface.

No package on PyPI has an ``ipopt`` executable, and Pyomo's own Ipopt interface needs one. This
executable reads the .nl file that Pyomo writes, solves it with CasADi's Ipopt and writes the .sol
file that Pyomo reads, so ``pyomo:ipopt`` works after ``pip install``.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

SOLVED, LIMIT, INFEASIBLE, FAILED = 0, 400, 200, 500
CODES = {
    "Solve_Succeeded": SOLVED,
    "Solved_To_Acceptable_Level": 100,
    "Infeasible_Problem_Detected": INFEASIBLE,
    "Maximum_Iterations_Exceeded": LIMIT,
}


def main(arguments: list[str] | None = None) -> int:
    """Solve ``STUB.nl`` and write ``STUB.sol``; ``-v`` prints the version."""
    words = sys.argv[1:] if arguments is None else arguments
    if not words or words[0] in ("-v", "--version"):
        from importlib.metadata import version

        print(f"Ipopt 3.14.19 (in CasADi {version('casadi')})")
        return 0
    stub = Path(words[0]).with_suffix(".nl")
    options = dict(word.split("=", 1) for word in words[1:] if "=" in word)
    x, duals, status = solve_nl(stub, options)
    stub.with_suffix(".sol").write_text(_sol(x, duals, status), encoding="ascii")
    return 0


def solve_nl(path: Path, options: dict[str, str]) -> tuple[Any, Any, str]:
    """Return (x, constraint duals, Ipopt's status) of the problem in an .nl file."""
    import casadi

    builder = casadi.NlpBuilder()
    builder.import_nl(str(path), {"verbose": False})
    problem: dict[str, Any] = {
        "x": casadi.vertcat(*builder.x),
        "f": builder.f,
        "g": casadi.vertcat(*builder.g),
    }
    settings: dict[str, Any] = {"print_time": False, "ipopt.print_level": 0, "ipopt.sb": "yes"}
    settings |= {f"ipopt.{key}": _number(value) for key, value in options.items()}
    solver = casadi.nlpsol("nl", "ipopt", problem, settings)
    result = solver(
        x0=builder.x_init, lbx=builder.x_lb, ubx=builder.x_ub, lbg=builder.g_lb, ubg=builder.g_ub
    )
    x = np.asarray(result["x"]).ravel()
    duals = -np.asarray(result["lam_g"]).ravel()
    return x, duals, str(solver.stats()["return_status"])


def _number(text: str) -> Any:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _sol(x: Any, duals: Any, status: str) -> str:
    """Return the text of an AMPL .sol file (Gay, Hooking Your Solver to AMPL)."""
    counts = [len(duals), len(duals), len(x), len(x)]
    lines = [f"Ipopt (CasADi): {status}", "", "Options", "3", "1", "1", "0"]
    lines += [str(count) for count in counts]
    lines += [repr(float(value)) for value in (*duals, *x)]
    lines.append(f"objno 0 {CODES.get(status, FAILED)}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
