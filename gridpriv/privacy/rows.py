"""Privacy block of a document: its figures and who may see them."""

from __future__ import annotations

from gridpriv.core.tables import Number, Row, Text, known, released


class NoiseBlock(Row):
    """The noise of a run and what it protects."""

    mechanism: Text = known("Mechanism: mechanism that draws the noise")
    perturbation: Text = known("Perturbation: perturbed quantity")
    sensitivity_bound: Text = known(
        "Sensitivity bound: kind of sensitivity bound, proven or published"
    )
    noise: Text = known("Noise: source of randomness, simulated or secure")
    caveat: Text = known("Caveat: consequence of the noise's source for privacy")
    adjacency: Text = known("Adjacency: description of the protected change")


class PerRelease(Row, name="per_release"):
    """One release."""

    nominal: Number = known("Nominal epsilon: epsilon of one release according to the settings")
    certified: Number = released("Certified epsilon: epsilon under a proven sensitivity")
    delta: Number = known("Delta: delta that goes with epsilon")


class TotalEpsilon(Row, name="total"):
    """All releases of the worst zone."""

    epsilon: Number = released("Total epsilon: total epsilon at the delta of the same row")
    delta: Number = known("Delta: target delta")


class Bound(Row):
    """A sensitivity and the noise that is calibrated to it."""

    assumed: float = released("Assumed sensitivity: sensitivity that sets the noise scale")
    sensitivity: float = released("Sensitivity: largest proven sensitivity of a release")
    scale: float = released("Noise scale: noise scale of the release with the largest epsilon")
    bound_source: str = known("Source of the bound: derivation or page of the proven sensitivity")
    ratio: float = released(
        "Sensitivity ratio: proven sensitivity divided by the one that sets the noise scale; "
        "above 1 the nominal epsilon is not met"
    )


class Certificate(Row):
    """Epsilons of a run, nominal and certified: of its worst zone or client."""

    releases_per_zone: Number = released(
        "Releases per zone: largest number of releases of one zone", at="privacy.releases_per_zone"
    )
    releases_per_client: Number = released(
        "Releases per client: largest number of releases of one client",
        at="privacy.releases_per_client",
    )
    epsilon_claimed: Number = known(
        "Nominal epsilon per release: epsilon of one release according to the settings",
        at="privacy.per_release.nominal",
    )
    epsilon_certified: Number = released(
        "Certified epsilon per release: largest epsilon of a release under a proven sensitivity",
        at="privacy.per_release.certified",
    )
    release_delta: Number = known(
        "Delta per release: delta of the nominal and the certified epsilon per release",
        at="privacy.per_release.delta",
    )
    total_pure: Number = released(
        "Pure total epsilon: total epsilon (pure DP) by basic composition", at="privacy.total_pure"
    )
    total_epsilon: Number = released(
        "Total epsilon: total epsilon of all releases at the target delta",
        at="privacy.total.epsilon",
    )
    target_delta: Number = known("at delta: delta of the totals", at="privacy.total.delta")
    published_total: Number = known(
        "Paper's theorem 4.6 (no certificate): total epsilon stated by the paper's theorem",
        at="privacy.published_total",
    )
    protection: Text = known("Protected: change of the data that the noise hides")
