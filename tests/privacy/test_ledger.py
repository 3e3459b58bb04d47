"""The ledger under refusal, crash and concurrency."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from gridpriv.core.errors import BudgetError, GridprivError, InputError
from gridpriv.grid.library import load_case, shipped_zoning
from gridpriv.privacy import ledger_file
from gridpriv.privacy.accounting import gaussian_multiplier, total_epsilon
from gridpriv.privacy.adjacency import DemandAdjacency
from gridpriv.privacy.filters import choose_rule
from gridpriv.privacy.ledger import Ledger, grant, ledger_charge
from gridpriv.privacy.ledger_rows import Dataset, read_accounts, read_entries, zone_datasets
from gridpriv.privacy.mechanism import Charge, Gaussian, Laplace
from gridpriv.privacy.release import Release
from gridpriv.privacy.sensitivity import Sensitivity

OWN = Dataset("north", "0123", "one bus changes by at most 0.01 p.u.")
OTHER = Dataset("south", "4567", OWN.adjacency)
TENTH = Charge("laplace", 10.0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A ledger with a pure grant of 1 to each of two owners."""
    grant(tmp_path / "ledger.db", [OWN, OTHER], 1.0)
    return tmp_path / "ledger.db"


def spent(path: Path, owner: str = "north") -> int:
    return sum(entry.count for entry in read_entries(path) if entry.owner == owner)


def test_charges_up_to_the_grant_and_not_one_more(file: Path) -> None:
    with Ledger(file, [OWN]) as ledger:
        for _ in range(4):
            ledger.charge("north", "run-1", {TENTH: 2})
        with pytest.raises(BudgetError) as refused:
            ledger.charge("north", "run-2", {TENTH: 3})
        message = str(refused.value)
        for part in ("granted epsilon 1", "spent 80 %", "epsilon 0.8", "asked 3 of laplace 10",
                     "epsilon 1.1", "left 20 %", "room for 2 more"):  # fmt: skip
            assert part in message
        assert refused.value.exit_code == 4
        ledger.charge("north", "run-2", {TENTH: 2})
        with pytest.raises(BudgetError, match="room for 0"):
            ledger.charge("north", "run-2", {TENTH: 1})
    assert [(e.run, e.count) for e in read_entries(file)] == [("run-1", 2)] * 4 + [("run-2", 2)]


def test_owners_spend_apart(file: Path) -> None:
    with Ledger(file, [OWN, OTHER]) as ledger:
        ledger.charge("north", "r", {TENTH: 10})
        ledger.charge("south", "r", {TENTH: 10})
    assert (spent(file), spent(file, "south")) == (10, 10)


def test_an_entry_says_who_when_and_what(file: Path) -> None:
    before = ledger_file.now()
    with Ledger(file, [OWN]) as ledger:
        ledger.charge("north", "run-7", {TENTH: 3, Charge("pure", 0.05): 1})
    entries = read_entries(file)
    assert [(e.owner, e.run, e.kind, e.parameter, e.count) for e in entries] == [
        ("north", "run-7", "laplace", 10.0, 3),
        ("north", "run-7", "pure", 0.05, 1),
    ]
    assert all(before <= e.charged_at <= ledger_file.now() for e in entries)
    assert entries[0].charged_at.endswith("+00:00")


def test_gaussian_noise_needs_a_grant_with_a_delta(file: Path) -> None:
    with Ledger(file, [OWN]) as ledger, pytest.raises(BudgetError, match="grant with a delta"):
        ledger.charge("north", "r", {Charge("gaussian", 50.0): 1})
    assert spent(file) == 0


