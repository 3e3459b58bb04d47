"""Tables and documents of learning runs: every figure, its unit, and who may see it.

How many training samples a client has is public: noise is calibrated to it. Under calibration
``sound`` models follow from releases alone. What is measured on them with samples is private: of
training samples, which a certificate covers, and of test samples, which none does.
"""

from __future__ import annotations

from gridpriv.core.tables import Column, Schema, TableSchema, setting_columns
from gridpriv.learning.settings import LearnSettings
from gridpriv.privacy.schema import (
    ADJACENCY,
    ASSUMED,
    BOUND_SOURCE,
    PER_RELEASE,
    RATIO,
    STATED,
    TOTAL,
)

ROUND = Column("round", "settings", "Round", "from 1")
SEED = Column("seed", "private", "Seed", "of splits, samples and the simulated noise", dtype="any")
SECONDS = Column("seconds", "private", "Time", "wall clock", "s")
NOISE = Column("noise_magnitude", "private", "Noise magnitude", "sum of |noise| over coordinates")
RESIDUAL = Column(
    "consensus_residual",
    "releases",
    "Distance of local models",
    "2-norm of local models less the global one",
)
OBJECTIVE = Column("objective", "private", "Objective", "mean loss plus regularizer")
TRAIN_LOSS = Column(
    "train_loss",
    "private",
    "Training loss",
    "at the global model, mean over "
    "clients of their means; with ryu-kim, whose objective it is, over samples",
)
ACCURACY = Column("test_accuracy", "private", "Test accuracy", "of the global model")
ERROR = Column(
    "test_error",
    "private",
    "Test error",
    "of the global model: share of wrong classes, or mean squared error",
)

ROUNDS = TableSchema(
    "rounds",
    "one round of one learning run",
    (ROUND,),
    (
        OBJECTIVE,
        RESIDUAL,
        NOISE,
        TRAIN_LOSS,
        ACCURACY,
        ERROR,
        Column("local_loss", "private", "Local loss", "mean, of every client's own model"),
        Column("local_error", "private", "Local test error", "mean over clients' own models"),
        SECONDS,
    ),
)
CLIENT = Column("client", "settings", "Client", "from 1", dtype="any")
CLIENTS = TableSchema(
    "clients",
    "one client",
    (CLIENT,),
    (
        Column("samples", "settings", "Samples", "training samples of the client"),
        Column("variables", "settings", "Variables", "of the model"),
        TRAIN_LOSS,
    ),
)

# of a comparison, whose tables are read beside those of grids
TEST_ERROR = Column("test_error_pct", "private", "Test error", "of the global model", "%")
TEST_MSE = Column("test_mse", "private", "Test mean squared error", "of the global model")
MEAN_OBJECTIVE = Column("mean_objective", "private", "Objective", "as training loss", "mean loss")
DISAGREEMENT = Column(
    "consensus_residual_max", "private", "Distance of local models", RESIDUAL.meaning
)
LOCAL_ERROR = Column(
    "local_error_pct", "private", "Test error of local models", "mean over clients' own models", "%"
)
LOCAL_MSE = Column(
    "local_mse", "private", "Squared error of local models", "mean over clients' own models"
)
LOCAL_LOSS = Column("local_loss", "private", "Loss of local models", "mean, over training samples")
MEASURED = (
    Column(
        "normalized_error",
        "private",
        "Normalized error",
        "sum of squared distances to the centralized solution over its squared norm",
    ),
    Column("augmented_objective", "private", "Augmented objective", "of Huang et al."),
    Column("accounted", "settings", "Total privacy loss", "epsilon by an accounting"),
)
FIGURES = (TEST_ERROR, TEST_MSE, LOCAL_ERROR, LOCAL_MSE, MEAN_OBJECTIVE, LOCAL_LOSS, DISAGREEMENT)
COMPARED_ROUNDS = TableSchema(
    "rounds",
    "one evaluated round of one learning run",
    (ROUND,),
    (NOISE, *FIGURES, *MEASURED),
)
FINALS = (
    ADJACENCY,
    Column(
        "client_rounds", "settings", "Client-rounds", "rounds times clients of a round", dtype="any"
    ),
    Column("tuned", "releases", "Tuned", "what was chosen from the declared grid", dtype="any"),
    *FIGURES,
    NOISE,
    *MEASURED,
)
STATEMENTS = TableSchema(
    "statements",
    "the privacy of one client in one run",
    (CLIENT,),
    (
        ASSUMED,
        Column("sensitivity", "releases", "Sensitivity", "proven, of the last release"),
        RATIO,
        Column("scale", "releases", "Noise scale", "of the last release"),
        BOUND_SOURCE,
    ),
)

