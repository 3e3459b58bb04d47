"""The ledger under refusal and concurrency."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import pickle
import random
import signal
import time
from collections import Counter
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from ledgers import NORTH, SOUTH, TENTH, charge_once, dataset, granted, in_child, spent

from gridpriv.core.errors import BudgetError, InputError
from gridpriv.privacy.accounting import gaussian_multiplier, total_epsilon
from gridpriv.privacy.filters import GrantFilter, RenyiFilter, choose_rule
from gridpriv.privacy.ledger import Ledger, ReleaseCharge, grant, read_book
from gridpriv.privacy.ledger_rows import Account, Unit, now
from gridpriv.privacy.mechanism import Charge, Gaussian, Laplace
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Sensitivity


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A ledger with a pure grant of 1 to each bus of two owners."""
    return granted(tmp_path)


def accounts(path: Path) -> tuple[Account, ...]:
    return read_book(path).accounts


def north(path: Path) -> Account:
    return accounts(path)[0]


def test_charges_up_to_the_grant_and_not_one_more(file: Path) -> None:
    with Ledger(file, [NORTH]) as ledger:
        for _ in range(4):
            ledger.charge("north", "run-1", {TENTH: 2})
        with pytest.raises(BudgetError) as refused:
            ledger.charge("north", "run-2", {TENTH: 3})
        message = str(refused.value)
        for part in (
            "'north'",
            "all 3 buses lack the budget",
            "needs epsilon 0.3 for 3 releases of Laplace or K-norm noise, multiplier 10",
            "left 20 % of epsilon 1",
            "room for 2 more",
            "nothing was charged",
        ):
            assert part in message
        assert refused.value.exit_code == 4
        ledger.charge("north", "run-2", {TENTH: 2})
        with pytest.raises(BudgetError, match="room for 0"):
            ledger.charge("north", "run-2", {TENTH: 1})
    runs = [(entry.run, dict(entry.charges)) for _, entry in read_book(file).charged]
    assert runs == [("run-1", {TENTH: 2})] * 4 + [("run-2", {TENTH: 2})]


def test_a_refusal_names_split_noise_in_words(file: Path) -> None:
    with Ledger(file, [NORTH]) as ledger, pytest.raises(BudgetError, match="on several numbers"):
        ledger.charge("north", "r", {Charge("split-laplace", 0.5, 0.7): 1})


def test_owners_spend_apart(file: Path) -> None:
    with Ledger(file, [NORTH, SOUTH]) as ledger:
        ledger.charge("north", "r", {TENTH: 10})
        ledger.charge("south", "r", {TENTH: 10})
    assert (spent(file), spent(file, "south")) == (10, 10)


def test_an_entry_says_who_when_and_what(file: Path) -> None:
    before, charges = now(), {TENTH: 3, Charge("zcdp", 0.1 + 0.2): 1}
    grant(file, [dataset("west", [9])], 9.0, 1e-5)
    with Ledger(file, [dataset("west", [9])]) as ledger:
        ledger.charge("west", "run-7", charges)
    ((_, entry),) = read_book(file).charged
    assert (entry.owner, entry.run, dict(entry.charges)) == ("west", "run-7", charges)
    assert entry.units == ((5, 5),)
    assert before <= entry.at <= now()
    assert entry.at.endswith("+00:00")


def test_gaussian_noise_needs_a_grant_with_a_delta(file: Path) -> None:
    with Ledger(file, [NORTH]) as ledger, pytest.raises(BudgetError, match="grant with a delta"):
        ledger.charge("north", "r", {Charge("gaussian", 50.0): 1})
    assert spent(file) == 0


