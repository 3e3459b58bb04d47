"""A mechanism of a user's module, compared with the built-in one that it copies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import gridpriv
from gridpriv.cli.main import main
from gridpriv.core.errors import InputError
from gridpriv.privacy.certificate import noise_caveat
from gridpriv.privacy.mechanism import MECHANISMS, Charge, Gaussian, Laplace
from gridpriv.privacy.settings import NAMES, noise_multiplier, parse_budget
from gridpriv.zonal.summary import privacy_line

COMMAND = "import sys; from gridpriv.cli.main import main; sys.exit(main(sys.argv[1:]))"
MODULE = """
from dataclasses import dataclass
import gridpriv
from gridpriv.privacy.mechanism import Laplace

class Copied(Laplace):
    pass

gridpriv.register_mechanism("copied", Copied)
"""


@pytest.fixture
def registered() -> Iterator[None]:
    for name, kind in (("copied_laplace", Laplace), ("copied_gaussian", Gaussian)):
        gridpriv.register_mechanism(name, kind)
    yield
    for name in ("copied_laplace", "copied_gaussian"):
        NAMES.remove(name)
        del MECHANISMS[name, "simulated"]


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("copy", "of", "budget", "releases"),
    [
        ("copied_laplace", "laplace", "total:5", 1),
        ("copied_laplace", "laplace", "total:1", 20),
        ("copied_laplace", "laplace", "per-release:0.5", 20),
        ("copied_laplace", "laplace", "total:1,1e-5", 20),
        ("copied_gaussian", "gaussian", "total:1,1e-5", 20),
        ("copied_gaussian", "gaussian", "per-release:1,1e-6", 1),
    ],
)
def test_its_noise_is_that_of_the_mechanism_it_copies(
    copy: str, of: str, budget: str, releases: int
) -> None:
    drawn, own = (
        noise_multiplier(parse_budget(budget), name, "proven", releases, 1e-5)
        for name in (copy, of)
    )
    assert drawn == pytest.approx(own, rel=2e-3)
    assert gridpriv.make_settings(mechanism=copy, budget=budget).mechanism == copy


def test_a_run_and_a_study_take_it_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = tmp_path / "mine.py"
    module.write_text(MODULE)
    run = ["run", "case14", "--rounds", "1", "--planning", "soc", "--seed", "3", "--no-reference"]
    assert main([*run, "--json", "--mechanism", "laplace"]) == 0
    completed = subprocess.run(
        [sys.executable, "-c", COMMAND, *run, "--json", "--mechanism", "copied"],
        env=os.environ | {"GRIDPRIV_PLUGINS": str(module)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    own, copied = map(json.loads, (capsys.readouterr().out, completed))
    totals = [document["privacy"]["total_pure"] for document in (own, copied)]
    assert totals == pytest.approx([5.0, 5.0], rel=1e-6)
    cost, of_copy = (document["final"]["physical"]["cost"] for document in (own, copied))
    assert of_copy == pytest.approx(cost, rel=1e-7)


@dataclass(frozen=True)
class Constant(Laplace):
    """A mechanism whose charge does not follow distance / scale."""

    def charge(self, distance: float) -> Charge:
        return Charge("pure", min(distance, 1.0) / self.scale)


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("laplace", Laplace, "a name that no mechanism has"),
        ("A-b", Laplace, "lower case"),
        ("constant", Constant, "distance / scale only"),
        ("empty", dict.fromkeys, "lacks scale"),
    ],
)
def test_what_is_no_mechanism_is_refused(name: str, kind: object, message: str) -> None:
    given = kind if name != "empty" else (lambda _scale: object())
    with pytest.raises(InputError, match=message):
        gridpriv.register_mechanism(name, given)  # type: ignore[arg-type]
    assert name in ("laplace",) or name not in NAMES


def never(*_: object) -> object:
    raise RuntimeError("bus 7 demands 123.4 MW")


def giving(result: object) -> object:
    return lambda *_: result


def drawing(change: Callable[[np.ndarray], object]) -> object:
    return lambda _self, value, _stream=None: change(value)


FAULTS = [
    ("perturb", drawing(lambda value: value * np.nan), r"perturb\(\) .* NaN or infinite"),
    ("perturb", drawing(lambda value: value[:1]), r"perturb\(\) .* returns shape \(1,\)"),
    ("perturb", giving("noise"), r"perturb\(\) .* returns str"),
    ("perturb", giving(None), r"perturb\(\) .* returns shape \(\)"),
    ("perturb", never, "perturb of .* raises RuntimeError"),
    ("cdf", drawing(lambda x: x * np.nan), r"cdf\(\) .* NaN or infinite"),
    ("cdf", drawing(lambda x: (x < 0).astype(float)), r"cdf\(\) .* decreases"),
    ("cdf", drawing(lambda x: x), r"cdf\(\) .* numbers from 0 to 1"),
    ("cdf", giving(0.5), r"cdf\(\) .* returns shape \(\)"),
    ("cdf", never, "cdf of .* raises RuntimeError"),
    ("cdf", 0.5, "cdf of .* raises TypeError"),
    ("charge", never, "charge of .* raises RuntimeError"),
    ("charge", giving(1.0), r"charge\(\) .* returns float"),
    ("charge", giving(Charge("pure", float("nan"))), r"charge\(\) .* at least 0"),
    ("charge", giving(Charge("pure", -1.0)), r"charge\(\) .* at least 0"),
    ("charge", giving(Charge("made-up", 1.0)), r"charge\(\) .* kind 'made-up'"),
    ("variance", property(never), "variance of .* raises RuntimeError"),
    ("variance", float("nan"), "variance of .* is nan"),
    ("norm", 3, "norm of .* is 3"),
    ("__init__", never, "__init__ of .* raises RuntimeError"),
]
"""A part, what a faulty class has there, and the error."""


@pytest.mark.parametrize(("part", "faulty", "message"), FAULTS)
def test_a_faulty_part_is_an_error_that_names_the_mechanism(part, faulty, message) -> None:
    kind = type("Faulty", (Laplace,), {part: faulty})
    with pytest.raises(InputError, match=message) as error:
        gridpriv.register_mechanism("faulty", kind)
    assert "'faulty'" in str(error.value)
    assert "123.4" not in str(error.value)
    assert "faulty" not in NAMES


LATE = """
import numpy as np
import gridpriv
from gridpriv.privacy.mechanism import Laplace

