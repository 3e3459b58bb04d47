"""``gridpriv publish``: its files, their use in other tools, the ledger, bad input."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from gridpriv.cli.main import main
from gridpriv.core import files
from gridpriv.core.files import StorageError, read_sealed
from gridpriv.grid.library import load_case
from gridpriv.privacy.ledger import read_book

TIGHT = str(Path(__file__).parent.parent / "data" / "tight.m")
WORDS = ["case14", "--protect", "10MW", "--total", "1", "--seed", "1"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_it_writes_a_case_a_certificate_and_a_data_sheet(here, capsys) -> None:
    assert main(["publish", *WORDS, "--scenarios", "2", "--out", "own.m", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert names(here) == {"own.m", "own.certificate.json", "own.datasheet.md", "own.scenarios.csv"}
    assert read_sealed(here / "own.certificate.json") == document
    for file in document["files"]:
        content = (here / file["name"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == file["sha256"]
    case = load_case(here / "own.m")
    assert document["demand"]["total_mw"] == pytest.approx(100.0 * case.pd.sum())
    with (here / "own.scenarios.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 28
    assert {row["scenario"] for row in rows} == {"1", "2"}
    assert "1 (pure)" in (here / "own.datasheet.md").read_text()


@pytest.mark.parametrize("noise", ["simulated", "secure"])
def test_a_copy_is_called_protected_where_its_noise_is_secure(here, capsys, noise) -> None:
    words = ["case14", "--noise", noise, "--out", "own.m"]
    if noise == "secure":
        pytest.importorskip("opendp")
    assert main(["publish", *words]) == 0
    for text in (
        capsys.readouterr().out,
        (here / "own.datasheet.md").read_text(),
        (here / "own.m").read_text(),
    ):
        sentence = " ".join(text.split()).lower()
        assert ("a protected copy of" in sentence) == (noise == "secure")
        assert ("a trial copy, without privacy, of" in sentence) == (noise == "simulated")


@pytest.mark.parametrize(("case", "release"), [("case14", "total"), (TIGHT, "bus")])
def test_the_data_sheet_has_the_caveats_of_the_terminal(here, capsys, case, release) -> None:
    words = [case, "--release", release, "--seed", "1", "--out", "own.m"]
    assert main(["publish", *words]) == 0
    for text in (capsys.readouterr().out, (here / "own.datasheet.md").read_text()):
        sentences = " ".join(text.split())
        assert ("Only the total of demand is released" in sentences) == (release == "total")
        assert ("No branch has a rating" in sentences) == (case == "case14")


@pytest.mark.parametrize("total", ["0.1", "1"])
@pytest.mark.parametrize(("protects", "unit"), [("p+q", "MW"), ("q", "MVAr")])
def test_a_guess_of_the_midpoint_meets_the_stated_error(
    here, capsys, monkeypatch, total, protects, unit
) -> None:
    """Its error is half of the distance of the two demands that the sentence names."""
    monkeypatch.setenv("COLUMNS", "200")  # a figure in one line
    words = ["case14", "--beta", f"10{unit}", "--protects", protects, "--total", total]
    assert main(["publish", *words, "--seed", "1", "--out", "own.m"]) == 0
    text = {"terminal": capsys.readouterr().out, "sheet": (here / "own.datasheet.md").read_text()}
    sentences = {
        "terminal": rf"expected .* error .* two demands (\S+) {unit} apart.*least (\S+) {unit}",
        "sheet": rf"two demands of a bus (\S+) {unit} apart .* error of (\S+) {unit} or more",
    }
    for where, sentence in sentences.items():
        found = re.search(sentence, " ".join(text[where].replace("|", " ").split()))
        assert found is not None, where
        distance, error = map(float, found.groups())
        assert distance == 10.0
        assert 0.0 < error <= distance / 2.0
    assert f"two demands 10 {unit} apart is true, at most" in " ".join(text["terminal"].split())
    assert f"two demands of one bus that are 10 {unit} apart" in text["sheet"]


@pytest.mark.parametrize("protects", ["p+q", "q"])
@pytest.mark.parametrize("total", ["1", "5"])
def test_bounds_of_the_data_sheet_are_rounded_to_their_true_side(
    here, capsys, monkeypatch, total, protects
) -> None:
    """e^e / (1 + e^e) is rounded up, beta / (1 + e^e) down; a release has the unit of beta."""
    monkeypatch.setenv("COLUMNS", "200")
    unit, most = "MVAr" if protects == "q" else "MW", 1.0 / (1.0 + math.exp(-float(total)))
    words = ["--beta", f"0.5{unit}", "--protects", protects, "--total", total, "--seed", "1"]
    assert main(["publish", "case14", *words, "--out", "own.m"]) == 0
    sheet = (here / "own.datasheet.md").read_text()
    printed = " ".join(capsys.readouterr().out.replace("|", " ").split())
    for text, guess, error in (
        (sheet, r"probability above ([\d.]+)\.\n", rf"absolute error of (\S+) {unit} or more"),
        (printed, r"at most \(prior 50 %\) (\S+)", rf"is true, at least (\S+) {unit}"),
    ):
        (stated,), (least,) = re.findall(guess, text), re.findall(error, text)
        assert most <= float(stated) <= most + 1e-3
        assert 0.99 * 0.5 * (1.0 - most) <= float(least) <= 0.5 * (1.0 - most)
    assert re.search(rf"\| demand: \w+ \|.*\| {unit} \|", sheet)


def test_a_series_whose_first_step_has_no_demand_is_refused_before_its_release(
    here, capsys
) -> None:
    (here / "day.csv").write_text("step,load_scale\noff,0\non,1\n")
    assert main(["publish", *WORDS, "--series", "day.csv", "--out", "own.m"]) == 2
    assert "first step" in " ".join(capsys.readouterr().err.split())
    assert names(here) == {"day.csv"}


def test_the_owner_s_state_is_not_in_the_file(here) -> None:
    assert main(["publish", *WORDS, "--out", "own.m", "--quiet"]) == 0
    own, case = load_case(here / "own.m"), load_case("case14")
    for name in ("pd", "qd", "vm", "va", "pg", "vg"):
        there = getattr(own, name)[1:]
        at_limit = there == 0.0  # a generator at its lower limit produces 0 in both
        assert not np.isin(there[~at_limit], getattr(case, name)[1:]).any(), name
    for name in ("r", "x", "b", "tap", "rate", "vmin", "vmax", "pmax", "qmin", "gs", "bs"):
        np.testing.assert_allclose(getattr(own, name), getattr(case, name), rtol=1e-14)
    assert own.cost == case.cost


def test_the_written_state_balances_at_every_bus(here) -> None:
    from pandapower.pypower.makeYbus import makeYbus

    assert main(["publish", *WORDS, "--out", "own.m", "--quiet"]) == 0
    text = (here / "own.m").read_text()

    def table(name: str) -> np.ndarray:
        body = text.partition(f"mpc.{name} = [")[2].partition("];")[0]
        return np.array([row.split() for row in body.split(";") if row.strip()], dtype=float)

    bus, gen, branch = table("bus"), table("gen"), table("branch")
    at = [gen[:, 0].astype(int) - 1, branch[:, 0].astype(int) - 1, branch[:, 1].astype(int) - 1]
    bus[:, 0], gen[:, 0], branch[:, 0], branch[:, 1] = np.arange(len(bus)), *at
    voltage = bus[:, 7] * np.exp(1j * np.deg2rad(bus[:, 8]))
    # pandapower reads asymmetric columns behind MATPOWER's 13
    admittance = makeYbus(100.0, bus, np.pad(branch, ((0, 0), (0, 13))))[0]
    mismatch = 100.0 * voltage * np.conj(admittance @ voltage) + bus[:, 2] + 1j * bus[:, 3]
    np.subtract.at(mismatch, at[0], gen[:, 1] + 1j * gen[:, 2])
    assert np.abs(mismatch).max() < 1e-3  # MVA, at what is rounded to 1e-8 p.u. and degrees
    assert np.abs(gen[:, 2]).max() > 1.0
    assert not ((gen[:, 1] != 0.0) & (np.abs(gen[:, 1]) < 1e-4)).any()


def test_pandapower_opens_it_and_finds_its_optimum(here) -> None:
    import pandapower
    from pandapower.converter.matpower.from_mpc import from_mpc

    assert main(["publish", *WORDS, "--out", "own.m", "--quiet"]) == 0
    cost = json.loads((here / "own.certificate.json").read_text())["optimum"]["cost"]
    net = from_mpc(str(here / "own.m"))
    pandapower.runpp(net)
    assert net.converged
    pandapower.runopp(net)
    assert net.res_cost == pytest.approx(cost, rel=1e-3)


@pytest.mark.parametrize("name", ["case14", "case30"])
def test_pypower_opens_it_and_finds_its_optimum(name, here) -> None:
    """PYPOWER's own optimum fails on any case without ratings, such as case14."""
    api = pytest.importorskip("pypower.api")
    frames = pytest.importorskip("matpowercaseframes")
    assert main(["publish", name, *WORDS[1:], "--out", "own.m", "--quiet"]) == 0
    tables = frames.CaseFrames(str(here / "own.m"))
    ppc = {"version": "2", "baseMVA": float(tables.baseMVA)}
    ppc |= {table: getattr(tables, table).to_numpy(float) for table in ("bus", "gen", "branch")}
    ppc["gencost"] = tables.gencost.to_numpy(float)
    quiet = api.ppoption(VERBOSE=0, OUT_ALL=0)
    state, solved = api.runpf(ppc, quiet)
    assert solved
    np.testing.assert_allclose(
        state["bus"][:, 7], ppc["bus"][:, 7], atol=1e-6
    )  # voltages as stated
    if (ppc["branch"][:, 5] > 0).any():
        result = api.runopf(ppc, quiet)
        cost = json.loads((here / "own.certificate.json").read_text())["optimum"]["cost"]
        assert result["success"]
        assert result["f"] == pytest.approx(cost, rel=1e-4)


