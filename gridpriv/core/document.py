"""Documents and rows: entries by name, of what JSON can hold.

:mod:`gridpriv.core.tables` declares, for each that is stored or exported, what its entries are.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
