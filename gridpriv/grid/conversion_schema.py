"""Document of a conversion between case formats: figures, units, visibility."""

from __future__ import annotations

from gridpriv.core.tables import Column, Schema, TableSchema, by_name

FILE = (
    Column("file", "settings", "File", "name of the file"),
    Column("format", "settings", "Format", "format of the file, and its reader"),
)
CONVERSION: dict[str, Schema] = {
    **by_name(Column("case", "settings", "Case", "name of the grid")),
    "source": by_name(*FILE),
    "target": by_name(*FILE),
    **by_name(
        Column("buses", "settings", "Buses", "number of buses in service"),
        Column("branches", "settings", "Branches", "number of branches in service"),
        Column("generators", "settings", "Generators", "number of generators in service"),
        Column("load_mw", "private", "Load", "sum of active demand", "MW"),
        TableSchema(
            "differences",
            "one figure of the source in the new file",
            (Column("field", "settings", "Figure", "name of the figure"),),
            (
                Column("status", "private", "Status", "kept, changed or lost"),
                Column("count", "private", "Elements", "number of elements that differ"),
                Column("largest", "private", "Difference", "largest relative difference"),
            ),
        ),
        TableSchema(
            "unsupported",
            "one field of the source that is not modelled",
            (Column("field", "settings", "Field", "table and column in the source"),),
            (
                Column("status", "settings", "Status", "unsupported"),
                Column("count", "settings", "Rows", "number of rows"),
                Column("note", "settings", "Note", "treatment of the field"),
                Column("left_out", "settings", "Left out", "the power balance may differ by it"),
            ),
        ),
    ),
}
