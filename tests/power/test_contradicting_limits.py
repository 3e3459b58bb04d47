"""A grid whose limits no dispatch meets: the error names every kind that may be the cause."""

from pathlib import Path

import pytest

from gridpriv.cli.main import main

# charging of 1 p.u. flows through a branch that may carry 5 MVA, at angles within half a degree
GRID = """function mpc = contradicting
mpc.version = '2';
mpc.baseMVA = 100;
mpc.bus = [
1 3 10 5 0 0 1 1 0 230 1 1.1 0.9;
2 1 20 5 0 0 1 1 0 230 1 1.1 0.9;
];
mpc.gen = [
1 0 0 100 -100 1 100 1 100 0;
];
mpc.branch = [
1 2 0.01 0.1 1.0 RATE RATE RATE 0 0 1 -0.5 0.5;
];
mpc.gencost = [
2 0 0 2 10 0;
];
"""


def test_an_error_names_another_command_than_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = tmp_path / "contradicting.m"
    case.write_text(GRID.replace("RATE", "5"))
    for command, advised in (("relax", False), ("acopf", True)):
        assert main([command, str(case), "--objective", "cost"]) == 3
        message = capsys.readouterr().err
        assert "line at 1-2 is 36.3 MVA outside" in message
        assert ("gridpriv relax bounds what any dispatch can do" in message) is advised


@pytest.mark.usefixtures("no_replans")
@pytest.mark.parametrize(("rate", "code"), [("5", 3), ("0", 0)])
def test_a_rating_that_contradicts_angle_limits_is_named_as_a_cause(
    tmp_path: Path, rate: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without ratings the same limits of voltages and angles are met."""
    case = tmp_path / "contradicting.m"
    case.write_text(GRID.replace("RATE", rate))
    words = ["run", str(case), "--zones", "2", "--planning", "soc", "--acceleration", "none"]
    assert main([*words, "--no-reference", "--seed", "1", "--quiet"]) == code
    message = capsys.readouterr().err
    assert ("limits of voltages, angles and branches" in message) is (code == 3)
