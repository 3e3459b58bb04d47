"""The run command: output for users and for independent checks."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
from test_bad_input import JOINED, grid

import gridpriv
from gridpriv.cli.main import main
from gridpriv.core.files import sealed
from gridpriv.core.store import read_manifest
from gridpriv.grid.library import shipped_folder
from gridpriv.study.context import RunContext, run_case
from gridpriv.zonal.prepared import prepare


def call(capsys, *words):
    code = main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def as_json(capsys, *words):
    code, out, _ = call(capsys, *words, "--json")
    assert code == 0
    return json.loads(out)


def test_the_json_document_has_the_promised_shape(capsys):
    document = as_json(capsys, "run", "case14", "--rounds", "2", "--seed", "1", "--no-reference")
    assert set(document) >= {
        "case",
        "buses",
        "zones",
        "settings",
        "rounds",
        "final",
        "privacy",
        "solver",
        "timing",
        "seed",
        "version",
    }
    assert set(document["zones"][0]) >= {"zone", "buses", "variables", "shared", "tie_lines"}
    assert set(document["rounds"][0]) >= {
        "round",
        "objective",
        "consensus_residual",
        "noise_magnitude",
        "plan_shortage_mw",
        "plan_surplus_mw",
        "seconds",
    }
    final = document["final"]
    figures = {"plan_shortage_mw", "plan_surplus_mw", "plan_shortage_mvar"}
    assert set(final) >= {"objective", "consensus_residual"} | figures
    privacy = document["privacy"]
    assert privacy["releases_per_zone"] == 1
    assert privacy["per_release"]["nominal"] == pytest.approx(5.0)
    assert privacy["total_pure"] == pytest.approx(5.0)
    assert privacy["total"]["delta"] == 1e-5
    assert len(privacy["sensitivity"]) == 3
    assert set(document["solver"]) >= {"name", "version", "solves", "failures", "seconds_per_solve"}
    assert set(document["timing"]) >= {"load", "build", "solve", "total"}


def test_without_noise_every_epsilon_is_null(capsys):
    document = as_json(
        capsys, "run", "case14", "--mechanism", "none", "--rounds", "1", "--solver", "clarabel"
    )
    privacy = document["privacy"]
    assert privacy["mechanism"] == "none"
    assert privacy["per_release"]["nominal"] is None
    assert privacy["total"]["epsilon"] is None


def test_the_preset_certifies_13_times_what_it_claims_and_says_why(capsys):
    words = (
        "run",
        "case118",
        "--preset",
        "ryu-kim",
        "--mechanism",
        "laplace",
        "--epsilon",
        "0.1",
        "--protects",
        "p",
        "--rounds",
        "2",
        "--solver",
        "clarabel",
        "--seed",
        "1",
    )
    document = as_json(capsys, *words)
    release = document["privacy"]["per_release"]
    assert release["nominal"] == pytest.approx(0.1)
    assert release["certified"] == pytest.approx(1.3)
    code, out, _ = call(capsys, *words)
    assert code == 0
    flat = " ".join(out.split())
    assert "bus 49" in flat
    assert "13 times the nominal one" in flat


@pytest.mark.parametrize(
    ("words", "multiplier"),
    [
        (("--perturbation", "objective"), 37.3),
        (("--perturbation", "demand", "--noise-schedule", "once"), 3.73),
    ],
)
def test_total_budgets_calibrate_the_noise(capsys, words, multiplier):
    document = as_json(
        capsys,
        "run",
        "case14",
        "--budget",
        "total:1,1e-5",
        "--mechanism",
        "gaussian",
        "--rounds",
        "100",
        "--solver",
        "clarabel",
        "--seed",
        "1",
        "--start",
        "flat",
        "--tolerance",
        "1e9",
        "--no-reference",
        *words,
    )
    assert document["privacy"]["noise_multiplier"] == pytest.approx(multiplier, rel=2e-3)


@pytest.mark.usefixtures("painted")
def test_a_folder_holds_settings_tables_and_figures(capsys, tmp_path):
    code, out, _ = call(
        capsys,
        "run",
        "case14",
        "--rounds",
        "2",
        "--seed",
        "4",
        "--planning",
        "soc",
        "--solver",
        "clarabel",
        "--out",
        str(tmp_path / "run"),
    )
    assert code == 0
    assert "Written to folder" in out
    folder = tmp_path / "run"
    names = {path.name for path in folder.iterdir()}
    assert {"run.json", "rounds.csv", "buses.csv", "convergence.png", "zones.png"} <= names
    assert json.loads((folder / "run.json").read_text())["seed"] == 4
    rounds = pd.read_csv(folder / "rounds.csv")
    assert rounds["round"].tolist() == [1, 2]
    buses = pd.read_csv(folder / "buses.csv")
    assert buses.pd_mw.sum() == pytest.approx(259.0)
    assert (folder / "zones.png").read_bytes().startswith(b"\x89PNG")
    assert len((folder / "zones.png").read_bytes()) > 1000
    assert (folder / "network.png").read_bytes().startswith(b"\x89PNG")
    bus, shed = (
        pd.read_csv(folder / f"{name}.csv", index_col=0) for name in ("res_bus", "res_shed")
    )
    made = pd.read_csv(folder / "res_gen.csv").groupby("bus").p_mw.sum().reindex(bus.index)
    demand = buses.set_index("bus").pd_mw
    served = (made.fillna(0.0) + bus.p_mw).to_numpy()  # bus.p_mw is what branches bring
    assert served == pytest.approx((demand - shed.p_mw).to_numpy(), abs=1e-6)


def test_a_public_export_holds_nothing_computed_from_demand(capsys, tmp_path):
    document = as_json(
        capsys,
        "run",
        "case14",
        "--rounds",
        "2",
        "--planning",
        "soc",
        "--seed",
        "4",
        "--solver",
        "clarabel",
        "--public",
        "--out",
        str(tmp_path / "run"),
    )
    assert document["final"]["objective"] is None
    assert document["final"]["plan_shortage_mw"] is None
    assert document["final"]["physical"]["shed_mw"] is None
    assert document["final"]["physical"]["regulation_mw"] is None
    assert all(row["objective"] is None for row in document["rounds"])
    assert all(row["noise_magnitude"] is None for row in document["rounds"])
    assert all(row["consensus_residual"] is not None for row in document["rounds"])
    names = {path.name for path in (tmp_path / "run").iterdir()}
    tables = (
        "charges",
        "network_branches",
        "network_buses",
        "releases",
        "rounds",
        "runs",
        "certificates",
        "zones",
    )
    copies = {"rounds.csv", "zones.png", "zones.csv", "convergence.png"}
    assert names == {"manifest.json", "run.json", *copies, *(f"{t}.parquet" for t in tables)}
    columns = set(pd.read_csv(tmp_path / "run" / "rounds.csv").columns)
    assert columns == {
        "round",
        "consensus_residual",
        "consensus_residual_max",
        "dual_residual",
        "penalty_min",
        "penalty_max",
    }
    assert document["seed"] is None
    assert document["settings"]["seed"] is None
    assert document["timing"]["total"] is None
    assert '"seed": 4' not in (tmp_path / "run" / "run.json").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "case15"), "case 'case15' is not known"),
        (("run", "case14", "--epsilon", "0"), "--epsilon 0"),
        (("run", "case14", "--epsilon", "-2"), "--epsilon -2"),
        (("run", "case14", "--delta", "1"), "--delta 1"),
        (("run", "case14", "--rounds", "0"), "--rounds 0"),
        (("run", "case14", "--solver", "gurobi"), "--solver gurobi"),
        (("run", "case14", "--workers", "9"), "the number of zones"),
        (("run", "case14", "--zones", "99"), "--zones 99"),
        (("run", "case14", "--zones", "3", "--method", "kmeans"), "--partition kmeans"),
        (("run", "case14", "--epsilon", "1", "--budget", "total:1"), "exclude each other"),
        (("run", "case14", "--preset", "ryukim"), "did you mean 'ryu-kim'"),
        (
            ("run", "case14", "--preset", "ryu-kim", "--mechanism", "gaussian", "--epsilon", "2"),
            "at most 1",
        ),
        (("run", "case14", "--outage", "bus:1"), "gen:N or branch:N"),
        (("zones", "case14", "--zones", "0"), "--zones 0"),
    ],
)
def test_bad_input_names_the_value_and_writes_nothing(capsys, tmp_path, words, message):
    out = () if words[0] == "zones" else ("--out", str(tmp_path / "run"))
    code, printed, err = call(capsys, *words, *out)
    assert code == 2
    assert message in err
    assert printed == ""
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").iterdir())


def test_a_missing_bus_in_a_map_is_refused_before_anything_runs(capsys, tmp_path):
    path = tmp_path / "map.csv"
    path.write_text("bus,zone\n" + "\n".join(f"{b},1" for b in range(1, 14)) + "\n")
    code, _, err = call(capsys, "run", "case14", "--zoning", str(path))
    assert code == 2
    assert "misses" in err
    assert "14" in err


def test_zones_reports_draws_and_writes(capsys, tmp_path):
    document = as_json(
        capsys,
        "zones",
        "case118",
        "--zones",
        "4",
        "--method",
        "louvain",
        "--out",
        str(tmp_path / "z.csv"),
        "--plot",
        str(tmp_path / "z.png"),
    )
    assert len(document["zones"]) == 4
    assert all(zone["connected"] for zone in document["zones"])
    assert len((tmp_path / "z.csv").read_text().splitlines()) == 119
    assert (tmp_path / "z.png").read_bytes().startswith(b"\x89PNG")


def test_cases_lists_the_shipped_ones(capsys):
    document = as_json(capsys, "cases")
    rows = {row["case"]: row for row in document["cases"]}
    assert rows["case14"]["load_mw"] == pytest.approx(259.0)
    assert rows["case118"]["buses"] == 118
    assert rows["case118"]["load_mw"] == pytest.approx(4242.0)


HEAVY = {
    "numpy",
    "scipy",
    "scipy.stats",
    "pandas",
    "pyarrow",
    "pyomo",
    "pyomo.environ",
    "casadi",
    "clarabel",
    "networkx",
    "dp_accounting",
    "pandapower",
    "opendp",
    "PIL",
    "typst",
    "rich",
    "multiprocessing",
    "distributed",
    "matplotlib",
    "cryptography",
    "gridpriv.report.export",
    "gridpriv.study.plan",
    "gridpriv.learning",
    "gridpriv.assurance",
}
MODELS = {"numpy", "scipy", "casadi", "clarabel"}


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        ("--help", set()),
        ("run --help", {"numpy"}),
        (
            "schema runs",
            {
                "numpy",
                "pandas",
                "pyarrow",
                "rich",
                "gridpriv.study.plan",
                "gridpriv.learning",
                "gridpriv.assurance",
            },
        ),
        ("run case14 --rounds 1 --quiet", MODELS - {"clarabel"}),
        pytest.param(
            "run case14 --rounds 1 --quiet --mechanism none",
            MODELS - {"clarabel"},
            marks=pytest.mark.slow,
        ),
        ("relax case14 --json", MODELS),
    ],
)
def test_a_command_imports_no_package_that_it_does_not_use(words, needed):
    code = (
        "import sys; from gridpriv.cli.main import main\n"
        "try: code = main()\nexcept SystemExit as stopped: code = stopped.code\n"
        "assert not code\n"
        f"print(*sorted({HEAVY} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words.split()], capture_output=True, text=True, check=True
    )
    imported = set(done.stdout.splitlines()[-1].split())
    assert imported <= needed, imported - needed


@pytest.mark.usefixtures("all_replans")
def test_the_command_checks_in_another_process_what_main_checks_in_this_one(capsys):
    words = ["run", "case14", "--seed", "7", "--no-reference"]
    here = as_json(capsys, *words)
    code = (
        "import sys; from gridpriv.cli.main import main\n"
        "if __name__ == '__main__':\n"
        "    main(); print(sorted({'pandapower', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words, "--json"], capture_output=True, text=True, check=True
    )
    document, imported = done.stdout.rsplit("}", 1)
    there = json.loads(document + "}")
    assert imported.strip() == "[]"
    for part in ("final", "privacy"):
        assert there[part] == here[part]
    assert done.stderr == ""


def test_help_of_run_names_every_partition_method(capsys):
    from gridpriv.grid.partition import METHODS

    with pytest.raises(SystemExit):
        main(["run", "--help"])
    assert " | ".join(METHODS) in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--beta", "1e-320"], "--beta 1e-320: must be 1e-09 to 1e+06 p.u."),
        (["--beta", "1e300"], "--beta 1e+300: must be"),
        (["--budget", "total:1e-300"], "--budget total:1e-300: must be"),
        (["--budget", "total:1e-300", "--noise", "secure"], "--budget total:1e-300: must be"),
    ],
)
def test_noise_beyond_all_numbers_is_refused(words, message, capsys):
    assert main(["run", "case14", "--rounds", "1", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("beta", "epsilon"), [("1e-9", "1e6"), ("1e6", "1e-12")])
def test_the_extremes_that_are_allowed_end_in_no_defect(beta, epsilon, capsys):
    words = ["--beta", beta, "--budget", f"total:{epsilon}", "--seed", "1"]
    assert main(["run", "case14", "--rounds", "1", "--solver", "clarabel", *words]) in (0, 3)
    capsys.readouterr()


@pytest.mark.parametrize("perturbation", ["objective", "output", "demand"])
def test_a_distance_that_is_allowed_is_so_at_every_load(perturbation, tmp_path, capsys):
    """The noise then covers more than any distance that may be stated."""
    words = ["--beta", "9e7MW", "--load-scale", "4", "--perturbation", perturbation, "--seed", "1"]
    common = ["--rounds", "1", "--solver", "clarabel", "--no-reference", "--json"]
    assert main(["run", *grid(tmp_path, (1, 3), JOINED), *common, *words]) == 0
    privacy = json.loads(capsys.readouterr().out)["privacy"]
    assert privacy["adjacency"].startswith(
        "any change of one bus's active demand by at most 9e+07 MW and"
    )


def test_a_map_given_as_a_number_of_zones_names_the_flag_that_takes_it(capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "case14", "--zones", "map.csv"])
    assert ended.value.code == 2
    assert "'map.csv': must be a number of zones" in (errors := capsys.readouterr().err)
    assert "--zoning FILE.csv" in errors


def test_a_charged_run_is_kept_whatever_becomes_of_its_baselines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError("handle is closed")

    monkeypatch.setattr("gridpriv.study.context.reference", broken)
    words = ["run", "case14", "--rounds", "1", "--solver", "clarabel", "--seed", "1", "--quiet"]
    with pytest.raises(OSError, match="handle is closed"):
        main([*words, "--out", str(tmp_path / "out")])
    assert json.loads((tmp_path / "out" / "run.json").read_text())["final"]["physical"][
        "ac_feasible"
    ]


def test_an_interrupt_of_a_baseline_is_one_and_keeps_the_run(capsys, tmp_path, monkeypatch):
    def interrupted(*_: object) -> None:
        error = KeyboardInterrupt()
        error.add_note("most releases drawn by a zone: 0")
        raise error

    monkeypatch.setattr("gridpriv.study.context.reference", interrupted)
    folder = tmp_path / "out"
    code, shown, errors = call(
        capsys, "run", "case14", "--rounds", "1", "--seed", "1", "--out", str(folder)
    )
    assert code == 130
    sentence = "interrupted (the run is done; its baselines take a new run)"
    assert errors.splitlines()[-1] == f"gridpriv run: {sentence}"  # and no word of --resume
    assert "AC-feasible" in shown
    assert json.loads((folder / "run.json").read_text())["final"]["cost_of_privacy"] is None


def test_a_folder_that_states_one_setting_less_gets_the_command_that_makes_it_again(
    capsys, tmp_path
):
    """An earlier state of the same version wrote fewer settings: whether they agree is unknown."""
    folder = tmp_path / "out"
    words = ["run", "case14", "--rounds", "1", "--mechanism", "none", "--out", str(folder)]
    assert call(capsys, *words)[0] == 0
    manifest = read_manifest(folder)
    del manifest["study"]["settings"]["imbalance_weight"]
    (folder / "manifest.json").write_text(sealed(manifest))
    code, _, errors = call(capsys, *words, "--resume")
    assert code == 2 and "imbalance_weight" in errors
    again = shlex.split(errors.partition("made again by: ")[2])
    assert again[:3] == ["gridpriv", "run", "case14"]
    assert call(capsys, *again[1:], "--quiet", "--out", str(tmp_path / "again"))[0] == 0
    made = read_manifest(tmp_path / "again")["study"]["settings"]
    assert made.pop("imbalance_weight") and made == manifest["study"]["settings"]


def test_a_command_whose_defaults_were_others_is_not_advised_to_make_a_folder_again(
    capsys, tmp_path
):
    """Options that a command line omits have today's defaults, so it names the changed ones."""
    folder = tmp_path / "out"
    words = ["run", "case14", "--rounds", "1", "--seed", "1", "--no-reference", "--out"]
    assert call(capsys, *words, str(folder))[0] == 0
    manifest = read_manifest(folder)
    assert manifest["study"]["settings"]["noise_schedule"] == "once"
    for setting, value in (("rounds", 1), ("release", "auto"), ("noise_schedule", "once")):
        assert f"--{setting.replace('_', '-')} {value}" in manifest["repeat"]
    code, _, errors = call(capsys, *words, str(folder), "--release", "bus")
    assert code == 2 and errors.endswith(f"is made again by: {manifest['repeat']}\n")
    manifest["study"]["settings"]["release"] = "bus"  # as it was once, said by no flag
    manifest["repeat"] = manifest["repeat"].replace("--release auto ", "")
    (folder / "manifest.json").write_text(sealed(manifest))
    code, _, errors = call(capsys, *words, str(folder))
    assert code == 2 and "(release)" in errors and "made again" not in errors