def test_a_net_that_counts_from_0_keeps_its_zones_and_the_shift_is_stated(here, capsys) -> None:
    pandapower = pytest.importorskip("pandapower")
    net = pandapower.networks.case9()
    assert net.bus.index.tolist() == list(range(9))
    net.bus["zone"] = ["north"] * 4 + ["south"] * 5
    pandapower.to_json(net, here / "net.json")
    assert main(["publish", "net.json", "--seed", "1", "--out", "own.m"]) == 0
    shift = "Bus numbers in the files are those of the source plus 1"
    for text in (capsys.readouterr().out, (here / "own.datasheet.md").read_text()):
        assert shift in " ".join(text.split())
    assert "column zone: 1 is north, 2 is south" in (here / "own.datasheet.md").read_text()
    assert read_sealed(here / "own.certificate.json")["bus_shift"] == 1
    assert load_case("own.m").bus_id.tolist() == list(range(1, 10))
    buses = []
    for file in ("net.json", "own.m"):
        capsys.readouterr()
        assert main(["zones", file, "--zones-from", "zone", "--out", "zones.csv"]) == 0
        rows = list(csv.DictReader((here / "zones.csv").open()))
        order = list(dict.fromkeys(row["zone"] for row in rows))
        buses.append([order.index(row["zone"]) for row in rows])
    assert buses[0] == buses[1] == [0] * 4 + [1] * 5


