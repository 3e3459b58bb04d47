"""A learning run on one page: what a terminal and a notebook show of its document."""

from __future__ import annotations

from gridpriv.core.display import Table, counted, shown
from gridpriv.core.document import Json
from gridpriv.privacy.statement import noise_caveat


def title(document: Json) -> str:
    """Return the title of a run."""
    settings = document["settings"]
    noise = "no noise"
    if settings["mechanism"] != "none":
        noise = f"{settings['mechanism']} noise on the {settings['perturbation']}"
        noise += f", {settings['sensitivity']} sensitivity"
    rounds = "one solve" if _one_solve(document) else counted(settings["rounds"], "round")
    return (
        f"{document['dataset']['name']}: {settings['algorithm']}, "
        f"{counted(len(document['clients']), 'client')}, {rounds}, {noise}"
    )


def figures(document: Json) -> Table:
    """Return the table of results."""
    dataset, final = document["dataset"], document["final"]
    rows: list[list[object]] = [
        ["objective at the global model", final["objective"]],
        ["training loss", final["train_loss"]],
        ["test accuracy", final["test_accuracy"]],
        ["test error", final["test_error"]],
        ["consensus residual", final["consensus_residual"]],
        ["rows clipped to public bounds", dataset["clipped"]],
        ["norm bound", dataset["norm"]],
    ]
    if not _one_solve(document):
        rows.append(["seconds per round", document["solver"]["seconds_per_solve"]])
    rows.append(["seconds in total", document["timing"]["total"]])
    # a public document leaves out what is private
    return title(document), ["result", "value"], [row for row in rows if row[1] is not None]


def privacy_figures(privacy: Json) -> Table:
    """Return the table of nominal and certified epsilon."""
    release, total, paper = privacy["per_release"], privacy["total"], privacy["published_total"]
    return (
        "Privacy (worst client)",
        ["figure", "nominal", "certified"],
        [
            ["epsilon of one release", release["nominal"], release["certified"]],
            [
                f"total epsilon at delta {total['delta']:g}, "
                f"{counted(privacy['releases_per_client'], 'release')}",
                paper["epsilon"] if paper else total["nominal"],
                "none" if total["epsilon"] is None else total["epsilon"],
            ],
            ["total rho of zero-concentrated privacy", None, privacy["zcdp"]],
        ],
    )


def sentences(document: Json) -> list[str]:
    """Return the messages beside the figures."""
    settings, privacy, text = document["settings"], document["privacy"], []
    if settings["mechanism"] != "none":
        text.append(f"Protected: {privacy['adjacency']}.")
        text += [f"Note: {note}." for note in privacy["notes"]]
        worst = max(privacy["sensitivity"], key=lambda row: row["ratio"] or 0.0, default=None)
        if worst and worst["ratio"] and worst["ratio"] > 1.0 + 1e-9:
            text.append(
                f"The noise is calibrated to sensitivity {shown(worst['assumed'])}, but client "
                f"{worst['client']} has {shown(worst['sensitivity'])}: "
                f"{worst['bound_source'].rstrip('.')}."
            )
    caveat = noise_caveat(settings["mechanism"], settings["noise"])
    parts = [caveat.removesuffix(": no seed"), document["dataset"]["source"]]
    if document["seed"] is not None:
        of = " of splits and samples" * (settings["noise"] == "secure")
        parts.insert(1, f"seed {document['seed']}{of}")
    text.append("; ".join(parts))
    return text


def _one_solve(document: Json) -> bool:
    return bool(document["settings"]["algorithm"] == "centralized")
