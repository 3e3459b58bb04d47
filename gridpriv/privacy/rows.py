"""Privacy block of a document: its figures and who may see them."""

from __future__ import annotations

from gridpriv.core.tables import Number, Row, Text, known, released


class NoiseBlock(Row):
    """The noise of a run and what it protects."""

    mechanism: Text = known("Mechanism: of the noise")
    perturbation: Text = known("Perturbation: what carries the noise")
    sensitivity_bound: Text = known("Sensitivity bound: proven or published")
    noise: Text = known("Noise: simulated or secure")
    caveat: Text = known("Caveat: what the noise's source means for privacy")
    adjacency: Text = known("Adjacency: what is protected, in words")


class PerRelease(Row, name="per_release"):
    """One release."""

    nominal: Number = known("Nominal epsilon: epsilon of one release according to the settings")
    certified: Number = released("Certified epsilon: under a proven sensitivity")
    delta: Number = known("Delta: at which epsilon is stated")


class TotalEpsilon(Row, name="total"):
    """All releases of the worst zone."""

    epsilon: Number = released("Total epsilon: at delta")
    delta: Number = known("Delta: the target delta")


class Bound(Row):
    """A sensitivity and the noise that is calibrated to it."""

    assumed: float = released("Assumed sensitivity: that the noise is calibrated to")
    sensitivity: float = released("Sensitivity: proven, of the worst release")
    scale: float = released("Noise scale: of the worst release")
    bound_source: str = known("Source of the bound: where the proven sensitivity comes from")
    ratio: float = released(
        "Sound over assumed sensitivity: above 1, less privacy is delivered than stated"
    )


class Certificate(Row):
    """Epsilons of a run, nominal and certified: of its worst zone or client."""

    releases_per_zone: Number = released(
        "Releases per zone: of the zone that made most", at="privacy.releases_per_zone"
    )
    releases_per_client: Number = released(
        "Releases per client: of the client that made most", at="privacy.releases_per_client"
    )
    epsilon_claimed: Number = known(
        "Claimed epsilon per release: that the settings state", at="privacy.per_release.nominal"
    )
    epsilon_certified: Number = released(
        "Certified epsilon per release: of the worst release, under a proven sensitivity",
        at="privacy.per_release.certified",
    )
    release_delta: Number = known(
        "Delta per release: at which those two are stated", at="privacy.per_release.delta"
    )
    total_pure: Number = released(
        "Pure total epsilon: by basic composition", at="privacy.total_pure"
    )
    total_epsilon: Number = released(
        "Total epsilon: of all releases, at the target delta", at="privacy.total.epsilon"
    )
    target_delta: Number = known("at delta: at which totals are stated", at="privacy.total.delta")
    published_total: Number = known(
        "Paper's theorem 4.6 (no certificate): the total that the paper states",
        at="privacy.published_total",
    )
    protection: Text = known("Protected: change of the data that noise hides")
