"""Studies: a plan (a grid of settings), a runner (processes or a cluster), a store (a folder)."""

from gridpriv.core.stored import Study, read_study
from gridpriv.study.compare import compare
from gridpriv.study.files import read_plan
from gridpriv.study.plan import Scheme, StudyPlan, Task, make_plan

__all__ = [
    "Scheme",
    "Study",
    "StudyPlan",
    "Task",
    "compare",
    "make_plan",
    "read_plan",
    "read_study",
]
