"""Messages of a study, by code; those of a run are in :mod:`gridpriv.zonal.messages`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from gridpriv.core.text import make_message, read_templates

TEMPLATES = read_templates(Path(__file__).with_suffix(".txt"))
message = partial(make_message, TEMPLATES)
