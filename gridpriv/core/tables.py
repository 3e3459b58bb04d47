"""Typed rows: every stored, exported or printed value is a declared field.

A table's row, or a part of a document, is a subclass of :class:`Row`: a frozen dataclass whose
fields have title, meaning, unit, kind and origin. Parquet columns, JSON keys, headers, ``gridpriv
schema`` and what may be published follow from the field. :func:`publish` and :func:`publish_table`
export only what is declared and public, so undeclared values are never published.

A value's *origin* determines who may see it:

- ``settings``: known before the run (settings, topology, limits, versions): public;
- ``releases``: computed from agents' messages: public if those messages have noise, otherwise as
  private as the data;
- ``private``: computed from private data, from the noise, its seed, or times: local.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping
from dataclasses import FrozenInstanceError, dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias, dataclass_transform

from gridpriv.core.settings import Part, settings_of
from gridpriv.core.text import Json

if TYPE_CHECKING:
    from pandas import DataFrame

Origin = Literal["settings", "releases", "private"]
"""Known before the run; computed from released values; from private data, noise or times."""
Dtype = Literal["number", "text", "flag", "any"]
"""Kind of a column's cells; ``any`` where folders of different kinds differ."""
Number: TypeAlias = float | None
Text: TypeAlias = str | None
Flag: TypeAlias = bool | None
DTYPES: Mapping[str, Dtype] = {
    **dict.fromkeys(("Number", "float", "int"), "number"),
    **dict.fromkeys(("Text", "str"), "text"),
    **dict.fromkeys(("Flag", "bool"), "flag"),
}
"""By a field's annotation; ``any`` for every other."""
UNITS = {
    **{unit.lower(): unit for unit in ("MW", "MVAr", "MVA", "MWh", "kA", "degree")},
    **{"pu": "p.u.", "percent": "%", "seconds": "s", "hours": "h"},
}
"""By the last word of a value's name, if its declaration has no unit."""


