"""The case study that starts from XIIDM, where pypowsybl is installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_pages import ROOT, blocks

from gridpriv.cli.main import main


@pytest.mark.slow
def test_the_day_of_three_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's own commands: a day with an outage, from XIIDM to a report and back."""
    import shlex

    pypowsybl = pytest.importorskip("pypowsybl")
    monkeypatch.chdir(tmp_path)
    pages = blocks(ROOT / "docs/howto/case-studies.md")
    for block in [block for block in pages if "extra powsybl" in block.mark]:
        for line in block.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line)
            if words[0] == "printf":
                Path("hours.csv").write_text(words[1].replace("\\n", "\n"))
            else:
                assert main([*words[1:], "--quiet"]) == 0, line
    assert Path("three/report.html").is_file()
    network = pypowsybl.network.load(tmp_path / "dispatched.xiidm")
    assert not network.get_lines().loc[:, ["connected1", "connected2"]].all(axis=None)
    results = pypowsybl.loadflow.run_ac(network)
    assert results[0].status.name == "CONVERGED"
    assert abs(results[0].distributed_active_power) < 0.1
