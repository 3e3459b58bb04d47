"""Schedules of faults between processes in network namespaces; a separate program (root, Linux).

    python tests/network/namespaces.py FOLDER FIRST COUNT

runs COUNT schedules from seed FIRST and prints a JSON line for each. A party is a process in a
separate namespace, forked from this one; a link joins each zone's to the coordinator's. Faults:

- partition: the link is down;
- loss one way: the other side's hardware address is a wrong one, so that frames are dropped;
- stop: a party gets SIGSTOP, and SIGCONT later (delay of everything);
- kill: a party gets SIGKILL and is started again;
- clock: a party is restarted with its clock one day back (within the validity of certificates).

"""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ZONES = ("1", "2", "3")
PARTIES = ("coordinator", *ZONES)
ROUNDS, LONGEST = 4, 240.0
PORT = 50100
NEWNET = 0x40000000


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Net:
    """Namespaces of the parties, and a link from each zone to the coordinator."""

    def __init__(self):
        self.tag = f"gp{os.getpid() % 10000}"
        for party in PARTIES:
            ip("netns", "add", self.name(party))
            ip("-n", self.name(party), "link", "set", "lo", "up")
        for k, zone in enumerate(ZONES):
            here, there = f"{self.tag}c{k}", f"{self.tag}z{k}"
            ip(
                "link",
                "add",
                here,
                "netns",
                self.name("coordinator"),
                "type",
                "veth",
                "peer",
                "name",
                there,
                "netns",
                self.name(zone),
            )
            for party, link, address in (("coordinator", here, 1), (zone, there, 2)):
                ip("-n", self.name(party), "addr", "add", f"10.77.{k}.{address}/24", "dev", link)
                ip("-n", self.name(party), "link", "set", link, "up")

    def name(self, party):
        return f"{self.tag}-{party}"

    def enter(self, party):
        handle = os.open(f"/var/run/netns/{self.name(party)}", os.O_RDONLY)
        if ctypes.CDLL(None, use_errno=True).setns(handle, NEWNET):
            raise OSError(ctypes.get_errno(), "setns")

    def partition(self, k, *, down):
        ip(
            "-n",
            self.name("coordinator"),
            "link",
            "set",
            f"{self.tag}c{k}",
            "down" if down else "up",
        )

    def deafen(self, k, side, *, down):
        """Lose every frame that one side sends."""
        party, link, other = (
            ("coordinator", f"{self.tag}c{k}", 2)
            if side == "coordinator"
            else (ZONES[k], f"{self.tag}z{k}", 1)
        )
        where = ["-n", self.name(party), "neigh"]
        to = f"10.77.{k}.{other}"
        if down:
            ip(
                *where,
                "replace",
                to,
                "lladdr",
                "02:00:00:00:00:99",
                "dev",
                link,
                "nud",
                "permanent",
            )
        else:
            ip(*where, "del", to, "dev", link)

    def close(self):
        for party in PARTIES:
            subprocess.run(
                ["ip", "netns", "del", self.name(party)], capture_output=True, check=False
            )


class Run:
    """The processes of one run."""

    def __init__(self, net, folder):
        self.net, self.folder, self.children, self.codes = net, folder, {}, {}

    def start(self, party, shift=0.0):
        child = os.fork()
        if child == 0:
            code = 70
            try:
                self.net.enter(party)
                code = play(self.folder / party, party, shift)
            except BaseException as error:
                with (self.folder / f"{party}.error").open("a") as file:
                    file.write(f"{type(error).__name__}: {error}\n")
                code = getattr(error, "exit_code", 70)
            finally:
                os._exit(code)
        self.children[party] = child

    def over(self, party):
        if party in self.codes:
            return True
        done, status = os.waitpid(self.children[party], os.WNOHANG)
        if done:
            self.codes[party] = os.waitstatus_to_exitcode(status)
        return bool(done)

    def kill(self, party, shift=0.0):
        if self.over(party):
            return
        os.kill(self.children[party], signal.SIGKILL)
        os.waitpid(self.children[party], 0)
        self.start(party, shift)


def play(folder, party, shift):
    """Take part as a party; in a child."""
    from gridpriv.consortium.agreement import read_agreement
    from gridpriv.consortium.parties import (
        CoordinatorParty,
        ZoneParty,
        credentials,
        notes,
        read_party,
    )
    from gridpriv.consortium.take_part import coordinate, over_network, take_part_as_zone

    if shift:
        honest = time.time
        time.time = lambda: honest() + shift
    sys.stderr = (folder / "log").open("a")
    note = notes(party, "info")
    if party == "coordinator":
        own = read_party(folder / "coordinator.toml", CoordinatorParty)
        proved = credentials(own, folder, party, insecure=False)
        coordinate(read_agreement(folder / own.agreement), own, folder, proved, note)
        return 0
    own = read_party(folder / "zone.toml", ZoneParty)
    proved = credentials(own, folder, party, insecure=False)
    agreement = read_agreement(folder / own.agreement)
    take_part_as_zone(agreement, own, folder, over_network(own, proved, note), note, proved)
    return 0


