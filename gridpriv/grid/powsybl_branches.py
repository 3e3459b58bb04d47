"""Branches of a pypowsybl network in MATPOWER's model, and what becomes shunts at their ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from gridpriv.core.arrays import Floats
from gridpriv.grid import tables as mpc
from gridpriv.grid.powsybl_buses import BASE_MVA, UNSET, Buses, PowsyblNetwork

NEGLIGIBLE = 1e-8
"""p.u.: a branch of smaller impedance joins its ends, as in PowSyBl's load flow."""
PERMANENT = -1


class Branches:
    """Rows of the branch table, and what is left at the buses."""

    def __init__(self, network: PowsyblNetwork, buses: Buses) -> None:
        self.buses = buses
        self.rows: list[list[float]] = []
        self.ends: list[tuple[int, int]] = []
        self.names: list[str] = []
        self.ids: list[tuple[str, str]] = []
        self.joined = 0
        self.ratings = _ratings(network.get_loading_limits(all_attributes=True))
        for line in _lines(network, buses).itertuples():
            self._add(
                ("line", line),
                _open(line, "1"),
                _open(line, "2"),
                line.r,
                line.x,
                line.g1 + 1j * line.b1,
                line.g2 + 1j * line.b2,
            )
        for trafo in network.get_2_windings_transformers(all_attributes=True).itertuples():
            self._add(
                ("trafo", trafo),
                _open(trafo, "1"),
                _open(trafo, "2"),
                trafo.r_at_current_tap,
                trafo.x_at_current_tap,
                trafo.g_at_current_tap + 1j * trafo.b_at_current_tap,
                0j,
                trafo.rho * np.exp(1j * trafo.alpha),
            )
        self._three_windings(network.get_3_windings_transformers(all_attributes=True))
        for line in network.get_boundary_lines(all_attributes=True).itertuples():
            far = line.tie_line_id if line.paired else line.Index
            label = f"{line.name or line.Index} (boundary)"
            level = buses.levels.loc[line.voltage_level_id]
            point = f"boundary of {far}"
            buses.add(point, line.voltage_level_id, level["nominal_v"], label)
            self._add(
                ("boundary line", line),
                _open(line, ""),
                point,
                line.r,
                line.x,
                line.g + 1j * line.b,
                0j,
            )

    def _three_windings(self, frame: pd.DataFrame) -> None:
        """Add a leg per winding, from its bus to the star point."""
        for trafo in frame.itertuples():
            star = f"star of {trafo.Index}"
            label = f"{trafo.name or trafo.Index} (star)"
            self.buses.add(star, trafo.voltage_level1_id, trafo.rated_u0, label)
            for leg in "123":

                def of(quantity: str, leg: str = leg, trafo: Any = trafo) -> Any:
                    return getattr(trafo, f"{quantity.replace('#', leg)}")

                self._add(
                    ("trafo3w", trafo),
                    _open(trafo, leg),
                    star,
                    of("r#_at_current_tap"),
                    of("x#_at_current_tap"),
                    of("g#_at_current_tap") + 1j * of("b#_at_current_tap"),
                    0j,
                    of("rho#") * np.exp(1j * of("alpha#")),
                    leg,
                )

    def _add(
        self,
        element: tuple[str, Any],
        near: str,
        far: str,
        r: float,
        x: float,
        y_near: complex,
        y_far: complex,
        ratio: complex = 1.0,
        leg: str = "",
    ) -> None:
        """Add a branch: the ideal transformer at its near end, then ``y_near``, r + jx, ``y_far``.

        An end is the key of its bus; empty where it is open.
        """
        kind, source = element
        ends = self.buses.at.get(near, -1), self.buses.at.get(far, -1)
        row = np.zeros(mpc.ANGMAX + 1)
        z, tap = complex(r, x), 1.0 / abs(ratio)
        if min(ends) >= 0:
            negligible = abs(z) < NEGLIGIBLE
            if negligible and abs(ratio - 1.0) < NEGLIGIBLE:
                self.buses.join(*ends)
                self.joined += 1
            else:
                row[mpc.BR_STATUS] = 1.0
            z = 1j * NEGLIGIBLE if negligible else z
            b = 2.0 * y_far.imag
            row[[mpc.BR_R, mpc.BR_X, mpc.BR_B]] = z.real, z.imag, b * row[mpc.BR_STATUS]
            half = 0.5j * row[mpc.BR_B]
            self.buses.shunt[ends[0]] += (y_near - half) / tap**2
            self.buses.shunt[ends[1]] += y_far - half
        elif ends[0] >= 0:
            self.buses.shunt[ends[0]] += (y_near + _behind(z, y_far)) / tap**2
        elif ends[1] >= 0:
            self.buses.shunt[ends[1]] += y_far + _behind(z, y_near)
        row[mpc.TAP], row[mpc.SHIFT] = tap, -np.rad2deg(np.angle(ratio))
        row[mpc.RATE_A : mpc.RATE_C + 1] = self.ratings.get((source.Index, leg), (0.0, 0.0, 0.0))
        self.ends.append(ends)
        self.rows.append(row.tolist())
        self.names.append(str(source.name or source.Index) + (f" ({leg})" if leg else ""))
        self.ids.append((kind, source.Index))

    def table(self) -> Floats:
        """Return MATPOWER's branch table; an open end is given the first bus, out of service."""
        numbers = self.buses.numbers()
        table = np.array(self.rows).reshape(-1, mpc.ANGMAX + 1)
        first = next(iter(numbers.values()), 0)
        for row, ends in zip(table, self.ends, strict=True):
            at = [numbers[self.buses.root(end)] if end >= 0 else first for end in ends]
            row[[mpc.F_BUS, mpc.T_BUS]] = at
            row[mpc.BR_STATUS] *= at[0] != at[1]
        return table


