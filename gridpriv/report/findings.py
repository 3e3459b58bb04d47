"""What an audit or an attack of the same grid found, shown beside a study or run.

``gridpriv audit`` and ``gridpriv attack`` write ``audit.json`` and ``attack.json``; a report
takes them from its own folder or from ``audit/`` and ``attack/`` in it.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from gridpriv.assurance.schema import ATTACK, AUDIT
from gridpriv.core.document import Json
from gridpriv.core.errors import InputError
from gridpriv.core.sealed import read_sealed

SCHEMAS = {"audit": AUDIT, "attack": ATTACK}
CAPTIONS = {"audit": "Epsilon, stated and measured", "attack": "Demand read from messages"}
WORDS = {
    "audit": "The audit runs the mechanism many times on neighbouring data. Measured is a lower "
    "bound on epsilon at the confidence of the audit: above the certified one it is a violation; "
    "below, it is no proof.",
    "attack": "The attack fits demand to the messages that cross the network. The prior is what "
    "is believed without them: an attack that does no better has learned nothing.",
}


def read_findings(folder: Path) -> dict[str, pd.DataFrame]:
    """Return the tables ``audit`` and ``attack`` of a folder that holds such results.

    Raises
    ------
    InputError
        For a file that no such command wrote, or that was changed since.
    """
    rows_of = {"audit": _audit_rows, "attack": _attack_rows}
    found = {}
    for name, rows in rows_of.items():
        for place in (folder / f"{name}.json", folder / name / f"{name}.json"):
            if place.is_file():
                try:
                    found[name] = table = rows(read_sealed(place))
                    if any(pd.api.types.is_list_like(cell) for cell in table.to_numpy().flat):
                        raise ValueError("a cell that holds a list")
                except (ValueError, KeyError, TypeError) as error:
                    raise InputError(f"{place} is no result of 'gridpriv {name}'") from error
                break
    return found


def _audit_rows(document: Json) -> pd.DataFrame:
    names = ("perturbation", "mechanism", "update")
    return pd.DataFrame(
        [
            row | {"configuration": " ".join(str(one["settings"][n]) for n in names)}
            for one in document.get("audits", [document])
            for row in one["statistical"]
        ]
    )


def _attack_rows(document: Json) -> pd.DataFrame:
    table = pd.DataFrame(document["summary"])
    table["recovered_pct"] = 100.0 * table["recovered"]
    table["of_prior_pct"] = 100.0 * table["of_prior"]
    return table
