"""A report of a stressed run says what the terminal said of it, and nothing kinder.

Every run here is one of which a careless report would be false: no agreement, an island, a bus
without demand, a dispatch that no grid can carry, noise that is worth nothing.
"""

from __future__ import annotations

import html
import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from gridpriv.cli.main import main
from gridpriv.core.display import figure
from gridpriv.core.stored import Study
from gridpriv.report.answers import answers
from gridpriv.report.export import export
from gridpriv.report.source import read_source
from gridpriv.report.summary import summary
from gridpriv.study import Scheme, compare, make_plan
from gridpriv.study.publish import publish_study
from gridpriv.study.schemes import DEFAULT_SCHEMES
from gridpriv.study.total import study_totals

QUICK = ["--solver", "clarabel", "--seed", "5"]
NOISE = ["--refresh", "run", "--budget", "total:0.2", "--beta", "30MW", "--rounds", "2"]
STRESSED = {
    "not converged": ["--rounds", "1", "--mechanism", "none"],
    "islanded": ["--rounds", "3", "--mechanism", "none",
                 "--outage", "branch:17", "--outage", "branch:20"],
    "zero demand": ["--rounds", "2", "--mechanism", "none", "--demand", "DEMAND"],
    "worth nothing": NOISE,
    "overloaded": [*NOISE, "--load-scale", "3", "--outage", "branch:1", "--no-reference",
                   "--release", "tree"],
}  # fmt: skip


@pytest.fixture(scope="module", params=STRESSED)
def told(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[str]]:
    """Return the folder of a stressed run, and what the terminal said below its tables."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "demand.csv").write_text("bus,pd_mw,qd_mvar\n9,0,0\n")
    words = [str(folder / "demand.csv") if w == "DEMAND" else w for w in STRESSED[request.param]]
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert main(["run", "case14", *QUICK, *words, "--out", str(folder / "run")]) == 0
    lines = printed.getvalue().splitlines()
    said = [line for line in lines if re.match(r"\S.*\.$|no privacy: ", line)]
    assert len(said) > 1
    return folder / "run", said


def visible(page: Path) -> str:
    """Return the words of a page as a reader sees them, on one line."""
    text = re.sub(r"(?s)<(style|script|svg).*?</\1>", " ", page.read_text(encoding="utf-8"))
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def test_a_report_says_every_sentence_that_the_terminal_said(told: tuple[Path, list[str]]) -> None:
    folder, said = told
    export(folder)
    page = visible(folder / "report.html")
    assert [one for one in said if one not in page] == []
    assert not re.search(r"costs? the least|[Cc]ost of privacy</h2>|lowest", page)


def test_a_report_has_the_row_of_nothing_released_where_the_grid_cannot_carry_it(
    tmp_path: Path,
) -> None:
    words = ["--rounds", "8", "--load-scale", "3", "--outage", "branch:1", "--budget", "total:0.3",
             "--beta", "30MW", "--seed", "3"]  # fmt: skip
    assert main(["run", "case14", *words, "--quiet", "--out", str(tmp_path / "run")]) == 0
    export(tmp_path / "run")
    page = visible(tmp_path / "run" / "report.html")
    assert "the grid can carry it, nothing released no" in page
    assert "cost, nothing released" not in page


def test_a_report_shows_the_figures_of_the_settled_grid(told: tuple[Path, list[str]]) -> None:
    folder, _ = told
    export(folder)
    page, run = visible(folder / "report.html"), read_source(folder).runs.iloc[0]
    shown = re.search(r"demand not served ([\d.e+-]+) MW", page)
    assert shown is not None
    assert float(shown[1]) == pytest.approx(run.recourse_shed_mw, rel=1e-3, abs=1e-5)
    assert ("the grid can carry it yes" in page) == bool(run.carried)
    assert ("The grid cannot carry" in page) == (not run.carried)
    assert ("Not converged" in page) == (run.consensus_residual > 0.01)


def test_the_settings_are_those_that_were_used(told: tuple[Path, list[str]]) -> None:
    """No objective was asked for: case14 has costs, and its run's document says what was taken."""
    folder, _ = told
    export(folder)
    used = json.loads((folder / "run.json").read_text())["settings"]["objective"]
    assert used == "cost"
    page = visible(folder / "report.html")
    assert f"all runs objective {used} " in page
    assert "None" not in page and "[]" not in page