@dataclass(frozen=True)
class Column:
    """One value: a column of a table or an entry of a document.

    Attributes
    ----------
    origin : {'settings', 'releases', 'private'}
    title : str
        For readers; headers are title and unit.
    meaning : str
        A noun phrase that stands alone.
    unit : str
        Empty for words, counts and values without one.
    dtype : {'number', 'text', 'flag', 'any'}
        Of the cells; a report refuses others.
    place : str
        Place in a document, keys joined by dots; empty if it is in none.
    """

    name: str
    origin: Origin
    title: str
    meaning: str
    unit: str = ""
    dtype: Dtype = "number"
    place: str = ""

    @property
    def visibility(self) -> str:
        """``public`` or ``local``."""
        return "local" if self.origin == "private" else "public"

    @property
    def header(self) -> str:
        """Title and unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def shown(self, *, protected: bool) -> bool:
        """Return True if it may be published, for a run with or without noise in its messages."""
        return self.origin == "settings" or (self.origin == "releases" and protected)


@dataclass(frozen=True)
class TableSchema:
    """A table, or a part of a document, as its columns.

    Attributes
    ----------
    row : str
        Description of one row, as a noun phrase.
    keys : tuple of Column
        Columns that identify rows. A table without other public columns is not published, as its
        rows alone would disclose their existence.
    nested : mapping of str to TableSchema
        Parts of a document that are documents or lists of rows.
    """

    name: str
    row: str
    keys: tuple[Column, ...]
    value_columns: tuple[Column, ...]
    nested: Mapping[str, TableSchema] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if len(set(names)) < len(names):
            raise ValueError(f"table {self.name} declares a column twice")

    @property
    def columns(self) -> tuple[Column, ...]:
        """Keys and values."""
        return self.keys + self.value_columns

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(column.name for column in self.columns)

    @property
    def entries(self) -> dict[str, Column | TableSchema]:
        """Columns and nested parts by name."""
        return {column.name: column for column in self.columns} | dict(self.nested)

    def column(self, name: str) -> Column:
        """Return a column by name; ``KeyError`` if it is not declared."""
        return {column.name: column for column in self.columns}[name]

    def published(self, *, protected: bool) -> tuple[str, ...]:
        """Return the names of the columns that may be published."""
        return tuple(c.name for c in self.columns if c.shown(protected=protected))

    def flat(self, place: str = "") -> Iterator[tuple[str, Column]]:
        """Yield every column, of nested parts too, with its place in the document."""
        for name, entry in self.entries.items():
            here = f"{place}{name}"
            yield from entry.flat(f"{here}.") if isinstance(entry, TableSchema) else [(here, entry)]


def _declared(
    origin: Origin, text: str, unit: str | None = None, *, key: bool = False, at: str = ""
) -> Any:
    title, _, meaning = text.partition(": ")
    entries = {"origin": origin, "title": title, "meaning": meaning, "unit": unit, "place": at}
    return field(default=None, metadata={"column": entries, "key": key})


known = partial(_declared, "settings")
"""A value that is known before the run: its title and meaning, as ``TITLE: MEANING``, its unit
where :data:`UNITS` has not that of its name, and ``at``, the place that a document has it."""
released = partial(_declared, "releases")
"""A value computed from released values; see :data:`known`."""
private = partial(_declared, "private")
"""A value computed from private data, noise or times; see :data:`known`."""
key = partial(_declared, "settings", key=True)
"""A value that identifies rows; see :data:`known`."""


def part(row: type[Row] | TableSchema) -> Any:
    """Return a field with another row, or a list of rows."""
    table = row if isinstance(row, TableSchema) else row.table
    return field(default=None, metadata={"part": table})


def like(row: type[Row], name: str, **changes: str) -> Any:
    """Return a field with the declaration of another row's, changed where it differs."""
    text = {item.name: item.metadata for item in fields(row)}[name]  # type: ignore[arg-type]
    return field(default=None, metadata={**text, "column": text["column"] | changes})


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Row:
    """Base of typed rows; a subclass is a frozen dataclass.

    The first paragraph of its docstring describes one row. Fields without a declaration are
    refused. A reserved word as a name ends in ``_``.
    """

    table: ClassVar[TableSchema]

    def __init_subclass__(cls, name: str = "") -> None:
        super().__init_subclass__()
        # methods common to all rows: separate ones would take a tenth of the start-up time
        dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)
        row = inspect.cleandoc(cls.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
        columns: dict[bool, list[Column]] = {True: [], False: []}
        nested = {}
        for item in fields(cls):  # type: ignore[arg-type]
            if "part" in item.metadata:
                nested[item.name.rstrip("_")] = item.metadata["part"]
                continue
            dtype = DTYPES.get(str(item.type), "any")
            text = {"name": item.name.rstrip("_"), "dtype": dtype} | item.metadata["column"]
            if text["unit"] is None:
                text["unit"] = UNITS.get(text["name"].rpartition("_")[2], "")
            columns[item.metadata["key"]].append(Column(**text))
        plain = f"{row[:1].lower()}{row[1:]}".rstrip(".")
        cls.table = TableSchema(name, plain, tuple(columns[True]), tuple(columns[False]), nested)

    def __init__(self, **values: Any) -> None:
        names = {item.name for item in fields(self)}  # type: ignore[arg-type]
        if unknown := values.keys() - names:
            raise TypeError(f"{type(self).__name__} has no fields {sorted(unknown)}")
        vars(self).update(dict.fromkeys(names) | values)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"{name!r} of {type(self).__name__} cannot be changed")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).items()))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({values})"

    @classmethod
    def of(cls, source: object, **given: Any) -> Self:
        """Return a row from attributes of an object, with the given values in their place."""
        names = [item.name for item in fields(cls)]  # type: ignore[arg-type]
        return cls(**{name: getattr(source, name, None) for name in names} | given)

    @classmethod
    def read(cls, document: Json) -> Json:
        """Return the values of a document at the places of their columns."""
        entries: Json = {}
        for column in cls.table.columns:
            *parents, last = column.place.split(".")
            here: Any = document
            for parent in parents:
                here = here.get(parent, {})
            if last in here:
                entries[column.name] = here[last]
        return entries

    def as_dict(self) -> Json:
        """Return the values by name, with rows as dicts."""
        current = ((item.name, getattr(self, item.name)) for item in fields(self))  # type: ignore[arg-type]
        return {name.rstrip("_"): as_plain(value) for name, value in current}


