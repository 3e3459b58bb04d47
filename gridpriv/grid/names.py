"""Names that a source gives its buses, branches and generators."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class SourceNames:
    """Names of a source's elements; for reading only, no part of the model.

    Attributes
    ----------
    bus : dict of int to str
        By the number of the bus.
    branch, gen : tuple of str
        By the row of the source table: ``branch[case.branch_row[k] - 1]``.
    """

    bus: dict[int, str] = field(default_factory=dict)
    branch: tuple[str, ...] = ()
    gen: tuple[str, ...] = ()
