"""Every column and entry that occurs is declared; an undeclared one is missing in public output.

The commands are run and their files read back by pandas and json; the declarations are read by
name only.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gridpriv.cli.main import main
from gridpriv.core.tables import Column, TableSchema, publish, publish_table
from gridpriv.learning.result import Client, LearnDocument, LearnRound
from gridpriv.report.schema import described_tables
from gridpriv.study.engine import Manifest
from gridpriv.study.record import STORED
from gridpriv.zonal.documents import RunDocument, SeriesDocument

ADDED = {"run", "step", "index"}


def undeclared(value: Any, schema: Any, place: str = "") -> list[str]:
    """Return the entries of a document or table that are not declared, as paths."""
    if isinstance(schema, Column) or value is None:
        return []
    if isinstance(value, list):
        return sorted({path for row in value for path in undeclared(row, schema, place)})
    keys = [f"{place}{key}" for key in value if key not in schema.entries]
    below = [
        undeclared(value[key], entry, f"{place}{key}.")
        for key, entry in schema.entries.items()
        if key in value
    ]
    return [*keys, *(path for paths in below for path in paths)]


def strangers(folder: Path) -> list[str]:
    """Return table.column of every undeclared column."""
    keys = []
    for path in [*folder.glob("*.csv"), *folder.glob("*.parquet")]:
        table = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
        declared = STORED[path.stem].names if path.stem in STORED else ()
        keys += [f"{path.stem}.{name}" for name in table if name not in {*declared, *ADDED}]
    return keys


@pytest.mark.parametrize("objective", ["imbalance", "cost"])
def test_a_run_holds_nothing_undeclared(objective: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert (
        main(
            [
                "run",
                "case14",
                "--rounds",
                "2",
                "--seed",
                "1",
                "--objective",
                objective,
                "--solver",
                "clarabel",
                "--quiet",
                "--out",
                str(folder),
            ]
        )
        == 0
    )
    assert {"zone_prices", "binding", "res_bus", "buses"} <= {
        path.stem for path in folder.glob("*.csv")
    }
    assert strangers(folder) == []
    assert undeclared(json.loads((folder / "run.json").read_text()), RunDocument.table) == []


def test_a_series_holds_nothing_undeclared(tmp_path: Path) -> None:
    (tmp_path / "loads.csv").write_text("step,load_scale\n1,1.0\n2,0.9\n")
    folder = tmp_path / "day"
    assert (
        main(
            [
                "run",
                "case14",
                "--rounds",
                "2",
                "--seed",
                "1",
                "--planning",
                "soc",
                "--quiet",
                "--series",
                str(tmp_path / "loads.csv"),
                "--out",
                str(folder),
            ]
        )
        == 0
    )
    assert len(list(folder.glob("*.csv"))) >= 6
    assert strangers(folder) == []
    assert undeclared(json.loads((folder / "horizon.json").read_text()), SeriesDocument.table) == []


def test_a_study_holds_nothing_undeclared(study_folder: Path) -> None:
    assert len(list(study_folder.glob("*.parquet"))) >= 8
    assert strangers(study_folder) == []
    assert (
        undeclared(json.loads((study_folder / "manifest.json").read_text()), Manifest.table) == []
    )


def test_learning_holds_nothing_undeclared(tmp_path: Path) -> None:
    compared, single = tmp_path / "compared", tmp_path / "single"
    common = ["lasso", "--rounds", "2", "--clients", "5", "--quiet"]
    assert (
        main(
            [
                "learn",
                "compare",
                *common,
                "--algorithms",
                "ryu-kim,dpsgd",
                "--totals",
                "1",
                "--seeds",
                "1",
                "--clip",
                "1",
                "--out",
                str(compared),
            ]
        )
        == 0
    )
    assert strangers(compared) == []
    assert undeclared(json.loads((compared / "manifest.json").read_text()), Manifest.table) == []
    assert main(["learn", "run", *common, "--clip", "1", "--out", str(single)]) == 0
    document = json.loads((single / "run.json").read_text())
    assert undeclared(document, LearnDocument.table) == []
    assert set(pd.read_csv(single / "rounds.csv")) <= set(LearnRound.table.names)
    assert set(pd.DataFrame(document["clients"])) <= set(Client.table.names)


TABLE = TableSchema(
    "rounds",
    "a round",
    (Column("round", "settings", "Round", "from 1"),),
    (
        Column("residual", "releases", "Residual", "of what was sent"),
        Column("shed", "private", "Shed", "of true demand", "MW"),
    ),
)
FRAME = pd.DataFrame(
    {
        "run": ["a", "b"],
        "round": [1, 1],
        "residual": [2.0, 3.0],
        "shed": [4.0, 5.0],
        "new": [6.0, 7.0],
    }
)


def test_what_is_undeclared_or_private_stays() -> None:
    assert list(publish_table(FRAME, TABLE)) == ["run", "round", "residual"]
    document = {"round": 1, "residual": 2.0, "shed": 4.0, "new": 6.0}
    assert publish(document, TABLE, protected=True) == {"round": 1, "residual": 2.0, "shed": None}
    assert publish(document, TABLE, protected=False)["residual"] is None
    assert undeclared([document], TABLE) == ["new"]


def test_runs_without_noise_lose_their_rows_and_a_table_of_keys_is_not_published() -> None:
    assert list(publish_table(FRAME, TABLE, {"b"})["run"]) == ["a"]
    assert publish_table(FRAME[["run", "round", "shed"]], TABLE).empty


def test_a_header_is_title_and_unit() -> None:
    assert [c.header for c in TABLE.columns] == ["Round", "Residual", "Shed (MW)"]
    with pytest.raises(ValueError, match="twice"):
        TableSchema("t", "a row", TABLE.keys, TABLE.keys)


def test_the_command_lists_every_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--json"]) == 0
    tables = {t["name"]: t for t in json.loads(capsys.readouterr().out)["tables"]}
    assert {*STORED, "run --json", "manifest.json"} <= set(tables)
    who = {c["name"]: c["visibility"] for c in tables["rounds"]["columns"]}
    assert who["consensus_residual"] == "public"
    assert who["cost"] == who["seconds"] == who["noise_magnitude"] == "local"
    for table in tables.values():
        assert all(c["title"] and c["meaning"] for c in table["columns"]), table["name"]
    assert main(["schema", "roundz"]) == 2
    assert "did you mean 'rounds'" in capsys.readouterr().err


def test_the_number_of_private_rows_is_not_published() -> None:
    """The length of a list of private rows is not published."""
    private = TableSchema("limits", "a limit", (), (Column("mw", "private", "Amount", "", "MW"),))
    document = TableSchema("document", "a document", (), (), {"limits": private})
    lists: list[list[dict[str, float]]] = [[], [{"mw": 1.0}], [{"mw": 1.0}, {"mw": 2.0}]]
    for protected in (True, False):
        published = [publish({"limits": x}, document, protected=protected) for x in lists]
        assert published == [{"limits": None}] * 3


FRAGMENT = re.compile(
    r"(of|by|how|whether|what|that|where|which|from|in|to|at|with|without|under|over|after|before"
    r"|as|its|is|none|whose|always|also|and|beside)\b",
    re.IGNORECASE,
)


def test_every_meaning_is_a_noun_phrase_that_stands_alone() -> None:
    columns = [column for table in described_tables().values() for column in table["columns"]]
    assert len(columns) > 500
    fragments = [
        f"{column['name']}: {column['meaning']}"
        for column in columns
        if FRAGMENT.match(column["meaning"]) or len(column["meaning"].split()) < 2
    ]
    assert fragments == []