def template(folder):
    """Lay out a run with ledgers, and return the residuals of the undisturbed one."""
    from gridpriv import load_case, make_settings, run, shipped_zoning
    from gridpriv.consortium.parties import write_folders
    from gridpriv.privacy.ledger import grant
    from gridpriv.zonal.prepared import zone_datasets

    case = load_case("case14")
    zoning = shipped_zoning(case)
    settings = make_settings(rounds=ROUNDS, seed=11, solver="clarabel", noise_schedule="round")
    write_folders(case, zoning, settings, "faults", f"0.0.0.0:{PORT}", folder)
    for dataset in zone_datasets(case, zoning, settings.adjacency(case)):
        grant(folder / dataset.owner / "ledger", [dataset], 20.0)
    for k, zone in enumerate(ZONES):
        path = folder / zone / "zone.toml"
        text = path.read_text().replace(f"0.0.0.0:{PORT}", f"10.77.{k}.1:{PORT}")
        text = text.replace("# ledger =  #", 'ledger = "ledger"  #')
        text = text.replace("beat = 0.0", "beat = 0.05")
        path.write_text(text)
    return [r.consensus_residual for r in run(case, zoning, settings).trace.rounds]


def schedule(net, folder, seed):
    """Run one schedule; return its events."""
    chance, events = random.Random(seed), []
    run = Run(net, folder)
    for party in PARTIES:
        run.start(party)
    mend = []  # (when, what)
    begin = time.monotonic()
    plan = sorted(chance.uniform(0.2, 4.0) for _ in range(chance.randint(1, 4)))
    while time.monotonic() < begin + LONGEST:
        now = time.monotonic() - begin
        while plan and now >= plan[0]:
            plan.pop(0)
            events.append(fault(net, run, chance, mend, now))
        for when, what in list(mend):
            if now >= when:
                mend.remove((when, what))
                what()
        over = [run.over(party) for party in PARTIES]  # each is looked at
        if all(over) and not mend:
            break
        time.sleep(0.02)
    for _, what in mend:
        what()
    for party in PARTIES:
        if not run.over(party):
            os.kill(run.children[party], signal.SIGKILL)
            os.waitpid(run.children[party], 0)
    return events, run.codes, time.monotonic() - begin


def fault(net, run, chance, mend, now):
    kind = chance.choice(("partition", "one way", "one way back", "stop", "kill", "clock"))
    k, length = chance.randrange(3), chance.uniform(0.2, 2.5)
    party = chance.choice(PARTIES)
    if kind == "partition":
        net.partition(k, down=True)
        mend.append((now + length, lambda: net.partition(k, down=False)))
    elif kind.startswith("one way"):
        side = "zone" if kind == "one way" else "coordinator"
        try:
            net.deafen(k, side, down=True)
        except subprocess.CalledProcessError:  # the link is down already
            return [kind, "nothing", 0.0]
        mend.append((now + length, lambda: quietly(lambda: net.deafen(k, side, down=False))))
    elif kind == "stop" and not run.over(party):
        child = run.children[party]
        os.kill(child, signal.SIGSTOP)
        mend.append((now + length, lambda: quietly(lambda: os.kill(child, signal.SIGCONT))))
    elif kind in ("kill", "clock"):
        run.kill(party, -86_400.0 if kind == "clock" else 0.0)
    return [kind, party if kind in ("stop", "kill", "clock") else ZONES[k], round(length, 2)]


def quietly(act):
    try:
        act()
    except (OSError, subprocess.CalledProcessError):
        return


def verdict(folder, codes, residuals):
    """Return the faults after a schedule; empty if there are none."""
    from gridpriv.privacy.ledger import read_book

    if set(codes.values()) != {0} or len(codes) < len(PARTIES):
        errors = {
            p: (folder / f"{p}.error").read_text()
            for p in PARTIES
            if (folder / f"{p}.error").exists()
        }
        return f"codes {codes}, {errors}"
    report = json.loads((folder / "coordinator" / "report" / "run.json").read_text())
    if [row["consensus_residual"] for row in report["rounds"]] != residuals:
        return "other rounds than the undisturbed ones"
    for zone in ZONES:
        charges = Counter()
        for _, row in read_book(folder / zone / "ledger").charged:
            charges.update(dict(row.charges))
        if charges.total() != ROUNDS:
            return f"zone {zone} was charged {charges.total()} times"
        if not (folder / zone / "state" / "outcome.json").exists():
            return f"zone {zone} lost its outcome"
    return ""


def main(place, first, count):
    import clarabel  # noqa: F401

    root = Path(place)
    residuals = template(root / "template")
    net = Net()
    try:
        for seed in range(int(first), int(first) + int(count)):
            folder = Path(shutil.copytree(root / "template", root / str(seed)))
            events, codes, took = schedule(net, folder, seed)
            wrong = verdict(folder, codes, residuals)
            print(
                json.dumps(
                    {"seed": seed, "events": events, "took": round(took, 1), "wrong": wrong}
                ),
                flush=True,
            )
            if not wrong:
                shutil.rmtree(folder)
    finally:
        net.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
