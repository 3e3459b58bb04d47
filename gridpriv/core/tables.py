"""Declarations of stored and exported figures: name, title, unit, meaning, dtype and origin.

Whoever makes a table or a document declares it beside the code that makes it; units in headers,
``gridpriv schema``, the documentation and what may be published follow from the declaration.
:func:`publish` is the one way out: it keeps what is declared and public, and nothing else, so a
figure that nobody declared stays at home.

A figure's *origin* decides who may see it:

- ``settings``: known before the run (settings, topology, limits, versions): public;
- ``releases``: computed from what agents sent: public if those messages carry noise, and as
  private as the data where they do not;
- ``private``: computed from private data, from the noise, its seed, or times: local.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from gridpriv.core.settings import Part, settings_of

if TYPE_CHECKING:
    from pandas import DataFrame

Origin = Literal["settings", "releases", "private"]
"""Known before the run; computed from released values; from private data, noise or times."""
Dtype = Literal["number", "text", "flag", "any"]
"""Kind of a column's cells; ``any`` where folders of different kinds differ."""


@dataclass(frozen=True)
class Column:
    """One figure: a column of a table or an entry of a document.

    Attributes
    ----------
    origin : {'settings', 'releases', 'private'}
    title : str
        For people; headers are title and unit.
    meaning : str
        In a phrase that can stand after "title:".
    unit : str
        Empty for words, counts and figures without one.
    dtype : {'number', 'text', 'flag', 'any'}
        Of the cells; a report refuses others.
    """

    name: str
    origin: Origin
    title: str
    meaning: str
    unit: str = ""
    dtype: Dtype = "number"

    @property
    def visibility(self) -> str:
        """``public`` or ``local``."""
        return "local" if self.origin == "private" else "public"

    @property
    def header(self) -> str:
        """Title and unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def shown(self, *, protected: bool) -> bool:
        """Return True if it may be published, of a run whose messages carry noise or not."""
        return self.origin == "settings" or (self.origin == "releases" and protected)


@dataclass(frozen=True)
class TableSchema:
    """A table, or a part of a document, as its columns.

    Attributes
    ----------
    row : str
        What one row is.
    keys : tuple of Column
        What the row is about; a table of which nothing but these is public is not published.
    figures : tuple of Column
        What it says of that.
    """

    name: str
    row: str
    keys: tuple[Column, ...]
    figures: tuple[Column, ...]

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if len(set(names)) < len(names):
            raise ValueError(f"table {self.name} declares a column twice")

    @property
    def columns(self) -> tuple[Column, ...]:
        """Keys and figures."""
        return self.keys + self.figures

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column:
        """Return a column by name; ``KeyError`` if it is not declared."""
        return {column.name: column for column in self.columns}[name]

    def published(self, *, protected: bool) -> tuple[str, ...]:
        """Return the names of the columns that may be published."""
        return tuple(c.name for c in self.columns if c.shown(protected=protected))


def setting_columns(part: type[Part]) -> tuple[Column, ...]:
    """Return a column per setting: public, but for the seed."""
    return tuple(
        Column(
            name,
            "private" if name == "seed" else "settings",
            name.replace("_", " ").capitalize(),
            one.help,
            one.unit,
            _dtype(one.choices, name, part),
        )
        for name, one in settings_of(part).items()
    )


def _dtype(choices: Collection[str], name: str, part: type[Part]) -> Dtype:
    """Return the kind of a setting's values: of its default, where that is a plain one."""
    default = getattr(part, name, None)
    if choices:
        return "text"
    if isinstance(default, bool):
        return "flag"
    return "number" if isinstance(default, int | float) else "any"


Schema = Column | TableSchema | Mapping[str, "Schema"]


def by_name(*parts: Column | TableSchema) -> dict[str, Schema]:
    """Return entries of a document, each under its own name."""
    return {part.name: part for part in parts}


def publish(value: Any, schema: Schema, *, protected: bool) -> Any:
    """Return the public part of a document: private entries are None, undeclared ones left out.

    A list of rows of which no column may be published is None: their number would tell of them.

    Parameters
    ----------
    value : Any
        What JSON can hold, in the shape of its declaration.
    schema : Column, TableSchema or mapping
        A table schema stands for a row (a dict) or for a list of rows.
    protected : bool
        Whether the run's messages carry noise.
    """
    if isinstance(schema, Column):
        return value if schema.shown(protected=protected) else None
    if isinstance(value, list | tuple):
        if isinstance(schema, TableSchema) and not schema.published(protected=protected):
            return None
        return [publish(row, schema, protected=protected) for row in value]
    if value is None:
        return None
    parts = {c.name: c for c in schema.columns} if isinstance(schema, TableSchema) else schema
    return {
        key: publish(value[key], part, protected=protected)
        for key, part in parts.items()
        if key in value
    }


def publish_table(
    frame: DataFrame, table: TableSchema, unprotected: Collection[str] = ()
) -> DataFrame:
    """Return the public part of a table; empty where only its keys are public.

    Parameters
    ----------
    frame : DataFrame
        Beside declared columns it may have the keys ``run`` and ``step``.
    unprotected : collection of str
        Runs (values of the column ``run``) whose messages carry no noise. A table of figures
        from messages loses their rows; the table of runs keeps their settings.
    """
    added = [name for name in ("run", "step") if name in frame and name not in table.names]
    shown = [name for name in table.published(protected=True) if name in frame]
    kept = frame[added + shown]
    if not set(shown) - {key.name for key in table.keys}:
        return kept.iloc[:0]
    if not unprotected or "run" not in frame:
        return kept
    bare = frame["run"].isin(unprotected)
    known = {*added, *table.published(protected=False)}
    if table.name == "runs":
        hidden = [name for name in kept if name not in known]
        return kept.assign(**{name: kept[name].where(~bare, None) for name in hidden})
    return kept if known >= set(kept) else kept[~bare]
