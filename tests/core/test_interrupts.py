from __future__ import annotations

import signal
from threading import Thread

import pytest

from gridpriv.core.interrupts import uninterrupted


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