def test_every_file_tells_the_same_settings(told: tuple[Path, list[str]]) -> None:
    folder, _ = told
    used = json.loads((folder / "run.json").read_text())["settings"]
    manifest = json.loads((folder / "manifest.json").read_text())["study"]["settings"]
    assert {key: used[key] for key in manifest} == manifest
    assert manifest["imbalance_weight"] == 1e4


def test_the_answer_says_dollars_and_epsilon(told: tuple[Path, list[str]]) -> None:
    folder, _ = told
    export(folder)
    page, run = visible(folder / "report.html"), json.loads((folder / "run.json").read_text())
    answer = page.partition("This run ")[2].partition(". ")[0]
    settled = run["final"]["physical"]["cost"] is not None
    assert (re.search(r"costs [\d.]+ \$/h", answer) is not None) == settled
    epsilon, quiet = run["privacy"]["total"]["epsilon"], run["privacy"]["mechanism"] == "none"
    none = "no privacy" if quiet else "no total epsilon"
    assert (none if epsilon is None else f"epsilon of {epsilon:.4g} ") in answer


def test_what_zones_exchange_is_shown_where_the_grid_settles(
    told: tuple[Path, list[str]],
) -> None:
    folder, _ = told
    export(folder)
    page, run = visible(folder / "report.html"), json.loads((folder / "run.json").read_text())
    rows = run["final"]["physical"]["interchange"]
    assert ("Interchange, exports positive" in page) == bool(rows)
    for row in rows or ():
        known = row["scheduled_mw"] if row["actual_mw"] is None else row["actual_mw"]
        assert f" {figure(known)} " in page
    assert "Shed in the last round" not in page


def test_a_public_report_of_it_says_what_is_public_only(
    told: tuple[Path, list[str]], tmp_path: Path
) -> None:
    folder, said = told
    export(folder, public=True, out=tmp_path / "public")
    page = visible(tmp_path / "public" / "report-public.html")
    public = ("Not converged", "What zones release", "Protected", "no privacy",
              "The noise is calibrated")  # fmt: skip
    noisy = any(one.startswith("Protected") for one in said)
    for one in said:
        sentence = one.partition("; seed")[0]
        assert (sentence in page) == (one.startswith(public) and (noisy or "no noise" in one)), one
    # what zones agreed on is of releases, and of none where they carry no noise
    assert ("Interchange, exports positive" in page) == noisy
    assert "not served" not in page
    assert not re.search(r"\.\.(?!\.)", page)


NOISY = [
    Scheme(f"{n} rounds", (("perturbation", "demand"), ("refresh", "run"), ("rounds", n)))
    for n in (1, 2)
]


@pytest.mark.parametrize("carried", ["all", "some", "none"])
def test_no_way_is_called_cheapest_whose_dispatch_no_grid_can_carry(
    carried: str, tmp_path: Path
) -> None:
    plan = make_plan(["case14"], budgets=[1], schemes=NOISY, seeds=[1],
                     reference=False, settings={"solver": "clarabel", "beta": "30MW"})  # fmt: skip
    compare(plan, out=tmp_path, jobs=1)
    study = read_source(tmp_path)
    runs = study.runs.assign(recourse_shed_mw=[10.0, 20.0], cost=[1.0, 2.0])
    study.tables["runs"] = runs.assign(carried={
        "all": [True, True], "some": [False, True], "none": [False, False]
    }[carried])  # fmt: skip
    answer = answers(study, summary(study))[0]
    praised = re.findall(r'"(\d rounds)" costs?', answer)
    assert praised[:1] == {"all": ["1 rounds"], "some": ["2 rounds"], "none": []}[carried]
    lost = re.search(r"can carry no run of ([^.:]+)", answer)
    assert (lost[1] if lost else "") == {
        "all": "", "some": '"1 rounds"', "none": '"1 rounds" and "2 rounds"'
    }[carried]  # fmt: skip
    assert "Not converged: zones differ" in answer