def _lines(network: PowsyblNetwork, buses: Buses) -> pd.DataFrame:
    """Return the lines; pypowsybl gives no per-unit shunts of one without impedance."""
    lines = network.get_lines(all_attributes=True)
    bare = (lines["r"] == 0) & (lines["x"] == 0)
    if bare.any():
        network.per_unit = False
        given = network.get_lines(all_attributes=True)[bare]
        network.per_unit = True
        for side in "12":
            volts = buses.levels["nominal_v"].loc[given[f"voltage_level{side}_id"]].to_numpy()
            for name in (f"g{side}", f"b{side}"):
                lines.loc[bare, name] = given[name] * volts**2 / BASE_MVA
    return lines


def _open(element: Any, side: str) -> str:
    """Return the bus of a branch end, empty where it is open."""
    connected = getattr(element, f"connected{side}")
    return str(getattr(element, f"bus{side}_id")) if connected else ""


def _behind(z: complex, y: complex) -> complex:
    """Return the admittance of a shunt behind a series impedance."""
    return y / (1.0 + z * y) if y else 0j


def _ratings(limits: pd.DataFrame) -> dict[tuple[str, str], tuple[float, float, float]]:
    """Return permanent, longest temporary and largest rating in MVA by element and leg.

    A current is taken at nominal voltage, an active power as the apparent power; of two ends the
    smaller rating holds.
    """
    rows = limits.reset_index()
    if not len(rows):
        return {}
    rows = rows[rows["selected"] & (rows["value"].abs() < UNSET) & (rows["value"] > 0)]
    three = rows["element_type"] == "THREE_WINDINGS_TRANSFORMER"
    legs = rows["side"].map({"ONE": "1", "TWO": "2", "THREE": "3"}).where(three, "")
    rated: dict[tuple[str, str], list[float]] = {}
    for (element, leg, _, _), some in rows.groupby([rows["element_id"], legs, "side", "type"]):
        lasting = some["acceptable_duration"]
        steady = some.loc[lasting == PERMANENT, "value"].min()
        brief = some[lasting != PERMANENT].sort_values("acceptable_duration")["value"]
        values = [steady, brief.iloc[-1], brief.max()] if len(brief) else [steady] + [np.nan] * 2
        kept = rated.setdefault((element, leg), [np.nan] * 3)
        kept[:] = np.fmin(kept, values)
    return {key: tuple(BASE_MVA * np.nan_to_num(kept)) for key, kept in rated.items()}