def test_a_series_is_released_once(here, capsys) -> None:
    (here / "day.csv").write_text("step,load_scale\nnight,0.5\nnoon,1.0\n")
    assert main(["publish", *WORDS, "--series", "day.csv", "--out", "own.m", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["protected"]["total_epsilon"] == pytest.approx(1.0)
    assert len(document["releases"]) == 1
    with (here / "own.series.csv").open() as file:
        rows = list(csv.DictReader(file))
    night, noon = (
        np.array([float(row["pd_mw"]) for row in rows if row["step"] == step])
        for step in ("night", "noon")
    )
    np.testing.assert_allclose(noon, 2.0 * night, atol=1e-5)
    assert 0.0 < document["demand"]["expected_total_error_mw"] < 100.0
    sheet = " ".join((here / "own.datasheet.md").read_text().split())
    assert "Posterior standard deviation of the total: " in sheet
    assert "of a series are those expected before the release" in sheet


def test_bounds_of_a_series_with_factors_are_stated_before_the_factors(here, capsys) -> None:
    """At factor 0.25 demands of the file that are 10 MW apart differ by 40 MW in the release."""
    (here / "day.csv").write_text("step,load_scale\nnight,0.25\nnoon,2.0\n")
    assert main(["publish", *WORDS, "--series", "day.csv", "--out", "own.m"]) == 0
    sheet = " ".join((here / "own.datasheet.md").read_text().split())
    printed = " ".join(capsys.readouterr().out.split())
    assert "two demands of one bus that are 10 MW apart before the public factors from" in sheet
    assert "estimates that bus's demand before the public factors with an expected abs" in sheet
    for text in (sheet, printed):
        assert "its public factor, 0.25 to 2; the case has the first step, of factor 0.25" in text
        assert "so the protected change is 2.5 MW in it." in text
    certificate = json.loads((here / "own.certificate.json").read_text())
    assert certificate["demand"]["factors"] == [0.25, 2.0]


def test_releases_are_charged_and_a_second_case_is_refused(here, capsys) -> None:
    pytest.importorskip("opendp")
    grant = ["ledger", "grant", "ledger", "--case", "case14", "--total", "1.5", "--beta", "10MW"]
    assert main([*grant, "--quiet"]) == 0
    words = ["publish", "case14", "--noise", "secure", "--ledger", "ledger", "--json"]
    assert main([*words, "--out", "own.m"]) == 0
    document = json.loads(capsys.readouterr().out)
    ((_, charged),) = read_book(here / "ledger").charged
    assert charged.run == document["ledger"]["run"]
    before = names(here)
    assert main([*words, "--out", "again.m"]) == 4
    assert "lack the budget" in capsys.readouterr().err
    assert names(here) == before
    assert len(read_book(here / "ledger").charged) == 1
    assert main(["publish", "case118", "--ledger", "ledger", "--out", "other.m"]) == 4
    assert "holds no grant" in capsys.readouterr().err
    assert names(here) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "own.txt"], "a file name that ends in .m"),
        ([], "--out is missing"),
        (["--out", "none/own.m"], "there is no folder none"),
        (["--out", "own.m", "--total", "0"], "must be a positive number"),
        (["--out", "own.m", "--total", "nan"], "must be a positive number"),
        (["--out", "own.m", "--beta", "-1MW"], "beta"),
        (["--out", "own.m", "--release", "nothing"], "must be one of bus"),
        (["--out", "own.m", "--mechanism", "gaussian"], "must be one of knorm"),
        (["--out", "own.m", "--mechanism", "staircase", "--release", "tree"], "staircase"),
        (["--out", "own.m", "--fidelity", "losses"], "must be cost"),
        (["--out", "own.m", "--scenarios", "-1"], "scenarios"),
        (["--out", "own.m", "--series", "day.csv", "--scenarios", "2"], "left out with --series"),
        (["--out", "own.m", "--noise", "secure", "--seed", "1"], "secure noise has no seed"),
        (["--out", "own.m", "--ledger-key", "k"], "--ledger-key"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(words, message, here, capsys) -> None:
    assert main(["publish", "case14", *words]) == 2
    assert message in capsys.readouterr().err
    assert names(here) == set()


@pytest.mark.parametrize(("protects", "other"), [("p", "reactive"), ("q", "active"), ("p+q", "")])
def test_demand_that_epsilon_does_not_cover_is_named(protects, other, here, capsys) -> None:
    beta = "10MVAr" if protects == "q" else "10MW"
    words = ["publish", "case14", "--protect", beta, "--total", "1", "--seed", "1", "--out", "p.m"]
    assert main([*words, "--protects", protects]) == 0
    printed = capsys.readouterr().out
    assert (f"Not protected: changes of {other} demand" in printed) == bool(other)
    assert (here / "p.m").exists()


def test_a_drawn_seed_is_printed_and_repeats_the_case(here, capsys) -> None:
    words = ["publish", "case14", "--protect", "10MW", "--total", "1", "--out", "p.m"]
    assert main(words) == 0
    first = (here / "p.m").read_text()
    seed = capsys.readouterr().out.split("--seed ")[1].split()[0]
    assert main([*words, "--seed", seed]) == 0
    assert (here / "p.m").read_text() == first


def test_a_file_that_is_read_is_not_replaced(here, capsys) -> None:
    assert main(["convert", "case14", "own.m", "--quiet"]) == 0
    before = (here / "own.m").read_bytes()
    assert main(["publish", "own.m", *WORDS[1:], "--out", "own.m"]) == 2
    assert "own.m is read as CASE" in capsys.readouterr().err
    assert (here / "own.m").read_bytes() == before
    (here / "p.series.csv").write_text("step,load_scale\na,1\n")
    day = ["--series", "p.series.csv", "--out", "p.m"]
    assert main(["publish", "own.m", *WORDS[1:], *day]) == 2
    assert "p.series.csv is read as --series" in capsys.readouterr().err


def test_a_full_disk_leaves_no_file_and_says_what_was_charged(here, capsys, monkeypatch) -> None:
    def full(path, *_, **__):
        raise StorageError(f"cannot write {path}: No space left on device")

    grant = ["ledger", "grant", "l", "--case", "case14", "--zones", "1", "--total", "3"]
    assert main(grant) == 0
    opened = files.atomic_file

    def failing_open(path, *, private):
        return full(path) if path.name == "p.m" else opened(path, private=private)

    monkeypatch.setattr(files, "atomic_file", failing_open)
    before = names(here)
    words = ["case14", "--protect", "10MW", "--total", "1", "--noise", "secure", "--ledger", "l"]
    assert main(["publish", *words, "--out", "p.m"]) == 3
    errors = capsys.readouterr().err
    assert "No space left" in errors and "drawn and charged to the ledger" in errors
    assert {name for name in names(here) if name.startswith("p.")} == set() and before <= names(
        here
    )


def test_what_the_grid_cannot_serve_is_projected_and_reported(here, capsys) -> None:
    words = ["case14", "--protect", "100MW", "--total", "0.1", "--release", "bus", "--seed", "3"]
    assert main(["publish", *words, "--out", "own.m"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "was not AC-feasible: it was changed to the nearest demand" in printed
    assert "No branch has a rating" in printed
    assert "was changed by" in (here / "own.datasheet.md").read_text()


def test_a_delta_is_refused_by_name(capsys, tmp_path):
    assert main(["publish", "case14", "--total", "1,1e-5", "--out", str(tmp_path / "p.m")]) == 2
    assert "publish gives pure privacy, without a delta" in capsys.readouterr().err


@pytest.mark.parametrize("edited", [False, True])
def test_scenarios_of_a_replaced_publication_are_removed_unless_they_were_edited(
    edited, here
) -> None:
    words = ["publish", *WORDS, "--release", "total", "--out", "own.m", "--quiet"]
    assert main([*words, "--scenarios", "1"]) == 0
    assert (here / "own.scenarios.csv").exists()
    if edited:
        (here / "own.scenarios.csv").write_text("mine")
    assert main(words) == 0
    assert (here / "own.scenarios.csv").exists() == edited


def test_the_files_are_compared_with_their_certificate(here, capsys) -> None:
    assert main(["publish", *WORDS, "--scenarios", "2", "--out", "own.m", "--quiet"]) == 0
    for name in ("own.m", "own.certificate.json"):
        assert main(["publish", "verify", name]) == 0
        assert "at a total epsilon of 1 (simulated noise)" in " ".join(
            capsys.readouterr().out.split()
        )
    written = {path.name: path.read_bytes() for path in here.iterdir()}
    for name in set(written) - {"own.certificate.json"}:
        content = written[name]
        (here / name).write_bytes(content.replace(b"1", b"2", 1))
        assert main(["publish", "verify", "own.m", "--json"]) == 1
        document = json.loads(capsys.readouterr().out)
        assert {row["name"]: row["status"] for row in document["files"]} == {
            file: "changed" if file == name else "unchanged"
            for file in set(written) - {"own.certificate.json"}
        }
        (here / name).write_bytes(content)
    (here / "own.scenarios.csv").unlink()
    assert main(["publish", "verify", "own.certificate.json"]) == 1
    assert "missing" in capsys.readouterr().out


def test_another_case_and_an_edited_certificate_are_not_verified(here, capsys) -> None:
    assert main(["publish", *WORDS, "--out", "own.m", "--quiet"]) == 0
    (here / "own.certificate.json").rename(here / "other.certificate.json")
    (here / "other.m").write_bytes((here / "own.m").read_bytes())
    assert main(["publish", "verify", "other.m", "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)["files"]
    assert {row["name"]: row["status"] for row in rows}["other.m"] == "changed"
    edited = (here / "other.certificate.json").read_text().replace("10.0", "90.0", 1)
    (here / "other.certificate.json").write_text(edited)
    assert main(["publish", "verify", "other.m"]) == 2
    assert "is damaged or was edited" in capsys.readouterr().err
    assert main(["publish", "verify", "own.m"]) == 2
    assert main(["publish", "verify"]) == 2
    assert "publish verify needs a file" in capsys.readouterr().err
    assert main(["publish", "case14", "own.m"]) == 2
    assert "'own.m' follows the case" in capsys.readouterr().err
