"""Every reproduction of the learning papers, by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from gridpriv.learning.reproduce import Reproduction

if TYPE_CHECKING:
    from gridpriv.learning.reproduce import Bench, Outcome

_WHAT: dict[str, tuple[str, str, str, tuple[float, float]]] = {
    "rk-fig5": ("rk", "figure5", "Ryu and Kim, figure 5: MNIST", (12, 8)),
    "rk-fig6": ("rk", "figure6", "Ryu and Kim, figure 6: FEMNIST", (12, 8)),
    "rk-fig7": ("rk", "figure7", "Ryu and Kim, figure 7: penalties of the baseline", (9, 4)),
    "huang-fig1": ("huang", "figure1", "Huang et al., figure 1: number of agents, L1", (9, 4)),
    "huang-fig2": ("huang", "figure2", "Huang et al., figure 2: convergence, L1", (9, 4)),
    "huang-fig3": ("huang", "figure3", "Huang et al., figure 3: accuracy, L1", (9, 4)),
    "huang-fig4": ("huang", "figure4", "Huang et al., figure 4: number of agents, L2", (9, 4)),
    "huang-fig5": ("huang", "figure5", "Huang et al., figure 5: convergence, L2", (9, 4)),
    "huang-fig6": ("huang", "figure6", "Huang et al., figure 6: accuracy, L2", (9, 4)),
    "huang-table2": ("huang", "table2", "Huang et al., table II: computation time", (6, 4)),
    "li-fig2": ("li", "figure2", "Li et al., figure 2: total privacy loss", (9, 4)),
    "li-fig3": ("li", "figure3", "Li et al., figure 3: number of clients", (9, 4)),
    "li-fig4": ("li", "figure4", "Li et al., figure 4: local steps", (9, 4)),
    "li-fig5": ("li", "figure5", "Li et al., figure 5: against other algorithms", (9, 4)),
    "li-fig6": ("li", "figure6", "Li et al., figure 6: total privacy loss by accounting", (9, 4)),
    "gauthier-fig1": ("gauthier", "figure1", "Gauthier et al., figure 1: convergence", (11, 4)),
    "gauthier-fig2": ("gauthier", "figure2", "Gauthier et al., figure 2: trade-off", (7, 4.5)),
}


def _reproduction(name: str) -> Reproduction:
    paper, function, title, size = _WHAT[name]

    def make(bench: Bench) -> Outcome:
        module = import_module(f"gridpriv.learning.reproduce_{paper}")
        outcome: Outcome = getattr(module, function)(bench)
        return outcome

    return Reproduction(name, title, make, size)


REPRODUCTIONS: dict[str, Reproduction] = {name: _reproduction(name) for name in _WHAT}
