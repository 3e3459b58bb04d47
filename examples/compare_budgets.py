"""What does privacy cost on the IEEE 14-bus grid? A small study from Python, and its report."""

import tempfile
from pathlib import Path

from gridpriv.report.export import export
from gridpriv.report.summary import summary
from gridpriv.study import Scheme, compare


def main() -> None:
    folder = Path(tempfile.mkdtemp()) / "budgets"
    study = compare(
        ["case14"],
        out=folder,
        budgets=[1, 5, 10],
        schemes=[
            Scheme("no noise", (("mechanism", "none"),)),
            Scheme("demand, once", (("perturbation", "demand"), ("refresh", "run"))),
        ],
        seeds=3,
    )
    table = summary(study)
    print(table[["series", "budget", "total_epsilon", "recourse_shed_mw", "imbalance_mw"]])
    (page,) = export(folder, ["html"])
    print(f"Open {page}")


if __name__ == "__main__":  # workers are processes, which import this file
    main()
