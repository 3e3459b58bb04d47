"""A bus's budget cannot be renewed on one machine: second ledgers, maps, bases, old copies."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gridpriv.core.errors import BudgetError, GridprivWarning, InputError
from gridpriv.grid.case import Case
from gridpriv.grid.library import load_case
from gridpriv.grid.partition import partition
from gridpriv.grid.zoning import Zoning
from gridpriv.privacy import ledger_file
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.ledger import Ledger, grant
from gridpriv.privacy.mechanism import Charge
from gridpriv.zonal.prepared import zone_datasets

CASE = load_case("case14")
ONE = {Charge("pure", 1.0): 1}


def datasets(case: Case = CASE, zones: int = 2, mw: float = 1.0) -> Any:
    zoning: Zoning = partition(case, zones)
    return zone_datasets(case, zoning, DemandAdjacency(mw / case.base_mva))


def charge_all(path: Path, given: Any) -> None:
    with Ledger(path, given) as ledger:
        for owner in given:
            ledger.charge(owner.owner, "run", ONE)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(datasets(zones=3), id="other zones"),
        pytest.param(datasets(CASE.scale_load(0.1)), id="scaled demand"),
        pytest.param(datasets(CASE.without(("branch:3", "gen:2"))), id="outages"),
    ],
)
def test_a_second_ledger_grants_nothing_to_the_same_buses(tmp_path: Path, given: Any) -> None:
    grant(tmp_path / "a", datasets(), 2.0)
    with pytest.raises(InputError, match="14 of 14 buses have a grant on this machine already"):
        grant(tmp_path / "b", given, 2.0)
    assert not (tmp_path / "b").exists()


def test_another_hour_and_another_base_are_charged_to_the_same_account(tmp_path: Path) -> None:
    grant(tmp_path / "a", datasets(), 2.0)
    charge_all(tmp_path / "a", datasets(CASE.scale_load(0.8)))
    based = replace(CASE, base_mva=50.0, pd=2.0 * CASE.pd, qd=2.0 * CASE.qd)
    charge_all(tmp_path / "a", datasets(based, zones=4))
    with pytest.raises(BudgetError, match="left 0 %"):
        charge_all(tmp_path / "a", datasets())


@pytest.mark.parametrize("place", ["a", "copy"])
def test_an_older_copy_is_not_charged(tmp_path: Path, place: str) -> None:
    grant(tmp_path / "a", datasets(), 1.0)
    for ending in ("", ".key"):
        shutil.copy(tmp_path / f"a{ending}", tmp_path / f"kept{ending}")
    charge_all(tmp_path / "a", datasets())
    for ending in ("", ".key"):
        shutil.copy(tmp_path / f"kept{ending}", tmp_path / f"{place}{ending}")
    with pytest.raises(InputError, match="older than the last time that it was charged"):
        charge_all(tmp_path / place, datasets())


def test_a_deleted_ledger_is_not_granted_anew(tmp_path: Path) -> None:
    grant(tmp_path / "a", datasets(), 9.0)
    charge_all(tmp_path / "a", datasets())
    for ending in ("", ".key"):
        (tmp_path / f"a{ending}").rename(tmp_path / f"kept{ending}")
    with pytest.raises(InputError, match="put back a copy made after its last charge"):
        grant(tmp_path / "a", datasets(), 9.0)
    for ending in ("", ".key"):
        shutil.copy(tmp_path / f"kept{ending}", tmp_path / f"a{ending}")
    charge_all(tmp_path / "a", datasets())


def test_owners_of_other_buses_have_ledgers_of_their_own(tmp_path: Path) -> None:
    first, second = datasets()
    grant(tmp_path / "a", [first], 1.0)
    grant(tmp_path / "b", [second], 1.0)
    charge_all(tmp_path / "b", [second])


def test_ledgers_share_the_register_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_file.tempfile, "gettempdir", lambda: str(tmp_path / "elsewhere"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    grant(tmp_path / "one" / "a", datasets(), 1.0)
    with pytest.raises(InputError, match="one/a"):
        grant(tmp_path / "two" / "a", datasets(), 1.0)
    assert (tmp_path / "state" / "gridpriv").stat().st_mode & 0o077 == 0


def test_a_register_that_cannot_be_made_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GRIDPRIV_STATE", str(tmp_path / "file" / "state"))
    with pytest.warns(GridprivWarning, match="would not be noticed"):
        grant(tmp_path / "a", datasets(), 1.0)
