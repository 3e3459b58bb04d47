"""Document of a conversion between case formats: figures, units, visibility."""

from __future__ import annotations

from gridpriv.core.tables import Flag, Number, Row, Text, key, known, part, private


class CaseFile(Row):
    """A case file."""

    file: Text = known("File: name of the file")
    format: Text = known("Format: format of the file, and its reader")


class Difference(Row, name="differences"):
    """One figure of the source in the new file."""

    field: Text = key("Figure: name of the figure")
    status: Text = private("Status: kept, changed or lost")
    count: Number = private("Elements: number of elements that differ")
    largest: Number = private("Difference: largest relative difference")
    example: Text = private("Example: element of that difference, its value before and after")


class Unsupported(Row, name="unsupported"):
    """One field of the source that is not modelled."""

    field: Text = key("Field: table and column in the source")
    status: Text = known("Status: status of the field, always unsupported")
    count: Number = known("Rows: number of rows")
    note: Text = known("Note: treatment of the field")
    left_out: Flag = known("Left out: power that the conversion leaves out of the balance")


class ConversionDocument(Row, name="conversion"):
    """A conversion of a case file."""

    case: Text = known("Case: name of the grid")
    source: CaseFile = part(CaseFile)
    target: CaseFile = part(CaseFile)
    buses: Number = known("Buses: number of buses in service")
    branches: Number = known("Branches: number of branches in service")
    generators: Number = known("Generators: number of generators in service")
    load_mw: Number = private("Load: sum of active demand")
    differences: list[Difference] = part(Difference)
    unsupported: list[Unsupported] = part(Unsupported)
