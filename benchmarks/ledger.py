"""Compare the ledger's file with an SQLite database: time of a charge, undetected bit flips.

    python benchmarks/ledger.py FOLDER

FOLDER is on the disk to measure; it is empty again at the end. The numbers are used in
docs/decisions/0015-ledger-file.md.
"""

from __future__ import annotations

import hmac
import os
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gridpriv.core.errors import InputError
from gridpriv.privacy.adjacency import Move, Protection
from gridpriv.privacy.ledger import Ledger, grant, read_book
from gridpriv.privacy.ledger_rows import LedgerDataset, Unit
from gridpriv.privacy.mechanism import Charge

ONE = {Charge("laplace", 10.0): 1}
MEGAWATT = Protection("bus", "buses", (Move("active demand", 1.0, "MW"),))
DATA = LedgerDataset("zone", tuple(Unit(f"bus {i}", b"1") for i in range(5)), MEGAWATT)
KEY, ROW = bytes(32), b'{"charge":{"run":"b00964d48b6344edaa5419821a8f58f4","count":1}}'


def milliseconds(act: Callable[[], object], times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        act()
    return 1e3 * (time.perf_counter() - began) / times


def flush_alone(folder: Path) -> float:
    handle = os.open(folder / "flushed", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    durations = milliseconds(lambda: (os.write(handle, ROW), os.fsync(handle)), 200)
    os.close(handle)
    return durations


def database(path: Path, rows: int) -> sqlite3.Connection:
    """Return an SQLite database of chained rows, in WAL mode and flushed at every commit."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, body BLOB, mac BLOB)")
    for _ in range(rows):
        add(db)
    return db


def add(db: sqlite3.Connection) -> None:
    db.execute("BEGIN IMMEDIATE")
    last = db.execute("SELECT mac FROM rows ORDER BY id DESC LIMIT 1").fetchone()
    mac = hmac.digest(KEY, (last[0] if last else bytes(32)) + ROW, "sha256")
    db.execute("INSERT INTO rows (body, mac) VALUES (?, ?)", (ROW, mac))
    db.execute("COMMIT")


def database_is_whole(path: Path, rows: int) -> bool:
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        if db.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
            return False
        last, seen = bytes(32), 0
        for number, body, mac in db.execute("SELECT id, body, mac FROM rows ORDER BY id"):
            seen += 1
            last = hmac.digest(KEY, last + body, "sha256")
            if (number, mac) != (seen, last):
                return False
        return seen == rows
    except (sqlite3.Error, TypeError):
        return False
    finally:
        db.close()


def ledger_is_whole(path: Path) -> bool:
    try:
        read_book(path)
    except InputError:
        return False
    return True


def unseen(path: Path, is_whole: Callable[[], bool], flips: int) -> float:
    """Return the share of random single bit flips that the file's check does not detect."""
    content, passed = path.read_bytes(), 0
    with path.open("r+b", buffering=0) as file:
        for bit in random.Random(1).choices(range(8 * len(content)), k=flips):
            place = bit // 8
            os.pwrite(file.fileno(), bytes([content[place] ^ 1 << bit % 8]), place)
            passed += is_whole()
            os.pwrite(file.fileno(), content[place : place + 1], place)
    return passed / flips


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1]) as made:
        folder = Path(made)
        path, base = folder / "ledger", folder / "database"
        grant(path, [DATA], 1e9)
        db = database(base, 5)
        with Ledger(path, [DATA]) as ledger:
            print(f"one flush: {flush_alone(folder):.2f} ms")
            ledger.charge("zone", "run", ONE)
            charging = milliseconds(lambda: ledger.charge("zone", "run", ONE), 400)
            print(f"a charge, the ledger: {charging:.2f} ms")
        print(f"a chained row, SQLite: {milliseconds(lambda: add(db), 400):.2f} ms")
        db.close()
        database(folder / "small", 5).close()
        shares = {
            "the ledger": unseen(path, lambda: ledger_is_whole(path), 3000),
            "SQLite, chained rows": unseen(
                folder / "small", lambda: database_is_whole(folder / "small", 5), 3000
            ),
        }
        for name, share in shares.items():
            print(f"single flipped bits that pass unseen, {name}: {100 * share:.1f} %")
        with Ledger(path, [DATA]) as ledger:
            os.fsync = lambda _: None  # the remaining measurements are of reading
            for _ in range(20_000):
                ledger.charge("zone", "run", ONE)
        began = time.process_time()
        rows = len(read_book(path).charged)
        spent = time.process_time() - began
        print(f"reading {rows} rows: {1e6 * spent / rows:.0f} microseconds of processor time each")


if __name__ == "__main__":
    main()