class Late(Laplace):
    def perturb(self, value, stream):
        return value * (np.nan if {when} else 1.0)

gridpriv.register_mechanism("late", Late)
"""


@pytest.fixture
def late() -> Iterator[None]:
    yield
    NAMES.remove("late")
    del MECHANISMS["late", "simulated"]


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize(
    ("when", "charged"), [("self.scale not in (1.0, 2.0)", False), ("value.size > 100", True)]
)
def test_a_fault_of_a_runs_own_noise_is_an_input_error(
    when: str, charged: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At registration the noise of scales 1 and 2 is valid; a run's scale is tested before charges.

    A fault that appears only in the draw of a long value ends the run alike, after its charge.
    """
    ledger = tmp_path / "ledger.jsonl"
    exec(LATE.format(when=when), {})
    case = "case118" if charged else "case14"
    assert main(["ledger", "grant", str(ledger), "--case", case, "--total", "20"]) == 0
    words = [case, "--zones", "2", "--mechanism", "late", "--release", "bus", "--planning", "soc"]
    assert main(["run", *words, "--ledger", str(ledger), "--no-reference"]) == 2
    text = "perturb() of mechanism 'late' returns NaN or infinite numbers"
    assert text in capsys.readouterr().err
    assert main(["ledger", "export", str(ledger)]) == 0
    account = capsys.readouterr().out
    assert ("laplace" in account) == charged, account


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("name", ["staircase", "copied_laplace"])
def test_secure_noise_is_refused_and_not_advised_without_a_sampler(name: str) -> None:
    with pytest.raises(InputError, match="no secure sampler exists"):
        gridpriv.make_settings(mechanism=name, noise="secure")
    assert "--noise secure" not in noise_caveat("total:5", "simulated", name)
    assert "use --noise secure; no secure" in noise_caveat("total:5", "simulated", "knorm", name)
    total = {"epsilon": 5.0, "delta": 1e-5}
    privacy = {"mechanism": name, "noise": "simulated", "releases_per_zone": 1, "total": total}
    line = privacy_line(
        privacy | {"total_pure": 5.0, "per_release": {"nominal": 5.0, "certified": 5.0}}
    )
    expected = f"Certificate (of the ideal mechanism: no secure sampler exists for {name} noise)"
    assert line.startswith(expected)
