from __future__ import annotations

import argparse
import json
import pickle
from dataclasses import dataclass, replace

import pytest

from gridpriv.cli.flags import add_settings, given_settings
from gridpriv.core.errors import InputError, positive
from gridpriv.core.settings import Part, changed, choice, count, documented, notation, number


@dataclass(frozen=True)
class Size:
    """A size with a text notation: ``3x4``."""

    wide: int
    high: int

    def __str__(self) -> str:
        return f"{self.wide}x{self.high}"


def parse_size(text: str) -> Size:
    wide, _, high = text.partition("x")
    if not (wide.isdigit() and high.isdigit()):
        raise InputError(f"size = {text!r}: must be WxH")
    return Size(int(wide), int(high))


@dataclass(frozen=True, kw_only=True)
class Tank(Part):
    """A tank."""

    fluid: str = choice("water", ("water", "oil"), "what it holds")
    size: Size = notation(Size(3, 4), parse_size, "WxH", "its size, WxH")
    hot: float | None = number(None, "temperature", positive, unit="K", unset="that of the room")


@documented
@dataclass(frozen=True, kw_only=True)
class Plant(Tank):
    """A plant."""

    fluid: str = changed(Tank, "fluid", "oil")
    pumps: int = count(2, "number of pumps")


def flags(*words: str) -> dict[str, object]:
    parser = argparse.ArgumentParser()
    add_settings(parser, Plant, ["big"])
    return given_settings(parser.parse_args(words), Plant)


def test_a_field_is_keyword_flag_help_json_and_documentation():
    assert Plant(**flags("--size", "5x6", "--hot", "400")) == Plant(size=Size(5, 6), hot=400.0)
    parser = argparse.ArgumentParser()
    add_settings(parser, Plant, ["big"])
    reason = " ".join(parser.format_help().split())
    assert "--size WxH its size, WxH (default: 3x4)" in reason
    assert "--fluid {water,oil} what it holds (default: oil)" in reason
    assert "--hot X temperature, K (default: that of the room)" in reason
    assert "temperature, K (default: that of the room)" in Plant.__doc__
    given = json.loads(json.dumps(Plant(hot=3.5).as_given()))
    assert given == {"fluid": "oil", "size": "3x4", "hot": 3.5, "pumps": 2}
    assert Plant(**given) == Plant(hot=3.5)


def test_settings_are_frozen_hashable_and_travel():
    plant = Plant(size="7x8")
    assert plant.size == Size(7, 8)
    assert pickle.loads(pickle.dumps(plant)) == plant == replace(plant)
    assert len({plant, Plant(size=Size(7, 8))}) == 1
    with pytest.raises(AttributeError):
        plant.pumps = 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pump": 3}, "setting = 'pump' is unknown: did you mean 'pumps'?"),
        ({"qqqq": 3}, "setting = 'qqqq': must be one of fluid, hot, pumps, size"),
        ({"pumps": "3"}, "pumps = '3': must be a whole number"),
        ({"pumps": None}, "pumps = None"),
        ({"hot": "warm"}, "hot = 'warm': must be a positive number"),
        ({"hot": True}, "hot = True"),
        ({"hot": 10**400}, "hot = "),
        ({"size": 3}, "size = 3: must be"),
        ({"size": "x"}, "size = 'x'"),
        ({"fluid": ["oil"]}, "fluid = ['oil']: must be one of water, oil"),
    ],
)
def test_what_is_wrong_is_reported_by_name(given, message):
    with pytest.raises(InputError) as caught:
        Plant(**given)
    assert message in str(caught.value)
    with pytest.raises(InputError) as again:
        replace(Plant(), **given)
    assert str(again.value) == str(caught.value)


def test_a_flag_that_cannot_be_read_is_refused_like_a_keyword():
    with pytest.raises(InputError, match="pumps = 'three': must be a whole number, 1 or"):
        Plant(**flags("--pumps", "three"))
