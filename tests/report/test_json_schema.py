"""The documents that commands print are valid under the published JSON schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gridpriv.cli.main import main
from gridpriv.report.schema import DRAFT, json_schemas

KINDS = {"number": (int, float), "string": str, "boolean": bool, "object": dict, "array": list}
NOISE = ["--budget", "total:1", "--beta", "10MW", "--mechanism", "knorm", "--seed", "1"]


def wrong(value: Any, schema: dict[str, Any], place: str = "") -> list[str]:
    """Return the places at which a value differs from a schema: type, properties, items, anyOf."""
    if "anyOf" in schema:
        tried = [wrong(value, option, place) for option in schema["anyOf"]]
        return (
            []
            if [] in tried
            else min(
                tried,
                key=lambda errors: (
                    "not [" in errors[0].rpartition(":")[2] and errors[0].startswith(f"{place}:"),
                    len(errors),
                ),
            )
        )
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if value is None:
        return [] if "null" in kinds or not kinds else [f"{place}: null"]
    if kinds and not any(k != "null" and isinstance(value, KINDS[k]) for k in kinds):
        return [f"{place}: {type(value).__name__}, not {kinds}"]
    if kinds == ["number", "null"] and isinstance(value, bool):
        return [f"{place}: bool, not a number"]
    if isinstance(value, list):
        return [
            e
            for i, row in enumerate(value)
            for e in wrong(row, schema.get("items", {}), f"{place}{i}")
        ]
    if isinstance(value, dict) and "properties" in schema:
        listed = schema["properties"]
        missing = [f"{place}.{name}: not declared" for name in value if name not in listed]
        nested = (wrong(value[n], listed[n], f"{place}.{n}") for n in value if n in listed)
        return missing + [error for errors in nested for error in errors]
    return []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("acopf", ["acopf", "case14"]),
        ("relax", ["relax", "case14"]),
        ("zones", ["zones", "case14"]),
        ("account", ["account", "--epsilon", "1", "--releases", "10"]),
        ("cases", ["cases", "case14"]),
        ("run", ["run", "case14", *NOISE, "--no-reference"]),
        ("security", ["security", "case14", *NOISE, "--corrective"]),
        (
            "exchange",
            ["exchange", "tests/data/pglib/pglib_opf_case30_ieee.m", "--zones", "3", *NOISE],
        ),
    ],
)
def test_what_a_command_prints_is_as_its_schema_says(
    name: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert wrong(document, json_schemas()[f"{name}.schema.json"]) == []


def test_a_document_that_differs_is_found() -> None:
    schema = json_schemas()["acopf.schema.json"]
    assert wrong({"case": "case14", "cost": "dear", "violations": [{"at": 3}]}, schema) != []
    assert wrong({"case": "case14", "cost": None, "violations": []}, schema) == []
    assert wrong({"other": 1}, schema) == [".other: not declared"]


def test_the_command_writes_a_file_per_document(tmp_path: Any) -> None:
    assert main(["schema", "--json-schema", str(tmp_path / "schemas")]) == 0
    files = {path.name: json.loads(path.read_text()) for path in (tmp_path / "schemas").iterdir()}
    assert files == json_schemas() and len(files) >= 13
    assert {schema["$schema"] for schema in files.values()} == {DRAFT}