def test_with_a_delta_any_charges_compose_and_stay_certified(tmp_path: Path) -> None:
    path = granted(tmp_path, 2.0, 1e-5)
    kinds = [Charge("gaussian", 20.0), TENTH, Charge("gaussian", 8.0), Charge("laplace", 4.0)]
    with Ledger(path, [NORTH]) as ledger, pytest.raises(BudgetError):
        for i in range(1000):
            ledger.charge("north", "r", {kinds[i % 4]: 1})
    account = north(path)
    assert sum(account.spent.values()) > 10
    assert 1.7 < total_epsilon(account.spent, 1e-5) <= 2.0
    assert account.rule == choose_rule(2.0, 1e-5, {kinds[0]: 1})


def test_the_rule_is_that_of_the_first_charge_whoever_opens_the_ledger(tmp_path: Path) -> None:
    path = granted(tmp_path, 2.0, 1e-5)
    for charge in (TENTH, Charge("gaussian", 20.0)):
        with Ledger(path, [NORTH]) as ledger:
            ledger.charge("north", "r", {charge: 1})
        assert north(path).rule == choose_rule(2.0, 1e-5, {TENTH: 1})


def test_a_later_charge_is_refused_by_the_first_rule_though_another_has_room(
    tmp_path: Path,
) -> None:
    """An order chosen after releases were seen is no privacy filter."""
    first, later = {Charge("laplace", 3.0): 1}, {Charge("gaussian", 20.0): 1}
    rule, other = choose_rule(2.0, 1e-5, first), choose_rule(2.0, 1e-5, later)
    assert isinstance(rule, RenyiFilter) and isinstance(other, RenyiFilter)
    while rule.used(later) <= 1.0:
        later = {charge: count + 1 for charge, count in later.items()}
    assert GrantFilter(2.0, other).fits(first | later)
    path = granted(tmp_path, 2.0, 1e-5)
    with Ledger(path, [NORTH]) as ledger:
        ledger.charge("north", "r", first)
        with pytest.raises(BudgetError):
            ledger.charge("north", "r", later)
    assert north(path).rule == rule
    assert north(path).spent == first


def test_a_charge_that_both_filters_refuse_closes_neither(tmp_path: Path) -> None:
    """A release that is refused was not drawn: pure releases fit up to epsilon after it."""
    pure, large = {Charge("laplace", 2.0): 1}, {Charge("gaussian", 1.0): 1}  # pure: 0.5 of 1
    with Ledger(granted(tmp_path, 1.0, 1e-6), [NORTH]) as ledger:
        ledger.charge("north", "r", pure)
        with pytest.raises(BudgetError):  # neither filter has room
            ledger.charge("north", "r", large)
        ledger.charge("north", "r", pure)
        with pytest.raises(BudgetError):
            ledger.charge("north", "r", pure)


def test_secure_noise_is_charged_and_refused_like_any(tmp_path: Path) -> None:
    path = granted(tmp_path, 1.0, 1e-5)
    with Ledger(path, [NORTH]) as ledger:
        ledger.charge("north", "r", {Charge("zcdp", 0.005): 2, Charge("pure", 0.02): 3})
        with pytest.raises(
            BudgetError, match=r"needs epsilon .* for 40 releases of pure epsilon 0\.1"
        ):
            ledger.charge("north", "r", {Charge("pure", 0.1): 40})
    assert spent(path) == 5


# Plans


def planned_run(epsilon: float, delta: float, releases: int) -> dict[Charge, int]:
    return {Charge("gaussian", gaussian_multiplier(epsilon, delta, releases)): releases}


def test_a_run_planned_at_the_whole_grant_is_charged_to_its_end(tmp_path: Path) -> None:
    path = granted(tmp_path, 1.0, 1e-5)
    plan = planned_run(1.0, 1e-5, 20)
    (charge,) = plan
    with Ledger(path, [NORTH]) as ledger:
        ledger.plan({"north": plan})
        assert spent(path) == 0
        for _ in range(20):
            ledger.charge("north", "r", {charge: 1})
        with pytest.raises(BudgetError, match="the plan of its first run"):
            ledger.charge("north", "r", {charge: 1})
    assert north(path).total == pytest.approx(1.0, rel=1e-7)


