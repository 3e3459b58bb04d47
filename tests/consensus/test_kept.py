"""An agent made with a store of released values stores them, or uses them again uncharged."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from tanks import Tank, rules

from gridpriv.consensus.agent import Agent
from gridpriv.privacy.noise import NoiseStreams
from gridpriv.privacy.release import KeptReleases, Release

KEY = 3


def agent(kept, charged):
    def charge(_, releases):
        charged.update(releases)

    rest = rules(target="demand", noise_schedule="once"), NoiseStreams(7)
    shared = np.array([False, True])
    return Agent(Tank(KEY, 2.0), np.array([1.0]), shared, *rest, charge, kept=kept)


def test_a_stored_value_is_used_again_without_a_charge(tmp_path):
    store, charged = KeptReleases(tmp_path / "kept", "grid", (KEY,)), Counter[Release]()
    assert not store.complete
    first = agent(replace(store, reuses=store.complete), charged).disclose()
    assert store.complete and charged.total() == 1
    again = agent(replace(store, reuses=store.complete), charged)
    assert again.disclose() == first
    assert charged.total() == 1
    assert sum(again.drawn().values()) == 1


def test_values_of_some_owners_only_are_drawn_again(tmp_path):
    store, charged = KeptReleases(tmp_path / "kept", "grid", (KEY, KEY + 1)), Counter[Release]()
    for number in (1, 2):
        assert not store.complete
        agent(replace(store, reuses=store.complete), charged).disclose()
        assert charged.total() == number
