"""Commands under adverse conditions: full disk, few file handles, a closed pipe, another locale."""

from __future__ import annotations

import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gridpriv.cli import main as entry
from gridpriv.core.store import read_study
from gridpriv.core.threads import VARIABLE

PROGRAM = [sys.executable, "-m", "gridpriv.cli.main"]
UNPAINTED = (
    "import sys; from gridpriv.cli import main, run\n"
    "run._write_copies = lambda _: None\n"
    "sys.exit(main.main())"
)
"""The program without CSV copies and pictures of a run, which take longer than all else."""
RUN = ["run", "case14", "--rounds", "2", "--solver", "clarabel", "--mechanism", "none"]
RUN += ["--no-reference"]
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}


def run(*words: str, cwd: Path | None = None, **given) -> subprocess.CompletedProcess[str]:
    given.setdefault("stdout", subprocess.PIPE)
    given["env"] = (
        os.environ | {"PYTHONPATH": str(Path(entry.__file__).parents[2])} | given.get("env", {})
    )
    return subprocess.run(
        [*PROGRAM, *words],
        stderr=subprocess.PIPE,
        cwd=cwd,
        check=False,
        encoding="utf-8",
        errors="surrogateescape",
        **given,
    )


def one_sentence(done: subprocess.CompletedProcess[str], code: int, words: str) -> None:
    assert done.returncode == code, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("gridpriv") and words in done.stderr


NATIVE = """
import ctypes, sys
from gridpriv.cli import main as entry
run = entry._run
def printing(*words, **given):
    ctypes.CDLL(None).puts(b"printed by a library")
    return run(*words, **given)
entry._run = printing
sys.argv = ["gridpriv", "cases", "case9", "--json"]
sys.exit(entry.main())
"""


def test_what_compiled_libraries_print_is_not_in_json() -> None:
    done = subprocess.run([sys.executable, "-c", NATIVE], capture_output=True, check=True)
    assert json.loads(done.stdout)
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("words", "unbuffered"),
    [
        (["--help"], "1"),
        (["zones", "--help"], ""),
        (["account", "--releases", "3", "--epsilon", "1"], ""),
        pytest.param(["--help"], "", marks=pytest.mark.slow),
        pytest.param(["zones", "--help"], "1", marks=pytest.mark.slow),
        pytest.param(["account", "--releases", "3", "--epsilon", "1"], "1", marks=pytest.mark.slow),
    ],
)
def test_a_full_disk_behind_standard_output(words: list[str], unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = run(*words, stdout=full, env={"PYTHONUNBUFFERED": unbuffered})
    one_sentence(done, 3, "No space left on device")


def test_a_pipe_that_nobody_reads() -> None:
    code = f'{" ".join(PROGRAM)} zones case14 | head -n 0; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == f"{entry.PIPE_CLOSED}\n"
    assert done.stderr == ""


@pytest.mark.parametrize("handles", [pytest.param(8, marks=pytest.mark.slow), 20])
def test_few_file_handles(handles: int, tmp_path: Path) -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (handles, handles))

    done = run(*RUN, "--out", "found", preexec_fn=few, cwd=tmp_path)
    if done.returncode == 0:
        assert done.stderr == ""
    else:
        one_sentence(done, 3, "Too many open files")


def test_names_that_the_locale_does_not_have(tmp_path: Path) -> None:
    folder = tmp_path / "Gitter-ä"
    folder.mkdir()
    shutil.copy(Path(__file__).parents[2] / "cases" / "case14.m", folder / "fälle.m")
    one_sentence(run("zones", str(folder / "nein.m"), env=ASCII), 2, "nein.m")
    words = ["run", str(folder / "fälle.m"), "--zones", "2", *RUN[2:], "--out", str(folder / "ü")]
    done = run(*words, env=ASCII)
    assert (done.returncode, done.stderr) == (0, "")
    manifest = read_study(folder / "ü").manifest
    assert manifest["title"] == "A run of fälle"
    assert str(folder / "fälle.m") in manifest["repeat"]
    latin = os.fsencode(folder) + b"/f\xe4lle.m"
    shutil.copy(folder / "fälle.m", latin)
    words[1] = os.fsdecode(latin)
    one_sentence(run(*words[:-1], "out", cwd=tmp_path), 2, "rename a file whose name is in it")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "closed",
    [
        *(pytest.param(redirection, marks=pytest.mark.slow) for redirection in (">&-", "2>&-")),
        "<&- >&- 2>&-",
    ],
)
def test_closed_standard_streams(closed: str, tmp_path: Path) -> None:
    """Output of a solver must not be written into the file that replaces a closed stream."""
    out = tmp_path / "out"
    program = [sys.executable, "-c", UNPAINTED]
    words = [*program, *RUN, "--solver", "ipopt", "--out", str(out), "--quiet"]
    command = f"{shlex.join(words)} {closed}"
    env = os.environ | {"PYTHONPATH": str(Path(entry.__file__).parents[2])}
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=False, env=env
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(read_study(out).runs) == 1  # its checksums hold