def test_without_its_plan_the_same_run_is_refused_before_its_end(tmp_path: Path) -> None:
    """The filter for releases chosen as one goes costs more: that is why runs state their plan."""
    path = granted(tmp_path, 1.0, 1e-5)
    (charge,) = planned_run(1.0, 1e-5, 20)
    with Ledger(path, [NORTH]) as ledger, pytest.raises(BudgetError):
        for _ in range(20):
            ledger.charge("north", "r", {charge: 1})
    assert 10 < spent(path) < 20


def test_a_plan_that_does_not_fit_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    path = granted(tmp_path, 1.0, 1e-5)
    with Ledger(path, [NORTH, SOUTH]) as ledger:
        too_much = {"north": planned_run(1.0, 1e-5, 20), "south": planned_run(1.1, 1e-5, 20)}
        with pytest.raises(BudgetError, match=r"'south'.*the run was not started"):
            ledger.plan(too_much)
    assert [account.rule for account in accounts(path)] == [None, None]
    assert read_book(path).charged == []


def test_a_plan_never_charged_binds_nobody(tmp_path: Path) -> None:
    path = granted(tmp_path, 1.0, 1e-5)
    with Ledger(path, [NORTH]) as ledger:
        ledger.plan({"north": planned_run(1.0, 1e-5, 20)})
        ledger.charge("north", "another run", {TENTH: 1})
    assert north(path).rule == choose_rule(1.0, 1e-5, {TENTH: 1})


def test_a_plan_after_charges_is_held_against_what_is_left(tmp_path: Path) -> None:
    path = granted(tmp_path, 1.0, 1e-5)
    plan = planned_run(1.0, 1e-5, 20)
    (charge,) = plan
    with Ledger(path, [NORTH]) as ledger:
        ledger.plan({"north": plan})
        ledger.charge("north", "died", {charge: 5})
        with pytest.raises(BudgetError, match="room for 15 more"):
            ledger.plan({"north": plan})
        ledger.plan({"north": {charge: 15}})


# Refusals


def test_a_ledger_of_other_data_is_refused(file: Path) -> None:
    first, *rest = NORTH.units
    changed = replace(NORTH, units=(replace(first, record=b"other"), *rest))
    with pytest.raises(InputError, match="1 of the 3 buses of 'north' is for other data"):
        charge_once(file, changed)
    assert spent(file) == 0


def test_units_without_a_grant_are_refused(file: Path) -> None:
    with pytest.raises(BudgetError, match="no grant for 2 of the 3 buses of 'west'"):
        Ledger(file, [dataset("west", (1, 8, 9))])
    with Ledger(file, [NORTH]) as ledger:
        for owner in ("west", "south"):
            with pytest.raises(InputError, match="not a dataset of this run"):
                ledger.charge(owner, "r", {TENTH: 1})
    assert read_book(file).charged == []


def test_units_in_two_datasets_are_refused(file: Path, tmp_path: Path) -> None:
    for twice in ([NORTH, dataset("west", (3, 9))], [dataset("west", (9, 9))]):
        with pytest.raises(InputError, match="is in two datasets"):
            Ledger(file, twice)
        with pytest.raises(InputError, match="is in two datasets"):
            grant(tmp_path / "other", twice, 1.0)
    with pytest.raises(InputError, match="no buses"):
        grant(tmp_path / "other", [dataset("west", ())], 1.0)
    assert not (tmp_path / "other").exists()


def test_a_ledger_locked_too_long_is_refused_and_charged_later(file: Path) -> None:
    with file.open() as holder, Ledger(file, [NORTH], timeout=0.2) as ledger:
        fcntl.flock(holder, fcntl.LOCK_SH)
        began = time.monotonic()
        with pytest.raises(InputError, match="locked by another process"):
            ledger.charge("north", "r", {TENTH: 1})
        assert 0.1 < time.monotonic() - began < 5.0
        assert spent(file) == 0  # readers share it
        fcntl.flock(holder, fcntl.LOCK_UN)
        ledger.charge("north", "r", {TENTH: 1})
    assert spent(file) == 1


