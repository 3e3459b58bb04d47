"""Random damages of files, and batches of them in processes."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import traceback
from collections.abc import Callable
from typing import Any

LONGEST_S = 300
NASTY = [
    b"nan",
    b"NaN",
    b"inf",
    b"-Inf",
    b"1e999",
    b"-1",
    b"0",
    b"1e-320",
    b"9" * 30,
    b"0.5",
    b"1e17",
    b"",
    b"'",
    b'"',
    b"[",
    b"]",
    b"{",
    b"}",
    b"(",
    b")",
    b";",
    b",",
    b"\n",
    b"\r",
    b"%",
    b"%{\n",
    b"=",
    b"...",
    b"\0",
    b"\xff\xfe",
    b"\xc3\xa9",
    b"\\u0000",
    b"\\ud800",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b'"x"',
    b"-",
    b"+",
    b".",
    b"e",
    b"mpc.",
    b"function",
    b"end",
    b":",
    b"*",
    b"/",
    b"^",
    b"1:3",
    b"\t",
    b"\x1b[2J",
    b"_",
    b"3",
    b"4294967295",
    b"-9223372036854775809",
    b"5000000",
]
VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    3,
    99,
    2**31,
    2**63,
    10**400,
    0.5,
    -0.5,
    1e300,
    -1e-300,
    float("inf"),
    float("nan"),
    "",
    "b",
    "hv",
    "x" * 200,
    "1",
    [],
    [1],
    [[0, 1, 2]],
    {},
    {"a": 1},
    [None],
    "[[[",
    '{"_module": 1}',
    "\ud800",
    {"_module": "numpy", "_class": "int64", "_object": 2},
]
NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?")


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Return the bytes with one to four damages."""
    held = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(held) + 1)
        length = draw.choice([1, 2, 5, 20, 200])
        kind = draw.randrange(8)
        if kind == 0:
            held[at:at] = draw.choice(NASTY)
        elif kind == 1:
            held[at : at + length] = draw.choice(NASTY)
        elif kind == 2 and held:
            held[at % len(held)] ^= 1 << draw.randrange(8)
        elif kind == 3:
            del held[at : at + length]
        elif kind == 4:
            other = draw.randrange(len(held) + 1)
            held[at:at] = held[other : other + length]
        elif kind == 5:
            del held[at:]
        else:
            found = NUMBER.search(held, at)
            if found:
                held[found.start() : found.end()] = draw.choice(NASTY)
    return bytes(held)


def in_a_process(batch: Callable[[], Any]) -> Any:
    """Return the result of a function in a fork that may take ``LONGEST_S`` of processor time.

    A fork that ends otherwise raises ``ChildProcessError``.
    """
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_S, LONGEST_S))
            with os.fdopen(sender, "w", encoding="utf-8") as pipe:
                json.dump(batch(), pipe)
            os._exit(0)
        finally:
            traceback.print_exc()
            os._exit(1)
    os.close(sender)
    with os.fdopen(receiver, encoding="utf-8") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    if status:
        raise ChildProcessError(f"the process of a batch ended with status {status}")
    return json.loads(told)
