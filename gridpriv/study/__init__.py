"""Studies: a plan (a grid of settings), a runner (processes or a cluster), a store (a folder)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridpriv.core.lazy import lazily

if TYPE_CHECKING:
    from gridpriv.core.store import Study, read_study
    from gridpriv.study.comparison import compare
    from gridpriv.study.methods import Method
    from gridpriv.study.plan import StudyPlan, StudyTask, make_plan, read_plan

__all__ = [
    "Method",
    "Study",
    "StudyPlan",
    "StudyTask",
    "compare",
    "make_plan",
    "read_plan",
    "read_study",
]

__getattr__, __dir__ = lazily(__name__)