@pytest.mark.parametrize(
    "words",
    [
        "run case14 --rounds 1 --no-reference",
        "run case14 --rounds 1 --series SERIES",
        "compare case14 --rounds 1 --seeds 1 --budgets 1 --mechanism laplace --jobs 1 "
        "--format none --no-reference",
        "learn run lasso --rounds 1 --clients 5 --clip 1",
        "learn compare lasso --rounds 1 --clients 5 --algorithms dp-fedavg --totals 1 --seeds 1 "
        "--format none",
    ],
)
def test_a_command_without_a_run_left_to_compute_says_so(words, tmp_path, capsys):
    (tmp_path / "steps.csv").write_text("step,load_scale\nnoon,1\n")
    words = words.replace("SERIES", str(tmp_path / "steps.csv"))
    words = [*words.split(), "--out", str(tmp_path / "out")]
    note = f"no run was left to compute: {tmp_path / 'out'} was finished before"
    for more, expected in (([], ""), (["--resume", "--json"], note), (["--resume", "--quiet"], "")):
        code, _, problems = call(capsys, *words, *more)
        assert (code, note in problems) == (0, bool(expected))


UNUSED = "warning: budget = {!r} has no effect: mechanism 'none' draws no noise"
ALONE = "warning: one zone holds the whole grid: there is no other zone to coordinate with"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--mechanism", "none", "--budget", "total:1"], [UNUSED.format("total:1")]),
        (["--mechanism", "none", "--epsilon", "2"], [UNUSED.format("per-release:2")]),
        (["--mechanism", "none"], []),
        (["--budget", "total:1"], []),
        (["--mechanism", "none", "--zones", "1"], [ALONE]),
        (["--zone-size", "40"], [ALONE]),
        (["--zone-size", "40", "--reference"], [ALONE]),
        (["--zone-size", "7"], []),
    ],
)
def test_what_has_no_effect_is_reported_to_have_none(words, message, capsys):
    """A budget without noise, and a single zone: each has one message."""
    reference = [] if "--reference" in words else ["--no-reference"]
    assert main(["run", "case14", "--rounds", "1", "--seed", "1", *reference, *words]) == 0
    assert capsys.readouterr().err.splitlines() == message


