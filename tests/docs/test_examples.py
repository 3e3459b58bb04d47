"""Every file of examples/ runs and prints its result; a new file needs a line here.

Scripts and notebooks are run in this process, one after the other, in an empty folder.
"""

from __future__ import annotations

import ast
import json
import re
import runpy
import sys
from pathlib import Path

import pytest

from gridpriv import read_plan
from gridpriv.cli.main import main

FOLDER = Path(__file__).parents[2] / "examples"

SAYS = {
    "attack.py": r"noise-free .* messages .*\n.*protected .* releases",
    "day.py": r"zone 3: 1 release in 6 steps, total epsilon 1\n",
    "first_run.ipynb": r"zone 3: 1 release of certified epsilon 5 \(nominal 5\), total 5; ",
    "compare_budgets.ipynb": r"Open .*report\.html",
    "learning_lasso.py": r"ddp-admm: objective 0\.1\d+, certified total epsilon 10\.00",
    "protect_substation.py": r"recommended: release \w+(.*\n)*zone 3: [01] release",
    "own_grid.py": r"5\d\d\d\.\d\d \$/h, 0\.000 MW shed",
    # by hand: deficits are equal, 0.01 x of a well below its capacity: 240 - 60 - 2 x = 3 * 0.01 x
    "water_network.py": r"(  district \d: deficit   0\.8[89] m3/h; no privacy\n){3}",
}
SLOW = {
    # the relaxation's bound, which other programs print too
    "stressed_grid.py": r"of 777\.0 MW at least 203\.3 MW(.*\n)*total epsilon 5: 2\d\d\.\d MW",
    "audit_case118.py": r"nominal 0\.1, certified 1\.3, (.*\n)*the certified epsilon holds",
    "consortium.py": r"Run example: case14(.*\n)*Zone 3, run example",
    "helics_run.py": r"5 rounds; the other federate is at 1\.0 s",
}
DATA = {
    "learning_mnist.py": r"output: test accuracy 0\.\d+, certified total epsilon 0\.\d+ at",
    "learning_cnn.py": r"certified: epsilon [0-3](\.\d+)? at delta 1e-05",
}
NEEDS = {"consortium.py": "cryptography", "helics_run.py": "helics", "learning_cnn.py": "torch"}
STUDY = "study.toml"


def printed(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what an example prints."""
    path = FOLDER / name
    if path.suffix == ".py":
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as ended:
            assert not ended.code
        return capsys.readouterr().out
    notebook = json.loads(path.read_text(encoding="utf-8"))
    namespace: dict[str, object] = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            shows(ast.parse("".join(cell["source"]), name), namespace)
    return capsys.readouterr().out


def shows(cell: ast.Module, namespace: dict[str, object]) -> None:
    """Run a cell of a notebook, and make Jupyter's representation of its last expression."""
    last = cell.body.pop() if isinstance(cell.body[-1], ast.Expr) else None
    exec(compile(cell, "cell", "exec", dont_inherit=True), namespace)
    if last is None:
        return
    value = eval(compile(ast.Expression(last.value), "cell", "eval", dont_inherit=True), namespace)
    for form in ("_repr_html_", "_repr_png_"):
        if hasattr(type(value), form):
            assert getattr(value, form)()
    if value is not None:
        print(repr(value))


def test_every_example_is_run_by_a_test() -> None:
    files = {path.name for path in FOLDER.iterdir() if path.is_file()}
    assert files == {*SAYS, *SLOW, *DATA, STUDY}


def says(name, expected, monkeypatch, folder, capsys) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", [name])
    assert re.search(expected, printed(name, capsys))


@pytest.mark.parametrize("name", sorted(SAYS))
def test_an_example_says_what_it_is_for(name, tmp_path, monkeypatch, capsys) -> None:
    says(name, SAYS[name], monkeypatch, tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SLOW))
def test_a_slow_example_says_what_it_is_for(name, tmp_path, monkeypatch, capsys) -> None:
    says(name, SLOW[name], monkeypatch, tmp_path, capsys)


@pytest.mark.data
@pytest.mark.parametrize("name", sorted(DATA))
def test_an_example_of_learning_says_what_it_is_for(name, tmp_path, monkeypatch, capsys) -> None:
    says(name, DATA[name], monkeypatch, tmp_path, capsys)


def test_without_data_the_example_of_learning_says_how_to_have_it(monkeypatch) -> None:
    monkeypatch.delenv("GRIDPRIV_DATA", raising=False)
    with pytest.raises(SystemExit, match=r"mnist is looked for in(.*\n)*Fetch it: gridpriv learn"):
        runpy.run_path(str(FOLDER / "learning_mnist.py"), run_name="__main__")


def test_the_study_file_is_a_study() -> None:
    assert len(read_plan(FOLDER / STUDY).tasks()) == 2 * (2 + 2 * 2 * 3)


@pytest.mark.slow
def test_the_study_file_is_run(tmp_path) -> None:
    out = tmp_path / "study"
    assert main(["compare", "--study", str(FOLDER / STUDY), "--out", str(out), "--quiet"]) == 0
    assert "How often should demand noise be drawn?" in (out / "report.html").read_text()