def test_a_charge_that_means_nothing_is_refused(file: Path) -> None:
    bad = [
        {Charge("laplace", -1.0): 1},
        {TENTH: -5},
        {Charge("noise", 1.0): 1},
        {Charge("uncertified", 1.0): 1},
        {Charge("approximate", 1.0, 1.5): 1},
        {},
    ]
    with Ledger(file, [NORTH]) as ledger:
        for charges in bad:
            with pytest.raises(InputError):
                ledger.charge("north", "r", charges)
    assert spent(file) == 0


def test_grants_are_made_once_and_all_or_none(file: Path, tmp_path: Path) -> None:
    for again in (dataset("west", (9, 3)), dataset("renamed", (1,))):
        with pytest.raises(InputError, match="have a grant already; nothing was granted"):
            grant(file, [again], 9.0)
    assert [(a.owner, a.units, a.grant.epsilon) for a in accounts(file)] == [
        ("north", 3, 1.0),
        ("south", 2, 1.0),
    ]
    grant(file, [dataset("west", (9,))], 9.0, 1e-6)
    assert accounts(file)[2].grant.epsilon == 9.0
    for epsilon, delta in ((0.0, 0.0), (float("nan"), 0.0), (1.0, 1.0), (1.0, -1e-9)):
        with pytest.raises(InputError):
            grant(tmp_path / "bad", [NORTH], epsilon, delta)
    assert not (tmp_path / "bad").exists()


def test_names_of_any_characters_are_kept(tmp_path: Path) -> None:
    odd = 'Süd "1"\n\\ \x00 \ud800 \U0001f50b'
    path = tmp_path / odd.replace("\0", "").replace("\ud800", "")
    owner = replace(NORTH, owner=odd, units=(Unit(odd, b"\0"),))
    grant(path, [owner], 1.0)
    charge_once(path, owner)
    assert [a.owner for a in accounts(path)] == [odd]
    assert path.read_bytes().isascii()


# Agents


def test_an_agent_charges_its_certified_releases_before_its_message(file: Path) -> None:
    """Under the published sensitivity the certified cost is charged, not the nominal one."""
    release = Release(Laplace(scale=1.0), Sensitivity(0.2, 1, "test"), assumed=0.02)
    with Ledger(file, [NORTH]) as ledger:
        charge = ReleaseCharge(ledger, "run-3")
        charge("north", {release: 4})
        with pytest.raises(BudgetError):
            charge("north", {release: 2})
    ((_, entry),) = read_book(file).charged
    assert (entry.run, entry.charges) == ("run-3", ((Charge("laplace", 5.0), 4),))


def test_releases_of_one_cost_are_charged_as_one(file: Path) -> None:
    first = Release(Laplace(1.0), Sensitivity(0.1, 1, "a"), 0.1)
    second = Release(Laplace(2.0), Sensitivity(0.2, 1, "b"), 0.2)
    with Ledger(file, [NORTH]) as ledger:
        ReleaseCharge(ledger, "r")("north", {first: 1, second: 2})
    ((_, entry),) = read_book(file).charged
    assert entry.charges == ((Charge("laplace", 10.0), 3),)


def test_a_planned_run_that_does_not_fit_does_not_start(file: Path) -> None:
    gaussian = Release(Gaussian(1.0), Sensitivity(0.1, 2, "a"), 0.1)
    for planned in ({TENTH: 11}, {gaussian.certified: 1}):
        with Ledger(file, [NORTH]) as ledger, pytest.raises(BudgetError, match="not started"):
            ledger.plan({"north": planned})
    assert spent(file) == 0


# Concurrency