def test_a_quiet_run_does_not_warn(capsys):
    words = ["--zones", "1", "--mechanism", "none", "--budget", "total:1", "--rounds", "1"]
    assert main(["run", "case14", *words, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_zones_without_a_tie_line_and_a_case_without_costs_are_questioned(tmp_path, capsys) -> None:
    bus = "{} {} 50 10 0 0 1 1 0 110 1 1.1 0.9;"
    branch = "{} {} 0.01 0.1 0 100 0 0 0 0 1 -360 360;"
    place, zones = tmp_path / "apart.m", tmp_path / "zones.csv"
    place.write_text(
        "function mpc = apart\nmpc.version = '2';\nmpc.baseMVA = 100;\n"
        f"mpc.bus = [{' '.join(bus.format(k, 3 if k in (1, 3) else 1) for k in (1, 2, 3, 4))}];\n"
        "mpc.gen = [1 80 0 60 -60 1 100 1 200 0; 3 60 0 60 -60 1 100 1 200 0];\n"
        f"mpc.branch = [{branch.format(1, 2)} {branch.format(3, 4)}];\n"
    )
    zones.write_text("bus,zone\n1,1\n2,1\n3,2\n4,2\n")
    assert main(["run", str(place), "--zoning", str(zones), "--dry-run"]) == 0
    errors = " ".join(capsys.readouterr().err.split())
    assert "No branch of apart joins two zones" in errors and "no convex generation costs" in errors


@pytest.mark.parametrize(("planning", "total"), [("ac", None), ("soc", 20)])
def test_progress_has_a_total_where_the_number_of_rounds_is_known(
    planning: str, total: int | None
) -> None:
    """Rounds on the AC equations end by themselves: 13 of 200 would look like a stop at 7 %."""
    case, totals = gridpriv.load_case("case14"), []

    @contextmanager
    def progress(_label: str, planned: int | None) -> Iterator[Callable[..., None]]:
        totals.append(planned)
        yield lambda *_: None

    settings = gridpriv.make_settings(seed=1, planning=planning)
    ready = prepare(case, gridpriv.shipped_zoning(case), settings)
    run_case(RunContext(progress=progress, reference=False), case, ready)
    assert totals == [total]


def test_a_missing_case_is_named_once(capsys):
    code, _, err = call(capsys, "run", "nosuch.m")
    assert code == 2
    assert err.strip() == "gridpriv run: case file nosuch.m does not exist"


def test_a_case_without_a_reference_bus_is_named(tmp_path, capsys):
    """With the bus that the AC power flow takes in its place; bus 1 has the largest generator."""
    source = shipped_folder("cases") / "case14.m"
    text = source.read_text().replace("\t1\t3\t", "\t1\t2\t", 1)
    (tmp_path / "without.m").write_text(text)
    words = ["--zones", "2", "--seed", "1", "--no-reference"]
    code, _, err = call(capsys, "run", str(tmp_path / "without.m"), *words)
    assert code == 0
    assert "no bus is the reference" in err and "largest generator" in " ".join(err.split())
    assert call(capsys, "run", "case14", *words)[2] == ""


@pytest.mark.parametrize("text", ["10MVA", "10 MWh", "10W"])
def test_a_unit_of_no_demand_is_refused_with_those_that_are(capsys, text):
    code, _, err = call(capsys, "run", "case14", "--beta", text)
    assert code == 2
    assert f"--beta {text}" in err and "kW, MW, GW, kVAr or MVAr" in err
