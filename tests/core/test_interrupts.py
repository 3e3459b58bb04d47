from __future__ import annotations

import signal
import subprocess
import sys
from threading import Thread

import pytest

from gridpriv.core.threads import interruptible, uninterrupted


def test_an_interrupt_waits_for_the_end_of_the_block():
    done = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        signal.raise_signal(signal.SIGINT)
        done.append("the rest")
    assert done == ["the rest"]


def test_handlers_are_what_they_were_and_an_error_goes_on():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(ValueError, match="within"), uninterrupted():
        raise ValueError("within")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_other_threads_are_left_alone():
    done = []

    def work():
        with uninterrupted():
            done.append("work")

    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert done == ["work"]


def test_a_call_that_swallows_what_an_interrupt_raises_is_ended_and_interrupts_all_the_same():
    done = []
    with pytest.raises(KeyboardInterrupt), interruptible():
        try:
            signal.raise_signal(signal.SIGINT)
            done.append("not ended")
        except KeyboardInterrupt:
            done.append("swallowed")
    assert done == ["swallowed"]


def test_what_ends_a_process_at_once_still_does():
    code = (
        "import signal; from gridpriv.core.threads import interruptible\n"
        "with interruptible():\n    signal.raise_signal(signal.SIGTERM)\n    print('went on')"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "")