def as_plain(value: Any) -> Any:
    """Return rows, also in lists, as dicts; everything else as it is."""
    if isinstance(value, Row):
        return value.as_dict()
    return [as_plain(item) for item in value] if isinstance(value, list | tuple) else value


def setting_columns(settings: type[Part]) -> tuple[Column, ...]:
    """Return a column per setting: public, except the seed."""
    return tuple(
        Column(
            name,
            "private" if name == "seed" else "settings",
            name.replace("_", " ").capitalize(),
            item.help,
            item.unit,
            _dtype(item.choices, name, settings),
        )
        for name, item in settings_of(settings).items()
    )


def _dtype(choices: Collection[str], name: str, settings: type[Part]) -> Dtype:
    """Return the kind of a setting's values: of its default, where that is a plain one."""
    default = getattr(settings, name, None)
    if choices:
        return "text"
    if isinstance(default, bool):
        return "flag"
    return "number" if isinstance(default, int | float) else "any"


def first_of_each(*columns: Column) -> tuple[Column, ...]:
    """Return columns, the first of each name."""
    return tuple(
        {column.name: column for column in reversed(columns)}[name]
        for name in dict.fromkeys(column.name for column in columns)
    )


def merged(item: TableSchema, other: TableSchema) -> TableSchema:
    """Return the table with the columns of both; those of the first take precedence."""
    keys = first_of_each(*item.keys, *other.keys)
    values = first_of_each(*item.value_columns, *other.value_columns)
    return TableSchema(item.name, f"{item.row}, or {other.row}", keys, values)


def publish(value: Any, schema: Column | TableSchema, *, protected: bool) -> Any:
    """Return the public part of a document: private entries are None, undeclared ones left out.

    Parameters
    ----------
    schema : Column or TableSchema
        Declares the value: one value, one row or a list of rows.
    protected : bool
        True if messages have noise, so that functions of releases may be published.
    """
    if isinstance(schema, Column):
        return value if schema.shown(protected=protected) else None
    if isinstance(value, list | tuple):
        if not any(column.shown(protected=protected) for _, column in schema.flat()):
            return None  # the number of rows would disclose it
        return [publish(row, schema, protected=protected) for row in value]
    if value is None:
        return None
    return {
        name: publish(value[name], entry, protected=protected)
        for name, entry in schema.entries.items()
        if name in value
    }


def publish_table(
    frame: DataFrame, table: TableSchema, unprotected: Collection[str] = ()
) -> DataFrame:
    """Return the public part of a table; empty where only its keys are public.

    Parameters
    ----------
    unprotected : collection of str
        Runs without noise. Their rows are left out of tables with functions of releases, and in the
        table of runs such values are empty.
    """
    added = [name for name in ("run", "step") if name in frame and name not in table.names]
    shown = [name for name in table.published(protected=True) if name in frame]
    public_frame = frame[added + shown]
    if not set(shown) - {column.name for column in table.keys}:
        return public_frame.iloc[:0]
    if not unprotected or "run" not in frame:
        return public_frame
    noise_free = frame["run"].isin(unprotected)
    public = {*added, *table.published(protected=False)}
    if table.name == "runs":
        hidden = [name for name in public_frame if name not in public]
        return public_frame.assign(
            **{name: public_frame[name].where(~noise_free, None) for name in hidden}
        )
    return public_frame if public >= set(public_frame) else public_frame[~noise_free]
