"""Interpreter of the arithmetic in MATPOWER's own case files.

    statement = "[" name {[","] name} "]" "=" ("idx_bus" | "idx_brch" | "idx_gen")
              | name "=" sum | table "(" ":" "," columns ")" "=" sum
    sum       = product {("+" | "-") product}
    product   = factor {("*" | "/") factor}
    factor    = ["+" | "-"] factor | atom ["^" ["+" | "-"] atom]
    atom      = number | name | "mpc.baseMVA" | "(" sum ")" | ("sqrt" | "sin" | "acos") "(" sum ")"
              | table "(" (":" | index) "," columns ")"
    columns   = index | "[" index {[","] index} "]"
    table     = "mpc.bus" | "mpc.gen" | "mpc.branch"

Values are numbers or whole columns; columns are scaled by numbers, and added to as many columns.
An expression is read once from left to right, and its length and depth are bounded.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import excerpt

LONGEST, DEEPEST = 400, 20
Value = float | Floats
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)(?![\w.])"
    r"|(?P<name>[A-Za-z]\w*(?:\.[A-Za-z]\w*)?)|(?P<mark>[-+*/^()\[\],:=]))"
)
_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "sqrt": math.sqrt,
    "sin": math.sin,
    "acos": math.acos,
}
COLUMNS = {  # results of MATPOWER's functions, in order
    "idx_bus": (1, 2, 3, 4, *range(1, 18)),
    "idx_brch": (*range(1, 12), *range(14, 20), 12, 13, 20, 21),
    "idx_gen": tuple(range(1, 26)),
}


class WrongError(Exception):
    """A text outside the grammar, or that cannot be computed."""


class Arithmetic:
    """Names and tables of one file during the execution of its statements.

    Parameters
    ----------
    tables : dict
        Arrays ``mpc.bus``, ``mpc.gen``, ``mpc.branch``; statements change them in place.
    """

    def __init__(self, base_mva: float = math.nan, tables: dict[str, Floats] | None = None) -> None:
        self.values: dict[str, float] = {"mpc.baseMVA": base_mva}
        self.tables = tables or {}

    def carry_out(self, text: str) -> None:
        """Execute a statement; :class:`WrongError` if it is invalid."""
        try:
            with np.errstate(divide="raise", over="raise", invalid="raise"):
                _ExpressionReader(text, self).statement()
        except (ArithmeticError, ValueError) as error:
            raise WrongError(str(error)) from None


@lru_cache(maxsize=1024)  # tables repeat few distinct texts
def constant(text: str) -> float | None:
    """Return the value of an expression of numbers, None where it is none."""
    try:
        reader = _ExpressionReader(text, Arithmetic())
        value = reader.sum()
        reader.end()
    except (WrongError, ArithmeticError, ValueError):
        return None
    return value if isinstance(value, float) and math.isfinite(value) else None


class _ExpressionReader:
    """One expression, read from left to right."""

    def __init__(self, text: str, known: Arithmetic) -> None:
        if len(text) > LONGEST:
            raise WrongError(f"longer than {LONGEST} characters")
        self.tokens: list[str] = []
        at, text = 0, text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise WrongError
            self.tokens.append(match.group().strip())
            at = match.end()
        self.tokens.append("")
        self.at, self.depth, self.known = 0, 0, known

    @property
    def next(self) -> str:
        return self.tokens[self.at]

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def expect(self, mark: str) -> None:
        if self.take() != mark:
            raise WrongError

    def end(self) -> None:
        if self.next:
            raise WrongError

    def statement(self) -> None:
        if self.next == "[":
            self.column_numbers()
        elif self.next in self.known.tables:
            self.columns_set()
        else:
            name = self.name()
            self.expect("=")
            value = self.sum()
            if not isinstance(value, float) or not math.isfinite(value):
                raise WrongError
            self.known.values[name] = value
        self.end()

    def column_numbers(self) -> None:
        names: list[str] = []
        self.expect("[")
        while not names or self.next != "]":
            names.append(self.name())
            if self.next == ",":
                self.take()
        self.expect("]")
        self.expect("=")
        numbers = COLUMNS.get(self.take(), ())
        if len(names) > len(numbers):
            raise WrongError
        self.known.values |= dict(zip(names, map(float, numbers), strict=False))

    def columns_set(self) -> None:
        table = self.known.tables[self.take()]
        rows, columns = self.place(table)
        self.expect("=")
        value = self.sum()
        if rows != slice(None) or (
            np.ndim(value) and np.shape(value) != (len(table), len(columns))
        ):
            raise WrongError
        table[:, columns] = value

    def name(self) -> str:
        if not re.fullmatch(r"[A-Za-z]\w*", self.next):
            raise WrongError
        return self.take()

    def sum(self) -> Value:
        value = self.product()
        while self.next in {"+", "-"}:
            value = _apply(self.take(), value, self.product())
        return value

    def product(self) -> Value:
        value = self.factor()
        while self.next in {"*", "/"}:
            value = _apply(self.take(), value, self.factor())
        return value

    def factor(self) -> Value:
        if self.next in {"+", "-"}:
            return self.signed(self.factor)
        value = self.atom()
        if self.next == "^":
            self.take()
            value = _apply("^", value, self.signed(self.atom))
            if self.next == "^":
                raise WrongError
        return value

    def signed(self, read: Callable[[], Value]) -> Value:
        self.depth += 1
        if self.depth > DEEPEST:
            raise WrongError("too deep")
        mark = self.take() if self.next in {"+", "-"} else "+"
        value = _apply(mark, 0.0, read())
        self.depth -= 1
        return value

    def atom(self) -> Value:
        token = self.take()
        if token == "(":
            return self.signed(self.bracketed)
        if token in _FUNCTIONS:
            self.expect("(")
            value = self.signed(self.bracketed)
            if not isinstance(value, float):
                raise WrongError
            return _FUNCTIONS[token](value)
        if token in self.known.tables:
            table = self.known.tables[token]
            rows, columns = self.place(table)
            picked = table[rows, columns]
            return float(picked[0]) if picked.shape == (1,) else picked.copy()
        if token in self.known.values:
            return self.known.values[token]
        return float(token) if token[:1].isdigit() or token[:1] == "." else _unknown(token)

    def bracketed(self) -> Value:
        value = self.sum()
        self.expect(")")
        return value

    def place(self, table: Floats) -> tuple[slice | int, list[int]]:
        self.expect("(")
        rows: slice | int = slice(None)
        if self.next == ":":
            self.take()
        else:
            rows = self.index(len(table))
        self.expect(",")
        width = table.shape[-1]
        columns = []
        if self.next == "[":
            self.take()
            while self.next != "]":
                columns.append(self.index(width))
                if self.next == ",":
                    self.take()
            self.take()
        else:
            columns.append(self.index(width))
        self.expect(")")
        return rows, columns

    def index(self, most: int) -> int:
        """Return a row or column, counted from 0."""
        token = self.take()
        number = self.known.values.get(token)
        if number is None:
            number = float(token) if token.isdigit() else math.nan
        if not (1 <= number <= most and number == int(number)):
            raise WrongError(f"{token or 'nothing'} is no row or column")
        return int(number) - 1


def _unknown(token: str) -> float:
    raise WrongError(f"{excerpt(token)} is not known here" if token else "")


def _apply(mark: str, left: Value, right: Value) -> Value:
    numbers = isinstance(left, float), isinstance(right, float)
    if mark == "^":
        if not all(numbers):
            raise WrongError
        return math.pow(left, right)
    if mark in "*/" and not numbers[1] and (mark == "/" or not numbers[0]):
        raise WrongError
    if not any(numbers) and np.shape(left) != np.shape(right):
        raise WrongError
    marks = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
    value: Value = marks[mark](left, right)
    return value
