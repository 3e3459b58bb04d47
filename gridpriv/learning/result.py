"""Result of a learning run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version

import pandas as pd

from gridpriv.core.arrays import Floats
from gridpriv.core.display import html_page, shown
from gridpriv.core.document import Json
from gridpriv.core.tables import publish
from gridpriv.core.text import json_ready
from gridpriv.learning.rows import Evaluated, LearnDocument, LearnTiming
from gridpriv.learning.settings import LearnSettings
from gridpriv.learning.summary import figures, privacy_figures, sentences, title
from gridpriv.learning.trained import TrainedModel
from gridpriv.privacy.mechanism import Charge


@dataclass(frozen=True, eq=False, repr=False)
class LearnResult:
    """A finished learning run.

    Attributes
    ----------
    dataset : dict
        Name, samples, features, classes, norm, clipped rows and source.
    settings : LearnSettings
    clients : DataFrame
        One row per client: samples, and its loss at the global model.
    rounds : DataFrame
        One row per round; loss and test figures are NaN where they were not evaluated.
    w : (J, K)
        Global model.
    local : (P, J, K)
        Local models.
    privacy : dict
        See :func:`gridpriv.learning.accounting.privacy_statement`.
    model : TrainedModel
        The global model, ready to predict and to be written to a file.
    timing : LearnTiming
        Seconds.
    charges : mapping
        Of every client.
    """

    dataset: Json
    settings: LearnSettings
    clients: pd.DataFrame
    rounds: pd.DataFrame
    w: Floats
    local: Floats
    privacy: Json
    model: TrainedModel
    timing: LearnTiming
    charges: Mapping[int, Mapping[Charge, int]] = field(default_factory=dict)

    def __repr__(self) -> str:
        error = self.final["test_error"]
        return f"LearnResult({title(self.as_dict())}, test error {shown(error)})"

    def _repr_html_(self) -> str:
        document = self.as_dict()
        return html_page(
            [figures(document), privacy_figures(document["privacy"])],
            sentences(document),
        )

    @property
    def final(self) -> dict[str, float]:
        """Figures after the last round."""
        last = self.rounds.iloc[-1]
        return {name: float(last[name]) for name in Evaluated.table.names}

    def as_dict(self, *, public: bool = False) -> Json:
        """Return the run as JSON can hold it; with ``public`` what follows from releases alone."""
        if public:
            published: Json = publish(self.as_dict(), LearnDocument.table, protected=True)
            return published
        document = {
            "case": self.dataset["name"],
            "dataset": self.dataset,
            "clients": self.clients.to_dict("records"),
            "settings": self.settings.as_dict(),
            "rounds": self.rounds.to_dict("records"),
            "final": self.final,
            "privacy": self.privacy,
            "solver": {
                "name": self.settings.algorithm,
                "version": version("gridpriv"),
                "solves": len(self.rounds),
                "failures": 0,
                "seconds_per_solve": float(self.rounds["seconds"].mean()),
            },
            "timing": self.timing.as_dict(),
            "seed": self.settings.seed,
            "version": version("gridpriv"),
        }
        cleaned: Json = json_ready(document)
        return cleaned