def test_a_forked_and_an_unpickled_ledger_charge_the_same_file(file: Path) -> None:
    with Ledger(file, [NORTH]) as ledger:
        ledger.charge("north", "parent", {TENTH: 1})
        assert in_child(lambda: ledger.charge("north", "child", {TENTH: 2})) == 0
        pickle.loads(pickle.dumps(ledger)).charge("north", "copy", {TENTH: 4})
        ledger.charge("north", "parent", {TENTH: 3})
        with pytest.raises(BudgetError):
            ledger.charge("north", "parent", {TENTH: 1})
    runs = [(entry.run, entry.charges[0][1]) for _, entry in read_book(file).charged]
    assert runs == [("parent", 1), ("child", 2), ("copy", 4), ("parent", 3)]


def die_at_write(number: int) -> None:
    """Kill this process before its ``number``-th write to the ledger, a head or a row."""
    pwrite, seen = os.pwrite, 0

    def counting(handle: int, content: bytes, offset: int) -> int:
        nonlocal seen
        seen += 1
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return pwrite(handle, content, offset)

    os.pwrite = counting


def worker(
    path: Path, number: int, charge: Charge, asks: int, death: int | None, fallen: Event
) -> None:
    """Charge ``asks`` times; log a release only after its charge returned.

    Workers that do not end by themselves pause. Otherwise they might spend the grant on a busy
    machine before the others reach their last charge. Those killed from outside pause after 10,
    for good, and the surviving ones after 12. The two that end within a charge make at most 7 and
    12 (a charge writes twice), so the sum is at most 87.
    """
    pause = 12 if number >= 4 else 10 if number >= 2 else asks
    with Ledger(path, [NORTH], timeout=300.0) as ledger:
        if death is not None:
            die_at_write(death)
        with Path(f"{path}.log{number}").open("ab", buffering=0) as log:
            for i in range(asks):
                if i == pause and number < 4:
                    signal.pause()  # not the event: one killed while it waits leaves it locked
                elif i == pause:
                    assert fallen.wait(timeout=300.0)
                try:
                    ledger.charge("north", f"run-{number}", {charge: 1})
                except BudgetError:
                    log.write(b"-")
                else:
                    log.write(b"+")


def charge_at_once(path: Path, charge: Charge, allowed: int, asks: int) -> None:
    """Eight processes charge at once: two die in a charge, two are killed, four live."""
    deaths = {0: 13, 1: 24}
    context = multiprocessing.get_context("fork")
    fallen = context.Event()
    processes = [
        context.Process(target=worker, args=(path, i, charge, asks, deaths.get(i), fallen))
        for i in range(8)
    ]
    for process in processes:
        process.start()
    doomed = {2: 4, 3: 9}
    deadline = time.monotonic() + 300.0
    while doomed and time.monotonic() < deadline:
        for i, releases in list(doomed.items()):
            log = Path(f"{path}.log{i}")
            if log.exists() and log.stat().st_size >= releases:
                processes[i].kill()
                del doomed[i]
    for process in processes[:4]:
        process.join(timeout=300.0)
    fallen.set()
    for process in processes[4:]:
        process.join(timeout=300.0)
    codes = [process.exitcode for process in processes]
    assert codes == [-signal.SIGKILL] * 4 + [0] * 4

    charged = dict.fromkeys(range(8), 0)
    for _, entry in read_book(path).charged:
        charged[int(entry.run.removeprefix("run-"))] += sum(n for _, n in entry.charges)
    for i in range(8):
        left = Path(f"{path}.log{i}").read_bytes().count(b"+")
        assert left <= charged[i] <= left + (i < 4)
    requested = 4 * asks + sum(charged[i] for i in range(4))
    assert sum(charged.values()) == min(allowed, requested)  # never above, and nothing was lost
    account = north(path)
    assert sum(account.spent.values()) == sum(charged.values())
    assert account.filter.fits(account.spent)
    assert account.total <= account.grant.epsilon * (1.0 + 1e-9)


