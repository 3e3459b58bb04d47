"""Studies: a plan (a grid of settings), a runner (processes or a cluster), a store (a folder)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridpriv.core.lazy import lazily

if TYPE_CHECKING:
    from gridpriv.core.store import Study as Study
    from gridpriv.core.store import read_study as read_study
    from gridpriv.study.comparison import compare as compare
    from gridpriv.study.plan import Method as Method
    from gridpriv.study.plan import StudyPlan as StudyPlan
    from gridpriv.study.plan import StudyTask as StudyTask
    from gridpriv.study.plan import make_plan as make_plan
    from gridpriv.study.plan import read_plan as read_plan

__getattr__, __dir__ = lazily(__name__)