@pytest.mark.parametrize("place", ["/proc/gridpriv", "/dev/null", "/dev/null/below"])
def test_places_that_nothing_can_be_written_to(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = entry.main(["relax", "case14", "--out", place])
    assert code in (2, 3)
    done = subprocess.CompletedProcess(["relax"], code, *capsys.readouterr())
    one_sentence(done, code, place)


def test_an_interrupt_ends_in_one_sentence(tmp_path: Path) -> None:
    soc = ["--planning", "soc", "--acceleration", "none"]
    words = [
        *RUN[:2],
        *soc,
        "--rounds",
        "1000000",
        "--tolerance",
        "0",
        "--out",
        str(tmp_path / "o"),
    ]
    process = subprocess.Popen(
        [*PROGRAM, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not (tmp_path / "o").exists():
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1].startswith("gridpriv run: interrupted")
    assert "Traceback" not in errors


def test_a_defect_is_one_sentence_unless_the_traceback_is_asked_for(tmp_path: Path) -> None:
    code = (
        "import sys, gridpriv.cli.grids as grids, gridpriv.cli.main as main\n"
        "def broken(args): raise ZeroDivisionError('a defect')\n"
        "grids.execute_zones = broken\n"
        "sys.argv = ['gridpriv', 'zones', 'case14']\n"
        "sys.exit(main.main())"
    )
    (tmp_path / "broken.py").write_text(code)
    words = [sys.executable, str(tmp_path / "broken.py")]
    env = {name: value for name, value in os.environ.items() if name != entry.TRACEBACK}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
    sentence = "this is a defect of gridpriv or of a plugin: ZeroDivisionError"
    one_sentence(done, entry.DEFECT, sentence)
    assert "a defect (" not in done.stderr  # its text may quote private values
    assert entry.TRACEBACK in done.stderr
    env[entry.TRACEBACK] = "1"
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
    assert "Traceback (most recent call last)" in done.stderr


@pytest.mark.parametrize(("given", "threads"), [({}, "1"), ({VARIABLE: "2"}, "2")])
def test_linear_algebra_has_one_thread_unless_set_otherwise(
    given: dict[str, str], threads: str
) -> None:
    code = (
        "import sys\n"
        "from gridpriv.cli import main\n"
        "sys.argv = ['gridpriv', 'zones', 'case14', '--quiet']\n"
        "main.main()\n"
        "import scipy.linalg\n"
        "from threadpoolctl import threadpool_info\n"
        "print(*{pool['num_threads'] for pool in threadpool_info()})"
    )
    none = {"OMP_NUM_THREADS", VARIABLE}
    env = {name: value for name, value in os.environ.items() if name not in none} | given
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    assert done.stdout.splitlines()[-1] == threads


@pytest.mark.parametrize("words", [["account", "--releases", "2", "--epsilon", "1"], ["--version"]])
def test_an_interrupt_after_the_command_does_not_replace_its_exit_code(words: list[str]) -> None:
    code = (
        "import signal, sys\nfrom gridpriv.cli.main import main\n"
        "try:\n    code = main()\nexcept SystemExit as end:\n    code = end.code\n"
        "signal.raise_signal(signal.SIGINT)\nsys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_second_interrupt_during_the_message_of_the_first_ends_with_code_130() -> None:
    code = (
        "import signal, sys, gridpriv.cli.main as main\n"
        "def interrupted(*_, **__):\n    raise KeyboardInterrupt\n"
        "main._run, text_of = interrupted, main._expected_error\n"
        "def twice(error):\n    signal.raise_signal(signal.SIGINT)\n    return text_of(error)\n"
        "main._expected_error = twice\nsys.exit(main.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "account"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "gridpriv account: interrupted\n")