LEARN_DOCUMENT: dict[str, Schema] = {
    "case": Column("case", "settings", "Data set", "by name", dtype="text"),
    "dataset": TableSchema(
        "dataset",
        "the data set",
        (),
        (
            Column("name", "settings", "Name", "of the data set"),
            Column("train_samples", "settings", "Training samples", "how many"),
            Column("test_samples", "settings", "Test samples", "how many"),
            Column("features", "settings", "Features", "of a sample"),
            Column("classes", "settings", "Classes", "0 for a regression"),
            Column("norm", "settings", "Norm bound", "public, of a sample's features", dtype="any"),
            Column("clipped", "private", "Clipped", "rows clipped to public bounds"),
            Column("source", "settings", "Source", "in words"),
        ),
    ),
    "clients": CLIENTS,
    "settings": TableSchema(
        "settings", "the settings of a learning run", (), setting_columns(LearnSettings)
    ),
    "rounds": ROUNDS,
    "final": {c.name: c for c in (OBJECTIVE, RESIDUAL, TRAIN_LOSS, ACCURACY, ERROR)},
    "privacy": {
        **{c.name: c for c in STATED},
        "releases_per_client": Column(
            "releases_per_client", "releases", "Releases per client", "of the client that made most"
        ),
        "per_release": PER_RELEASE,
        "noise_multiplier": Column(
            "noise_multiplier", "releases", "Noise multiplier", "least noise scale over sensitivity"
        ),
        "total_pure": Column("total_pure", "releases", "Pure total epsilon", "of the worst client"),
        "total": TableSchema(
            "total",
            "all releases of the worst client",
            (),
            (Column("nominal", "settings", "Claimed total", "that the settings state"), *TOTAL),
        ),
        "zcdp": Column("zcdp", "releases", "Total rho", "of zero-concentrated privacy"),
        "published_total": Column(
            "published_total", "settings", "The paper's total", "no certificate"
        ),
        "sensitivity": STATEMENTS,
        "notes": Column("notes", "releases", "Notes", "on the certificate"),
    },
    "solver": TableSchema(
        "solver",
        "the algorithm",
        (),
        (
            Column("name", "settings", "Algorithm", "by name"),
            Column("version", "settings", "Version", "of gridpriv"),
            Column("solves", "releases", "Rounds", "that were finished"),
            Column("failures", "private", "Failures", "always 0"),
            Column("seconds_per_solve", "private", "Time of a round", "wall clock", "s"),
        ),
    ),
    "timing": TableSchema(
        "timing",
        "how long one run took",
        (),
        tuple(
            Column(part, "private", part.capitalize(), "wall clock", "s")
            for part in ("load", "build", "solve", "total")
        ),
    ),
    "seed": SEED,
    "version": Column("version", "settings", "Version", "of gridpriv"),
}
TIMING = TableSchema(
    "timing",
    "how long one learning run took",
    (),
    (Column("round_seconds", "private", "Median round", "wall clock", "s"),),
)
TABLES = (COMPARED_ROUNDS, STATEMENTS, CLIENTS, TIMING)