def test_ways_that_a_cost_does_not_tell_apart_are_not_ranked(tmp_path: Path) -> None:
    plan = make_plan(["case14"], budgets=[1], schemes=NOISY, seeds=[1],
                     reference=False, settings={"solver": "clarabel"})  # fmt: skip
    compare(plan, out=tmp_path, jobs=1)
    study = read_source(tmp_path)
    study.tables["runs"] = study.runs.assign(recourse_shed_mw=[0.0, 0.0004], carried=True)
    answer = answers(study, summary(study))[0]
    assert "does not tell the 2 ways apart: under 0.001 MW each." in answer
    assert "least" not in answer
    assert "goes from" not in answer


def test_what_is_shown_the_same_is_not_called_worse(tmp_path: Path) -> None:
    plan = make_plan(["case14"], budgets=[1], schemes=NOISY, seeds=[1],
                     reference=False, settings={"solver": "clarabel", "rounds": 2})  # fmt: skip
    compare(plan, out=tmp_path, jobs=1)
    study = read_source(tmp_path)
    for shed, told in (([1.958, 1.962], True), ([1.958, 1.968], False)):
        study.tables["runs"] = study.runs.assign(recourse_shed_mw=shed, carried=True)
        answer = answers(study, summary(study))[0]
        assert ("tell the 2 ways apart: 1.96 MW each, to the digits shown." in answer) == told
        assert ("of the 2 ways" in answer and "the least" in answer) != told, answer


def test_of_quiet_ways_the_first_sentence_says_which_is_the_least(tmp_path: Path) -> None:
    quiet = [Scheme(f"{n} rounds", (("mechanism", "none"), ("rounds", n))) for n in (1, 2, 3)]
    plan = make_plan(["case14"], schemes=quiet, settings={"solver": "clarabel"})
    compare(plan, out=tmp_path, jobs=1)
    study = read_source(tmp_path)
    for shed, said in (
        ([5.0, 2.0, 3.0], '"2 rounds" costs the least, 2.00 MW shed after local recourse.'),
        ([5.0, 2.0, 2.0], '"2 rounds" and "3 rounds" cost the least, 2.00 MW shed'),
        (
            [2.0, 2.0, 2.0],
            "shed after local recourse does not tell the 3 ways apart: 2.00 MW each.",
        ),
        (
            [1.958, 1.962, 1.957],
            "shed after local recourse does not tell the 3 ways apart: 1.96 MW each, to the digits "
            "shown.",
        ),
        ([1.958, 5.0, 1.962], '"1 rounds" and "3 rounds" cost the least, 1.96 MW shed'),
    ):
        study.tables["runs"] = study.runs.assign(recourse_shed_mw=shed)
        answer = answers(study, summary(study))[0]
        assert answer.startswith(f"case14: drawing no noise, {said}"), answer


