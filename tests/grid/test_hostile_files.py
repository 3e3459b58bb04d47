"""Files that try to run code in their reader: refused, and nothing is imported, opened or run.

The check is the interpreter's audit hook (``audited_reading.py``, in a separate process), not a
list of the reader.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from gridpriv.grid.library import shipped_folder

pp = pytest.importorskip("pandapower")
HERE = Path(__file__).parent
CASE14 = shipped_folder("cases") / "case14.m"


class Runs:
    """An object whose pickle runs a command when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch ran",)


def net() -> Any:
    created = pp.create_empty_network(sn_mva=10.0, add_stdtypes=False)
    for number in (0, 1):
        pp.create_bus(created, vn_kv=20.0, index=number)
    pp.create_line_from_parameters(created, 0, 1, 1.0, 0.4, 0.3, 100.0, 0.2)
    pp.create_load(created, 1, p_mw=1.0)
    pp.create_ext_grid(created, 0)
    return created


PATH = "a table that is a path"
NET = json.loads(pp.to_json(net()))


def payloads(folder: Path) -> dict[str, dict[str, Any]]:
    """Return objects that run something, or open a file, when a deserializer builds them."""
    (folder / "evil_module.py").write_text("open('ran', 'w')\ndef main(*_): open('ran', 'w')\n")
    (folder / "evil.pkl").write_bytes(pickle.dumps(Runs()))
    (folder / "other.json").write_text("{}")
    named = {
        "runstring": ("numpy.testing", "runstring", "open('ran', 'w')"),
        "runstring, where it lives": ("numpy.testing._private.utils", "runstring", "open('ran')"),
        "read_pickle": ("pandas", "read_pickle", "evil.pkl"),
        "read_pickle, where it lives": ("pandas.io.pickle", "read_pickle", "evil.pkl"),
        "getoutput": ("subprocess", "getoutput", "touch ran"),
        "eval": ("builtins", "eval", "open('ran', 'w')"),
        "system": ("os", "system", "touch ran"),
        "a function of a module here": ("evil_module", "function", "main"),
        "a class of a module here": ("evil_module", "main", "x"),
        "a main program": ("numpy.f2py.__main__", "x", "y"),
        "a class of pandapower": ("pandapower.io_utils", "PPJSONDecoder", "{}"),
        PATH: ("pandas.core.frame", "DataFrame", str(folder / "other.json")),
        "a net in a net": ("pandapower.auxiliary", "pandapowerNet", "{}"),
    }
    further = {"runstring": {"dict": {}}, "DataFrame": {"orient": "split"}}
    return {
        label: {"_module": module, "_class": name, "_object": stored, **further.get(name, {})}
        for label, (module, name, stored) in named.items()
    }


def escaped(value: Any) -> str:
    """Return JSON text without underscores."""
    return json.dumps(value).replace("_", r"\u005f")


def table(cell: Any) -> dict[str, Any]:
    stored = {"columns": ["object"], "index": [0], "data": [[cell]]}
    return {
        "_module": "pandas.core.frame",
        "_class": "DataFrame",
        "_object": json.dumps(stored),
        "orient": "split",
        "dtype": {"object": "object"},
    }


def controller(content_text: str) -> dict[str, Any]:
    return {
        "_module": "pandapower.control.controller.const_control",
        "_class": "ConstControl",
        "_object": content_text,
    }


PLACES = {
    "an entry": lambda bad: {"user": bad},
    "a text": lambda bad: {"user": json.dumps(bad)},
    "a text without underscores": lambda bad: {"user": " " + escaped([bad])},
    "a text in a text": lambda bad: {"user": json.dumps(escaped(bad))},
    "a cell": lambda bad: {"controller": table(bad)},
    "a cell's text": lambda bad: {"controller": table(escaped(bad))},
    "a controller": lambda bad: {"controller": table(controller(escaped({"x": bad})))},
    "a type of line": lambda bad: {"std_types": {"line": {"x": bad}}},
    "profiles": lambda bad: {"profiles": {"load": bad}},
    "options": lambda bad: {"user_pf_options": bad},
    "a bus table": lambda bad: {"bus": bad},
    "the name": lambda bad: {"name": bad},
    "a net as text": lambda bad: {
        "user": escaped({**NET, "_object": escaped({**NET["_object"], "user": bad})})
    },
}


def run_watched(folder: Path, calm: list[Path], files: list[Path]) -> list[dict[str, Any]]:
    words = [str(HERE / "audited_reading.py"), *map(str, calm), "--", *map(str, files)]
    paths = os.pathsep.join(["", str(HERE.parent.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_no_json_file_has_anything_imported_opened_or_run(every: int, tmp_path: Path) -> None:
    """Every payload in every fourth place, the places of one after those of the one before."""
    calm = tmp_path / "calm.json"
    calm.write_text(json.dumps(NET))
    files, inert = [], {calm}
    for number, (label, bad) in enumerate(payloads(tmp_path).items()):
        for place, hide in list(PLACES.items())[number % every :: every]:
            files.append(tmp_path / f"{number} {place}.json")
            files[-1].write_text(json.dumps({**NET, "_object": {**NET["_object"], **hide(bad)}}))
            inert |= {files[-1]} if label == PATH else set()
    result = run_watched(tmp_path, [calm, CASE14], [calm, *files])
    assert len(result) == len(files) + 1
    assert [entry["file"] for entry in result if entry["events"]] == []
    assert not (tmp_path / "ran").exists()
    read = {Path(entry["file"]) for entry in result if entry["outcome"] == "read"}
    assert calm in read <= inert, "a table that is no table is refused, or left out with its entry"
    assert all(entry["outcome"].startswith(("read", "refused (2)")) for entry in result)


def test_no_other_file_has_anything_imported_opened_or_run(tmp_path: Path) -> None:
    (tmp_path / "evil_module.py").write_text("open('ran', 'w')\n")
    text = CASE14.read_text()
    bodies = {
        "a.m": text + "\nsystem('touch ran');\n",
        "b.m": text.replace("mpc.version = '2';", "mpc.version = eval('open(1)');"),
        "c.m": text.replace("mpc.baseMVA = 100;", "mpc.baseMVA = __import__('evil_module');"),
        "d.m": text.replace("mpc.baseMVA = 100;", "mpc.baseMVA = 10^9^9^9;"),
        "e.csv": "bus,pd_mw\n9,__import__('evil_module')\n",
        "f.csv": "bus,zone\n1,=cmd|' /C calc'!A0\n",
    }
    for name, body in bodies.items():
        (tmp_path / name).write_text(body)
    cells = np.empty(1, dtype=object)
    cells[0] = "evil_module"
    savemat(tmp_path / "calm.mat", {"mpc": {"bus": np.ones((2, 13)), "names": cells}})
    (tmp_path / "h.mat").write_bytes(pickle.dumps(Runs()))
    run_result = run_watched(
        tmp_path,
        [CASE14, tmp_path / "calm.mat"],
        [tmp_path / name for name in (*bodies, "h.mat", "calm.mat")],
    )
    assert [entry for entry in run_result if entry["events"]] == []
    assert [e["outcome"] for e in run_result if not e["outcome"].startswith("refused (2)")] == []
    assert not (tmp_path / "ran").exists()