def test_with_a_delta_any_charges_compose_and_stay_certified(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    grant(path, [OWN], 2.0, 1e-5)
    kinds = [Charge("gaussian", 20.0), TENTH, Charge("gaussian", 8.0), Charge("laplace", 4.0)]
    with Ledger(path, [OWN]) as ledger, pytest.raises(BudgetError):
        for i in range(1000):
            ledger.charge("north", "r", {kinds[i % 4]: 1})
    account = read_accounts(path)[0]
    assert sum(account.spent.values()) > 10
    assert 1.7 < total_epsilon(account.spent, 1e-5) <= 2.0
    assert account.rule == choose_rule(2.0, 1e-5, {kinds[0]: 1})


def test_the_rule_is_that_of_the_first_charge_whoever_opens_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    grant(path, [OWN], 2.0, 1e-5)
    for charge in (TENTH, Charge("gaussian", 20.0)):
        with Ledger(path, [OWN]) as ledger:
            ledger.charge("north", "r", {charge: 1})
        assert read_accounts(path)[0].rule == choose_rule(2.0, 1e-5, {TENTH: 1})


def test_secure_noise_is_charged_and_refused_like_any(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    grant(path, [OWN], 1.0, 1e-5)
    with Ledger(path, [OWN]) as ledger:
        ledger.charge("north", "r", {Charge("zcdp", 0.005): 2, Charge("pure", 0.02): 3})
        with pytest.raises(BudgetError, match=r"asked 40 of pure 0\.1"):
            ledger.charge("north", "r", {Charge("pure", 0.1): 40})
    assert spent(path) == 5


# Plans


def planned_run(epsilon: float, delta: float, releases: int) -> dict[Charge, int]:
    return {Charge("gaussian", gaussian_multiplier(epsilon, delta, releases)): releases}


def test_a_run_planned_at_the_whole_grant_is_charged_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    grant(path, [OWN], 1.0, 1e-5)
    plan = planned_run(1.0, 1e-5, 20)
    (charge,) = plan
    with Ledger(path, [OWN]) as ledger:
        ledger.plan({"north": plan})
        assert spent(path) == 0
        for _ in range(20):
            ledger.charge("north", "r", {charge: 1})
        with pytest.raises(BudgetError, match="the plan of its first run"):
            ledger.charge("north", "r", {charge: 1})
    assert read_accounts(path)[0].total == pytest.approx(1.0, rel=1e-7)


def test_without_its_plan_the_same_run_is_refused_before_its_end(tmp_path: Path) -> None:
    """The filter for releases chosen as one goes costs more: that is why runs state their plan."""
    path = tmp_path / "l.db"
    grant(path, [OWN], 1.0, 1e-5)
    (charge,) = planned_run(1.0, 1e-5, 20)
    with Ledger(path, [OWN]) as ledger, pytest.raises(BudgetError):
        for _ in range(20):
            ledger.charge("north", "r", {charge: 1})
    assert 10 < spent(path) < 20


def test_a_plan_that_does_not_fit_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    grant(path, [OWN, OTHER], 1.0, 1e-5)
    with Ledger(path, [OWN, OTHER]) as ledger:
        too_much = {"north": planned_run(1.0, 1e-5, 20), "south": planned_run(1.1, 1e-5, 20)}
        with pytest.raises(BudgetError, match=r"'south'.*the run was not started"):
            ledger.plan(too_much)
    assert [account.rule for account in read_accounts(path)] == [None, None]
    assert read_entries(path) == ()


def test_a_plan_never_charged_binds_nobody(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    grant(path, [OWN], 1.0, 1e-5)
    with Ledger(path, [OWN]) as ledger:
        ledger.plan({"north": planned_run(1.0, 1e-5, 20)})
        ledger.charge("north", "another run", {TENTH: 1})
    assert read_accounts(path)[0].rule == choose_rule(1.0, 1e-5, {TENTH: 1})


def test_a_plan_after_charges_is_held_against_what_is_left(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    grant(path, [OWN], 1.0, 1e-5)
    plan = planned_run(1.0, 1e-5, 20)
    (charge,) = plan
    with Ledger(path, [OWN]) as ledger:
        ledger.plan({"north": plan})
        ledger.charge("north", "died", {charge: 5})
        with pytest.raises(BudgetError, match="room for 15 more"):
            ledger.plan({"north": plan})
        ledger.plan({"north": {charge: 15}})


# Refusals


def in_process_without_rights(act: Callable[[], None]) -> str:
    """Return the message of the refusal of ``act`` for a user who may not write the file."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setegid(65534)
                os.seteuid(65534)
            act()
            os.write(sending, b"no refusal")
        except GridprivError as error:
            os.write(sending, str(error).encode())
        except BaseException as error:
            os.write(sending, f"traceback {error!r}".encode())
        finally:
            os._exit(0)
    os.close(sending)
    with os.fdopen(receiving) as pipe:
        message = pipe.read()
    os.waitpid(child, 0)
    return message


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that other users may enter, unlike pytest's."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def charge_once(path: Path, dataset: Dataset = OWN, timeout: float = 30.0) -> None:
    with Ledger(path, [dataset], timeout) as ledger:
        ledger.charge("north", "r", {TENTH: 1})


@pytest.mark.parametrize("folder_mode", [0o755, 0o555, 0o777])
def test_a_read_only_ledger_is_refused(public_folder: Path, folder_mode: int) -> None:
    path = public_folder / "ledger.db"
    grant(path, [OWN], 1.0)
    path.chmod(stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH)
    public_folder.chmod(folder_mode)
    message = in_process_without_rights(lambda: charge_once(path))
    assert "read-only" in message
    assert "nothing" in message
    public_folder.chmod(0o755)
    assert spent(path) == 0


def test_a_read_only_ledger_can_still_be_shown(public_folder: Path) -> None:
    path = public_folder / "ledger.db"
    grant(path, [OWN], 1.0)
    charge_once(path)
    path.chmod(0o444)
    public_folder.chmod(0o555)

    def show() -> None:
        raise InputError(f"read {sum(read_accounts(path)[0].spent.values())} release")

    assert in_process_without_rights(show) == "read 1 release"


def write_garbage(path: Path) -> None:
    path.write_bytes(b"no database " * 1000)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def another_database(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE grants (owner, epsilon)")


def damage_pages(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    for page in range(1, len(whole) // 4096):
        whole[4096 * page : 4096 * page + 200] = os.urandom(200)
    path.write_bytes(whole)


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 3 * 4096 - 100)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (write_garbage, "not a gridpriv ledger"),
        (empty, "not a gridpriv ledger"),
        (another_database, "not a gridpriv ledger"),
        (damage_pages, "corrupt"),
        (cut_short, "corrupt"),
        (Path.unlink, "there is no ledger"),
    ],
)
def test_a_file_that_is_no_whole_ledger_is_refused(
    file: Path, spoil: Callable[[Path], None], told: str
) -> None:
    charge_once(file)
    spoil(file)
    before = file.read_bytes() if file.exists() else None
    for act in (lambda: charge_once(file), lambda: read_accounts(file)):
        with pytest.raises(InputError, match=told) as refused:
            act()
        assert refused.value.exit_code == 2
    assert (file.read_bytes() if file.exists() else None) == before


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        charge_once(tmp_path)
    with pytest.raises(InputError, match="no folder"):
        grant(tmp_path / "absent" / "l.db", [OWN], 1.0)


def test_a_ledger_of_other_data_is_refused(file: Path) -> None:
    with pytest.raises(InputError, match="for other data"):
        charge_once(file, replace(OWN, digest="other"))
    with pytest.raises(InputError, match="protects"):
        charge_once(file, replace(OWN, adjacency="one bus changes by at most 0.02 p.u."))
    assert spent(file) == 0


def test_an_owner_without_a_grant_is_refused(file: Path) -> None:
    with pytest.raises(BudgetError, match="no grant of 'west'"):
        Ledger(file, [Dataset("west", "0123", OWN.adjacency)])
    with Ledger(file, [OWN]) as ledger:
        with pytest.raises(BudgetError, match="no grant of 'west'"):
            ledger.charge("west", "r", {TENTH: 1})
        with pytest.raises(InputError, match="not a dataset of this run"):
            ledger.charge("south", "r", {TENTH: 1})
    assert read_entries(file) == ()


def test_a_ledger_locked_too_long_is_refused_and_charged_later(file: Path) -> None:
    holder = sqlite3.connect(file, isolation_level=None)
    with Ledger(file, [OWN], timeout=0.2) as ledger:
        holder.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with pytest.raises(InputError, match="locked by another process"):
            ledger.charge("north", "r", {TENTH: 1})
        assert 0.1 < time.monotonic() - began < 5.0
        holder.execute("ROLLBACK")
        ledger.charge("north", "r", {TENTH: 1})
    holder.close()
    assert spent(file) == 1


def test_a_ledger_replaced_during_the_run_is_refused(file: Path) -> None:
    copy = file.with_name("copy.db")
    shutil.copy(file, copy)
    with Ledger(file, [OWN]) as ledger:
        ledger.charge("north", "r", {TENTH: 1})
        copy.replace(file)
        with pytest.raises(InputError, match="moved or replaced"):
            ledger.charge("north", "r", {TENTH: 1})
        file.unlink()
        with pytest.raises(InputError):
            ledger.charge("north", "r", {TENTH: 1})


def test_a_charge_that_means_nothing_is_refused(file: Path) -> None:
    with Ledger(file, [OWN]) as ledger:
        for charges in ({Charge("laplace", -1.0): 1}, {TENTH: -5}, {Charge("noise", 1.0): 1}):
            with pytest.raises(InputError):
                ledger.charge("north", "r", charges)
    assert spent(file) == 0


def test_grants_are_made_once_and_all_or_none(file: Path, tmp_path: Path) -> None:
    west = Dataset("west", "89", OWN.adjacency)
    with pytest.raises(InputError, match="has a grant already; nothing was granted"):
        grant(file, [west, OWN], 9.0)
    assert [(a.owner, a.epsilon) for a in read_accounts(file)] == [("north", 1.0), ("south", 1.0)]
    grant(file, [west], 9.0, 1e-6)
    assert read_accounts(file)[2].epsilon == 9.0
    for epsilon, delta in ((0.0, 0.0), (float("nan"), 0.0), (1.0, 1.0), (1.0, -1e-9)):
        with pytest.raises(InputError):
            grant(tmp_path / "bad.db", [OWN], epsilon, delta)
    assert not (tmp_path / "bad.db").exists()


def test_rows_cannot_be_changed_or_removed(file: Path) -> None:
    charge_once(file)
    with sqlite3.connect(file) as db:
        for statement in ("UPDATE charges SET count = 1", "DELETE FROM charges",
                          "UPDATE grants SET epsilon = 99", "DELETE FROM grants"):  # fmt: skip
            with pytest.raises(sqlite3.DatabaseError, match="append-only"):
                db.execute(statement)


def test_the_file_does_not_tell_the_data_apart_without_its_key(file: Path, tmp_path: Path) -> None:
    """The digest of guessable data must not be stored, nor a mark that is alike elsewhere."""
    grant(tmp_path / "second.db", [OWN], 1.0)
    marks = {read_accounts(path)[0].dataset for path in (file, tmp_path / "second.db")}
    assert len(marks) == 2
    assert OWN.digest not in repr(OWN)
    secret = Dataset("north", "a" * 64, OWN.adjacency)
    grant(tmp_path / "third.db", [secret], 1.0)
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("third.db*"))
    assert b"a" * 64 not in stored


# Cases and agents


def test_a_zone_is_known_by_its_own_demand() -> None:
    case = load_case("case14")
    zoning = shipped_zoning(case)
    assert zoning is not None
    adjacency = DemandAdjacency(0.01)
    digests = [d.digest for d in zone_datasets(case, zoning, adjacency)]
    assert len(set(digests)) == zoning.n_zone
    outage = case.without(("gen:2", "branch:1"))
    assert [d.digest for d in zone_datasets(outage, zoning, adjacency)] == digests
    changed = case.pd.copy()
    bus = int(zoning.members[1][0])
    changed[bus] += 1e-9
    moved = [d.digest for d in zone_datasets(replace(case, pd=changed), zoning, adjacency)]
    assert [a == b for a, b in zip(moved, digests, strict=True)] == [
        zone != 1 for zone in range(zoning.n_zone)
    ]


def test_an_agent_charges_its_certified_releases_before_its_message(file: Path) -> None:
    """Under the paper's calibration what is charged is the sound cost, not the claimed one."""
    release = Release(Laplace(scale=1.0), Sensitivity(0.2, 1, "test"), assumed=0.02)
    with Ledger(file, [OWN]) as ledger:
        charge = ledger_charge(ledger, "run-3")
        charge("north", {release: 4})
        with pytest.raises(BudgetError):
            charge("north", {release: 2})
    (entry,) = read_entries(file)
    assert (entry.run, entry.kind, entry.parameter, entry.count) == ("run-3", "laplace", 5.0, 4)


def test_releases_of_one_cost_are_charged_as_one(file: Path) -> None:
    first = Release(Laplace(1.0), Sensitivity(0.1, 1, "a"), 0.1)
    second = Release(Laplace(2.0), Sensitivity(0.2, 1, "b"), 0.2)
    with Ledger(file, [OWN]) as ledger:
        ledger_charge(ledger, "r")("north", {first: 1, second: 2})
    assert [(e.parameter, e.count) for e in read_entries(file)] == [(10.0, 3)]


def test_a_planned_run_that_does_not_fit_does_not_start(file: Path) -> None:
    with Ledger(file, [OWN]) as ledger, pytest.raises(BudgetError, match="not started"):
        ledger_charge(ledger, "r", planned={"north": {TENTH: 11}})
    gaussian = Release(Gaussian(1.0), Sensitivity(0.1, 2, "a"), 0.1)
    with Ledger(file, [OWN]) as ledger, pytest.raises(BudgetError, match="not started"):
        ledger_charge(ledger, "r", planned={"north": {gaussian.certified: 1}})
    assert spent(file) == 0


# Crashes and concurrency


def die_at(ledger: Ledger, verb: str, number: int = 1) -> None:
    """Kill this process when SQLite is about to run its ``number``-th statement of a kind."""
    (db, _) = next(iter(ledger._opened.values()))
    seen = 0

    def watch(statement: str) -> None:
        nonlocal seen
        seen += statement.startswith(verb)
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)

    db.set_trace_callback(watch)


def fork_and_wait(act: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            act()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("verb", ["BEGIN", "SELECT kind", "INSERT INTO charges", "COMMIT"])
def test_a_crash_inside_a_charge_leaves_a_valid_ledger(file: Path, verb: str) -> None:
    charge_once(file)

    def crash() -> None:
        ledger = Ledger(file, [OWN])
        ledger.charge("north", "dies", {TENTH: 2})
        die_at(ledger, verb)
        ledger.charge("north", "dies", {TENTH: 3})

    assert fork_and_wait(crash) == -signal.SIGKILL
    assert spent(file) == 3
    with Ledger(file, [OWN]) as ledger:
        ledger.charge("north", "after", {TENTH: 7})
        with pytest.raises(BudgetError):
            ledger.charge("north", "after", {TENTH: 1})


def test_a_log_torn_by_power_loss_loses_only_what_was_not_committed(file: Path) -> None:
    torn = file.with_name("torn.db")
    with Ledger(file, [OWN]) as ledger:
        for _ in range(5):
            ledger.charge("north", "r", {TENTH: 1})
        log = Path(f"{file}-wal").read_bytes()
        shutil.copy(file, torn)
    Path(f"{torn}-wal").write_bytes(log[:-1000])
    assert spent(torn) == 4
    with Ledger(torn, [OWN]) as ledger:
        ledger.charge("north", "r", {TENTH: 6})
    assert spent(torn) == 10


def test_a_charge_is_synced_to_disk(file: Path) -> None:
    with Ledger(file, [OWN]) as ledger:
        db = ledger._connection()
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_forked_process_charges_through_its_own_connection(file: Path) -> None:
    with Ledger(file, [OWN]) as ledger:
        ledger.charge("north", "parent", {TENTH: 1})
        assert fork_and_wait(lambda: ledger.charge("north", "child", {TENTH: 2})) == 0
        ledger.charge("north", "parent", {TENTH: 3})
    assert [(e.run, e.count) for e in read_entries(file)] == [
        ("parent", 1), ("child", 2), ("parent", 3),
    ]  # fmt: skip


def worker(
    path: Path, number: int, charge: Charge, death: tuple[str, int] | None, fallen: Event
) -> None:
    """Charge 100 times; log a release only after its charge returned.

    Those that will live pause after 20, or on a busy machine they might spend the grant before
    the others have come to the charge they die in.
    """
    with Ledger(path, [OWN], timeout=60.0) as ledger:
        if death is not None:
            die_at(ledger, *death)
        with Path(f"{path}.log{number}").open("ab", buffering=0) as log:
            for i in range(100):
                if number >= 4 and i == 20:
                    assert fallen.wait(timeout=60.0)
                try:
                    ledger.charge("north", f"run-{number}", {charge: 1})
                except BudgetError:
                    log.write(b"-")
                else:
                    log.write(b"+")
                time.sleep(0.002)


@pytest.mark.parametrize(("delta", "charge"), [(0.0, Charge("laplace", 300.0)),
                                               (1e-5, Charge("gaussian", 60.0))])  # fmt: skip
def test_eight_processes_some_killed_never_overspend(
    tmp_path: Path, delta: float, charge: Charge
) -> None:
    path = tmp_path / "ledger.db"
    grant(path, [OWN], 1.0, delta)
    rule = choose_rule(1.0, delta, {charge: 1})
    allowed = 300 if rule is None else int(1.0 / rule.used({charge: 1}))
    assert 200 <= allowed <= 300  # the survivors alone ask for more
    # two die inside a transaction, two are killed from outside, four live
    deaths = {0: ("INSERT INTO charges", 7), 1: ("COMMIT", 12)}
    context = multiprocessing.get_context("fork")
    fallen = context.Event()
    processes = [
        context.Process(target=worker, args=(path, i, charge, deaths.get(i), fallen))
        for i in range(8)
    ]
    for process in processes:
        process.start()
    doomed = {2: 4, 3: 9}
    deadline = time.monotonic() + 60.0
    while doomed and time.monotonic() < deadline:
        for i, releases in list(doomed.items()):
            log = Path(f"{path}.log{i}")
            if log.exists() and log.stat().st_size >= releases:
                processes[i].kill()
                del doomed[i]
    for process in processes[:4]:
        process.join(timeout=60.0)
    fallen.set()
    for process in processes[4:]:
        process.join(timeout=60.0)
    exits = [process.exitcode for process in processes]
    assert exits == [-signal.SIGKILL] * 4 + [0] * 4

    charged = dict.fromkeys(range(8), 0)
    for entry in read_entries(path):
        charged[int(entry.run.removeprefix("run-"))] += entry.count
    for i in range(8):
        left = Path(f"{path}.log{i}").read_bytes().count(b"+")
        assert left <= charged[i] <= left + (1 if i < 4 else 0)
    assert sum(charged.values()) == allowed  # never above, and nothing was lost
    account = read_accounts(path)[0]
    assert account.filter.fits(account.spent)
    assert account.total <= 1.0 + 1e-9
    refused = [Path(f"{path}.log{i}").read_bytes().count(b"-") for i in range(4, 8)]
    assert sum(refused) > 0