@pytest.mark.parametrize(
    ("delta", "charge"), [(0.0, Charge("laplace", 120.0)), (1e-5, Charge("gaussian", 40.0))]
)
def test_eight_processes_some_killed_never_overspend(
    tmp_path: Path, delta: float, charge: Charge
) -> None:
    path = granted(tmp_path, 1.0, delta)
    rule = choose_rule(1.0, delta, {charge: 1})
    allowed = 120 if rule is None else int(1.0 / rule.used({charge: 1}))
    assert 90 <= allowed <= 150  # the survivors alone ask for more
    charge_at_once(path, charge, allowed, asks=45)


@pytest.mark.slow
@pytest.mark.parametrize("allowed", [1500, 100_000])
def test_eight_processes_of_five_hundred_charges_are_exact(tmp_path: Path, allowed: int) -> None:
    """With a grant that they would pass, and with one that has room for all."""
    path = granted(tmp_path, 1.0)
    charge_at_once(path, Charge("laplace", float(allowed)), allowed, asks=500)


def charge_and_log(path: Path, number: int) -> None:
    with Ledger(path, [NORTH]) as ledger, Path(f"{path}.log{number}").open("ab", 0) as log:
        for _ in range(30):
            ledger.charge("north", f"run-{number}", {TENTH: 1})
            log.write(b"+")


@pytest.mark.slow
def test_fifty_random_schedules_of_kills_are_exact(tmp_path: Path) -> None:
    """Four processes, each killed at a random charge or not at all; then a fifth continues."""
    dice = random.Random(11)
    context = multiprocessing.get_context("fork")
    killed = 0
    for schedule in range(50):
        (tmp_path / str(schedule)).mkdir()
        path = granted(tmp_path / str(schedule), 100.0)
        processes = [context.Process(target=charge_and_log, args=(path, i)) for i in range(4)]
        for process in processes:
            process.start()
        for i in dice.sample(range(4), dice.randrange(1, 5)):
            log, charges = Path(f"{path}.log{i}"), dice.randrange(30)
            while (
                processes[i].is_alive() and len(log.read_bytes() if log.exists() else b"") < charges
            ):
                time.sleep(dice.uniform(0.0, 0.002))
            processes[i].kill()
        for process in processes:
            process.join(timeout=60.0)
            killed += process.exitcode == -signal.SIGKILL
        charged = Counter(entry.run for _, entry in read_book(path).charged)
        for i, process in enumerate(processes):
            log = Path(f"{path}.log{i}")
            reported = len(log.read_bytes()) if log.exists() else 0
            assert reported <= charged[f"run-{i}"] <= reported + (process.exitcode != 0)
            assert process.exitcode != 0 or reported == 30
        charge_once(path)
        assert spent(path) == sum(charged.values()) + 1
    assert killed > 50


def test_a_lock_dies_with_its_holder(file: Path) -> None:
    def hold() -> None:
        handle = os.open(file, os.O_RDWR)
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(hold) == -signal.SIGKILL
    charge_once(file, timeout=0.0)
    assert spent(file) == 1


def test_a_refused_gaussian_release_names_the_reason_and_a_step_that_works(tmp_path: Path) -> None:
    file = granted(tmp_path, epsilon=5.0, delta=1e-5)
    with Ledger(file, [NORTH]) as ledger:
        ledger.charge("north", "run-1", {Charge("pure", 1.0): 1})
        with pytest.raises(BudgetError) as refused:
            ledger.charge("north", "run-2", {Charge("gaussian", 2.23048): 1})
        requested = "for 1 release of Gaussian noise, multiplier 2.23048, left 80 % of epsilon 5"
        assert f"if fixed in advance {requested}" in str(refused.value)
        assert "the sum of pure epsilons or a Renyi filter" in str(refused.value)
        assert "Request pure noise (such as laplace) of epsilon 4 or less" in str(refused.value)
        ledger.charge("north", "run-3", {Charge("pure", 4.0): 1})
