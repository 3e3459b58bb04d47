"""``gridpriv cases``: the report of one case's source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gridpriv.cli.main import main
from gridpriv.grid.library import shipped_folder

DC = "mpc.dcline = [\n 1 2 1 10 10 0 0 1 1 0 10 0 0 0 0 0 0;\n];\n"


def test_every_field_of_a_file_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (shipped_folder("cases") / "case14.m").read_text()
    (tmp_path / "mine.m").write_text(text + DC)
    assert main(["cases", str(tmp_path / "mine.m")]) == 0
    out, err = capsys.readouterr()
    assert "warning: mine.m: dcline" in err
    printed = " ".join(out.split())
    assert "14 buses, 20 branches and 5 generators in service, 259 MW of demand" in printed
    assert "unsupported dcline 1 DC lines are fixed demand at both ends" in printed
    assert "reference bus 1 bus 1;" in printed
    assert "The power balance may differ from the source's for: dcline." in printed


def test_the_json_report_of_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cases", "case118", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["format"] == "MATPOWER .m"
    fields = {note["field"]: note for note in document["fields"]}
    assert fields["parallel branches"]["count"] == 7
    assert fields["branch: angmin, angmax at or beyond 90 degrees"]["status"] == "ignored"


@pytest.mark.parametrize("words", [("case14", "--all"), ("case15",)])
def test_wrong_use_is_refused(words: tuple[str, ...]) -> None:
    assert main(["cases", *words]) == 2