def test_a_study_holds_its_budgets_against_releasing_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The row is that of a run that asks for it; where it is cheaper, the answer says so."""
    schemes = [s for s in DEFAULT_SCHEMES if s.name in ("no noise", "nothing released")]
    plan = make_plan(
        ["case14"], budgets=[0.2], schemes=[*schemes, NOISY[1]], seeds=[1, 2],
        settings={"solver": "clarabel", "beta": "30MW"},
    )  # fmt: skip
    study = compare(plan, out=tmp_path / "study", jobs=1)
    silent = study.runs[study.runs.scheme == "nothing released"]
    words = ["--mechanism", "knorm", "--release", "nothing", "--refresh", "run", "--seed", "8"]
    assert main(["run", "case14", "--solver", "clarabel", *words, "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)["final"]["physical"]["cost"]
    assert silent.cost.tolist() == pytest.approx([alone], rel=1e-9)
    quiet = study.runs[study.runs.scheme == "no noise"].cost.item()
    for beyond, worth in ((-1.0, True), (10.0, False)):
        study.tables["runs"] = study.runs.assign(
            cost=study.runs.cost.where(study.runs.scheme != "2 rounds", alone + beyond)
        )
        answer = answers(study, summary(study))[0]
        assert f"nothing released, at epsilon 0, it is {figure(alone - quiet)} $/h" in answer
        assert ("That budget is worth nothing here" in answer) != worth
        assert "without noise it is" not in answer, "beyond itself a yardstick costs nothing"
    (total,) = study_totals(study)
    assert (total.runs, total.unknown) == (2, 0), "what draws nothing is no noisy run"


@pytest.mark.parametrize(
    ("carried", "cost", "said"),
    [(True, 8100.0, "nothing released, at epsilon 0, it can, and cost of privacy is 100 $/h."),
     (False, 8100.0, "nothing released, at epsilon 0, it cannot either."),
     (False, None, "nothing released, at epsilon 0, it cannot either."),
     (True, None, "nothing released, at epsilon 0, it can."),
     (None, 8100.0, None)],
)  # fmt: skip
def test_where_no_private_way_is_carried_a_study_tells_of_releasing_nothing(
    carried: bool | None, cost: float | None, said: str | None, tmp_path: Path
) -> None:
    schemes = [s for s in DEFAULT_SCHEMES if s.name in ("no noise", "nothing released")]
    plan = make_plan(["case14"], budgets=[1], schemes=[*schemes, *NOISY], seeds=[1],
                     settings={"solver": "clarabel", "beta": "30MW", "rounds": 1})  # fmt: skip
    compare(plan, out=tmp_path, jobs=1)
    study = read_source(tmp_path)
    figures = {"no noise": (8000.0, True), "nothing released": (cost, carried)}
    told = [figures.get(name, (9000.0, False)) for name in study.runs.scheme]
    study.tables["runs"] = study.runs.assign(
        cost=[one for one, _ in told], carried=[one for _, one in told]
    )
    answer = answers(study, summary(study))[0]
    assert 'can carry no run of "1 rounds" and "2 rounds": what they cost is no price.' in answer
    assert re.findall(r"With (nothing released[^.]*\.)", answer) == ([] if said is None else [said])


@pytest.mark.parametrize(
    ("ways", "silent", "said", "worthless"),
    [((True, False), (True, 8100.0), "it is 100 $/h", True),
     ((True, True), (True, 8100.0), "it is 100 $/h", True),
     ((True, True), (True, 9100.0), "it is 1100 $/h", False),
     ((True, False), (False, 8100.0), "the grid can carry no run", False),
     ((True, True), (False, 8100.0), "the grid can carry no run", False),
     ((True, True), (False, None), "the grid can carry no run", False),
     ((True, True), (None, 8100.0), None, False),
     ((None, None), (None, 8100.0), "it is 100 $/h", True)],
)  # fmt: skip
def test_what_the_grid_cannot_carry_is_no_yardstick_for_what_it_can(
    ways: tuple[bool | None, bool | None], silent: tuple[bool | None, float | None],
    said: str | None, worthless: bool, tmp_path: Path,
) -> None:  # fmt: skip
    schemes = [s for s in DEFAULT_SCHEMES if s.name in ("no noise", "nothing released")]
    plan = make_plan(["case14"], budgets=[1], schemes=[*schemes, NOISY[0]], seeds=[1, 2],
                     settings={"solver": "clarabel", "beta": "30MW", "rounds": 1})  # fmt: skip
    compare(plan, out=tmp_path, jobs=1)
    study = read_source(tmp_path)
    mine = iter(ways)
    told = [
        {"no noise": (True, 8000.0), "nothing released": silent}.get(name) or (next(mine), 9000.0)
        for name in study.runs.scheme
    ]
    study.tables["runs"] = study.runs.assign(
        carried=[one for one, _ in told], cost=[one for _, one in told]
    )
    answer = answers(study, summary(study))[0]
    found = re.findall(r"With nothing released, at epsilon 0, ([^.;]*)[.;]", answer)
    assert found == ([] if said is None else [said])
    assert ("That budget is worth nothing here" in answer) == worthless
    shares = re.findall(r'"1 rounds" has [^.]*\. The grid can carry (\S+)', answer)
    assert shares == ([] if None in ways else ["all" if all(ways) else "50"])


def protections(study: Study) -> list[str]:
    return [told for told in answers(study, summary(study)) if told.startswith("Protected")]


def test_a_study_says_what_it_protects(tmp_path: Path) -> None:
    plan = make_plan(["case14"], budgets=[1], schemes=NOISY, seeds=[1],
                     settings={"solver": "clarabel", "beta": "30MW", "rounds": 1})  # fmt: skip
    compare(plan, out=tmp_path, jobs=1)
    study = read_source(tmp_path)
    one = "one bus changes its active demand by 30 MW and its reactive demand by 30 MVAr at most."
    assert protections(study) == [f"Protected: {one}"]
    assert protections(publish_study(study)) == [f"Protected: {one}"]
    betas = ["0.05" if name == "1 rounds" else "30MW" for name in study.runs.scheme]
    study.tables["runs"] = study.runs.assign(beta=betas, protects="q")
    said = protections(study)
    assert len(said) == 2
    assert said[0].startswith(
        'Protected by "1 rounds": one bus changes its reactive demand by 5 MVAr at most. Where a'
    )
    assert said[1].startswith('Protected by "2 rounds": one bus changes its reactive demand by 30 ')


def test_the_report_of_a_series_says_what_it_protects(tmp_path: Path) -> None:
    series = tmp_path / "day.csv"
    series.write_text("step,load_scale\nnight,0.6\nday,1.0\n", encoding="utf-8")
    words = ["--series", str(series), "--rounds", "2", "--beta", "3MW", "--no-reference"]
    assert main(["run", "case14", *words, "--quiet", "--out", str(tmp_path / "run")]) == 0
    (said,) = protections(read_source(tmp_path / "run"))
    assert said.startswith("Protected: one bus changes its active demand by 3 MW and its reactive")
    assert said.endswith(" at most, in every step (where steps are factors, of the demand that "
                         "they scale).")  # fmt: skip


WRONG = {
    "carried": 'The grid cannot carry "no noise, rounds 1", which the cost of privacy is beyond.',
    "apart": 'Zones of "no noise, rounds 1" have not converged: they differ by 0.500 p.u. in what '
             "they share, and the cost of privacy is beyond that.",
}  # fmt: skip


@pytest.mark.parametrize(
    ("carried", "residual", "said"),
    [(True, 1e-3, []), (False, 1e-3, ["carried"]), (False, 0.5, ["carried", "apart"])],
)
def test_a_study_says_what_is_wrong_with_its_yardstick(
    carried: bool, residual: float, said: list[str], tmp_path: Path
) -> None:
    plan = make_plan(["case14"], budgets=[1], schemes=NOISY[:1], seeds=[1],
                     settings={"solver": "clarabel", "rounds": 1})  # fmt: skip
    compare(plan, out=tmp_path, jobs=1)
    study = read_source(tmp_path)
    quiet = study.runs.budget == "none"
    runs = study.runs.assign(consensus_residual=1e-3, carried=True)
    runs.loc[quiet, ["carried", "consensus_residual"]] = [carried, residual]
    study.tables["runs"] = runs
    answer = answers(study, summary(study))[0]
    assert [name for name, sentence in WRONG.items() if sentence in answer] == said
