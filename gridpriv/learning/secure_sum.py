r"""Secure aggregation: sums of clients' values with distributed noise; the server sees only sums.

A trusted server would add noise of scale sigma to the sum of n clients' values, once. Here the
server is not trusted: every client adds a *share* of the noise and masks that cancel in the sum
(Bonawitz et al. 2017), so the server sees only the noisy sum.

*Whole numbers.* A value x (d coordinates) is sent as round(x/g), g the public step. Adjacent data
are at a distance of at most D, so their whole numbers are at most D/g + sqrt(d) apart: every
coordinate is rounded by at most 1/2 on either side. The charged distance is D + g sqrt(d). Sums are
taken modulo 2^64, which is above every sum of noisy values.

*Noise.* Every client adds discrete Gaussian noise of variance s^2 (in steps). Of n clients up to
``dropouts`` may be lost and ``colluding`` may reveal their shares to the server, so a sum has at
least h = n - dropouts - colluding secret shares. The sum of h discrete Gaussians of variance s^2
differs from one of variance h s^2 by a factor within e^(+-tau) in every coordinate, tau = 10
sum_{j<h} exp(-2 pi^2 s^2 j/(j + 1)) (Kairouz, Liu and Steinke 2021, theorem 12), which is below
e^(-10^6) for s >= 2^9. One discrete Gaussian of variance h s^2 in turn is continuous noise of
variance h s^2 - r^2, rounded at random independently of data, up to a factor of 1 +- 2 exp(-2 pi^2
r^2) (Peikert 2010, theorem 3.1; see :class:`gridpriv.privacy.mechanism.SecureGaussian`). So with r
= 8 a release costs as much as Gaussian noise of scale sqrt(h) s g (1 - r^2/(2 h s^2)) at distance D
+ g sqrt(d). The variance of the noise in the sum of all n is n/h times that of a trusted server.

*Masks.* Clients i and j agree on a key by Diffie-Hellman (X25519), fresh in every round, and expand
it to d numbers, which i adds and j subtracts. Every client also adds its own mask, and sends shares
(Shamir 1979) of that mask's seed and of its key, encrypted for each other client. The server
requests shares of the seeds of clients whose masked value has arrived, and shares of the keys of
lost clients, but never both of one client: clients refuse that. n - dropouts shares recover a
secret, so fewer than n - dropouts colluding clients learn nothing. The server and colluding clients
follow the protocol and may keep all that they see.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridpriv.consensus.transport import Transport, call
from gridpriv.core.arrays import Floats
from gridpriv.core.errors import InputError, missing_extra, not_allowed
from gridpriv.privacy.mechanism import Charge, Gaussian, Stream, Wrapped

Residues = NDArray[np.uint64]
Lost = Sequence[set[int]] | None
SHARE_STEPS = 2.0**10  # least scale of a share of noise, in steps of the grid
SMOOTHING = 8.0  # r of the derivation, in steps
ROUNDING = 1e-3  # of a client's distance: largest increase by rounding to the grid
PRIME = 2**521 - 1  # of the finite field of secret sharing
KEY = 32  # bytes of a key or seed


@dataclass(frozen=True)
class SumRule:
    """Number of clients of a sum, and of those that may collude or be lost.

    Attributes
    ----------
    clients : int
        n.
    colluding : int
        Clients that may reveal all their data to the server.
    dropouts : int
        Clients that may be lost in a round.
    """

    clients: int
    colluding: int = 0
    dropouts: int = 0

    def __post_init__(self) -> None:
        if self.honest < 1:
            raise not_allowed(
                "colluding and dropouts",
                f"{self.colluding} and {self.dropouts}",
                f"together fewer than the {self.clients} clients: the others' noise protects",
            )

    @property
    def needed(self) -> int:
        """Least number of clients in a sum, and of shares that recover a secret."""
        return self.clients - self.dropouts

    @property
    def honest(self) -> int:
        """Least number of secret shares of noise in a sum: h."""
        return self.clients - self.dropouts - self.colluding


@dataclass(frozen=True)
class SharedGaussian(Wrapped):
    """Gaussian noise on the mean of n clients' values; every client adds a share of it.

    Attributes
    ----------
    noise : Gaussian
        Least noise of the honest clients, on the mean.
    rule : SumRule
    step : float
        g/n: the grid of the mean.
    dimension : int
        d.
    """

    rule: SumRule
    step: float
    dimension: int

    @property
    def share(self) -> float:
        """Scale of a client's share of the noise, in steps of the grid."""
        return self.noise.scale / (self.step * math.sqrt(self.rule.honest))

    @property
    def variance(self) -> float:
        """Variance of the noise on one coordinate of the mean: that of all n shares."""
        return self.noise.variance * self.rule.clients / self.rule.honest

    def perturb(self, value: Floats, stream: Stream) -> Floats:
        """Return a mean of values on the grid with simulated noise; all shares in one draw."""
        scale = self.share * math.sqrt(self.rule.clients)
        noise = np.rint(stream().normal(scale=scale, size=value.shape))
        return np.asarray(value + self.step * noise)

    def charge(self, distance: float) -> Charge:
        """Return the Gaussian mechanism, less smoothing, at a distance widened by rounding."""
        lost = SMOOTHING**2 / (2.0 * self.rule.honest * self.share**2)
        widened = distance + self.step * math.sqrt(self.dimension)
        return Charge("gaussian", self.noise.scale * (1.0 - lost) / widened)


def shared_gaussian(
    multiplier: float, distance: float, rule: SumRule, dimension: int
) -> SharedGaussian:
    """Return noise of a multiplier on a mean that changes by ``distance`` between adjacent data.

    The grid is a power of two, so that whole steps are exact in floating point, and so fine that
    rounding adds at most :data:`ROUNDING` of the distance and a share has :data:`SHARE_STEPS`.
    """
    share = multiplier * distance / math.sqrt(rule.honest)
    finest = min(ROUNDING * distance / math.sqrt(dimension), share / SHARE_STEPS)
    step = 2.0 ** math.floor(math.log2(finest))
    lost = SMOOTHING**2 / (2.0 * SHARE_STEPS**2 * rule.honest)
    scale = multiplier * (distance + step * math.sqrt(dimension)) / (1.0 - lost)
    return SharedGaussian(Gaussian(scale), rule, step, dimension)


def on_grid(values: Floats, step: float) -> Floats:
    """Return the nearest whole steps of values, as floats.

    Raises
    ------
    InputError
        If a value is not finite or so large that sums could reach the modulus.
    """
    steps = np.rint(values / step)
    if not np.isfinite(steps).all() or np.abs(steps).max(initial=0.0) >= 2.0**52:
        raise InputError(
            "a client's value is not finite or too large for the grid of the sum"
            ": clip the values (--clip)"
        )
    return np.asarray(steps)


@dataclass(eq=False)
class SumClient:
    """A client's side of the protocol: it has a private value and sends masked sums.

    Parameters
    ----------
    number : int
        Position, 0 to n - 1.
    rule : SumRule
    share : float
        Scale of its share of the noise, in steps; 0 for none.
    steps : (d,) float
        Private value of the round, in whole steps (:func:`on_grid`).
    """

    number: int
    rule: SumRule
    share: float
    steps: Floats
    _received: dict[int, bytes] = field(default_factory=dict, repr=False)
    _revealed: bool = False

    def keys(self) -> tuple[bytes, bytes]:
        """Draw fresh keys; return the public parts, for masks and for encryption."""
        x25519 = _x25519()
        self._mask = x25519.X25519PrivateKey.generate()
        self._sealing = x25519.X25519PrivateKey.generate()
        self._seed = secrets.token_bytes(KEY)
        mask, sealing = self._mask.public_key(), self._sealing.public_key()
        return mask.public_bytes_raw(), sealing.public_bytes_raw()

    def shares(self, keys: Mapping[int, tuple[bytes, bytes]]) -> dict[int, bytes]:
        """Return, encrypted for every other client, shares of the mask's key and of the seed."""
        self._keys = dict(keys)
        key = self._mask.private_bytes_raw()
        parts = [
            shamir(secret, self.rule.needed, self.rule.clients) for secret in (key, self._seed)
        ]
        pairs = [first + second for first, second in zip(*parts, strict=True)]
        self._received = {self.number: pairs[self.number]}
        return {
            other: self._sealed(other).encrypt(_nonce(self.number, other), pairs[other], None)
            for other in keys
            if other != self.number
        }

    def masked(self, sealed: Mapping[int, bytes]) -> Residues:
        """Return the value plus a share of noise plus masks, modulo 2^64.

        Parameters
        ----------
        sealed : mapping
            Shares for this client, encrypted, by the other client that sent them.
        """
        for other, text in sealed.items():
            opened = self._sealed(other).decrypt(_nonce(other, self.number), text, None)
            self._received[other] = opened
        if len(self._received) < self.rule.needed:
            raise InputError(
                f"the sum is not taken: {len(self._received)} clients take part, "
                f"{self.rule.needed} are needed"
            )
        total = self.steps.astype(np.int64) + _noise(self.share, len(self.steps))
        residues = total.view(np.uint64) + expanded(self._seed, len(self.steps))
        for other in sealed:
            mask = expanded(self._agreed(self._mask, other, 0), len(residues))
            residues = residues + mask if self.number < other else residues - mask
        return np.asarray(residues)

    def reveal(self, arrived: Sequence[int]) -> dict[int, bytes]:
        """Return this client's shares: of the seeds of clients that arrived, of the keys of others.

        Raises
        ------
        InputError
            On a second call in a round, which could request both, or where too few arrived.
        """
        if self._revealed or len(set(arrived)) < self.rule.needed:
            raise InputError(
                f"shares are revealed once a round, where {self.rule.needed} masked values or "
                f"more have arrived; {len(set(arrived))} have"
            )
        self._revealed = True
        size = len(self._received[self.number]) // 2
        return {
            other: pair[size:] if other in arrived else pair[:size]
            for other, pair in self._received.items()
        }

    def _sealed(self, other: int) -> Any:
        """Return the cipher between this client and another."""
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        return ChaCha20Poly1305(self._agreed(self._sealing, other, 1))

    def _agreed(self, key: Any, other: int, which: int) -> bytes:
        """Return the common key of this client and another."""
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        peer = _x25519().X25519PublicKey.from_public_bytes(self._keys[other][which])
        purpose = b"gridpriv secure sum %d" % which
        derived: bytes = HKDF(hashes.SHA256(), KEY, None, purpose).derive(key.exchange(peer))
        return derived


def secure_sum(transport: Transport, rule: SumRule, dimension: int, lost: Lost = None) -> Residues:
    """Return the sum of the clients' noisy values, modulo 2^64, as the server computes it.

    Parameters
    ----------
    transport : Transport
        Of :class:`SumClient`; an exception of a client counts as its loss.
    lost : sequence of four sets of int, optional
        Clients whose answer is lost on the way after each of the four messages, for tests.

    Raises
    ------
    InputError
        If more clients are lost than the rule allows; then nothing can be unmasked.
    """
    lost_clients: set[int] = set()

    def query(stage: int, calls: Any) -> dict[int, Any]:
        result = transport.call_all(calls)
        lost_clients.update(i for i, answer in enumerate(result) if isinstance(answer, Exception))
        lost_clients.update(lost[stage] if lost else ())
        if rule.clients - len(lost_clients) < rule.needed:
            reason = next((f" ({a})" for a in result if isinstance(a, Exception)), "")
            raise InputError(
                f"{len(lost_clients)} of {rule.clients} clients are lost, {rule.dropouts} may be: "
                f"the sum is not taken{reason}; raise --dropouts, or run the round again"
            )
        return {i: answer for i, answer in enumerate(result) if i not in lost_clients}

    keys = query(0, call(SumClient.keys))
    sent_shares = query(1, call(SumClient.shares, keys))
    sealed = [{j: to[i] for j, to in sent_shares.items() if i in to} for i in range(rule.clients)]
    masked = query(2, [call(SumClient.masked, item) for item in sealed])
    shown = query(3, call(SumClient.reveal, sorted(masked)))
    total = np.zeros(dimension, np.uint64)
    for residues in masked.values():
        total = total + residues
    for client in sent_shares:
        shares = {i: parts[client] for i, parts in shown.items() if client in parts}
        secret = recovered(dict(list(shares.items())[: rule.needed]))
        if client in masked:
            total = total - expanded(secret, dimension)
            continue
        own = _x25519().X25519PrivateKey.from_private_bytes(secret)
        ghost = SumClient(client, rule, 0.0, np.zeros(0))
        ghost._keys = keys
        for other in masked:  # remove the masks that others have in common with the lost client
            mask = expanded(ghost._agreed(own, other, 0), dimension)
            total = total + mask if client < other else total - mask
    return np.asarray(total)


def shamir(secret: bytes, needed: int, number: int) -> list[bytes]:
    """Return shares of a secret, of which ``needed`` recover it and fewer reveal nothing."""
    size = (PRIME.bit_length() + 7) // 8
    coefficients = [int.from_bytes(secret), *(secrets.randbelow(PRIME) for _ in range(needed - 1))]
    shares = []
    for x in range(1, number + 1):
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * x + coefficient) % PRIME
        shares.append(value.to_bytes(size))
    return shares


def recovered(shares: Mapping[int, bytes]) -> bytes:
    """Return the secret of shares by client (Lagrange interpolation at 0)."""
    points = {i + 1: int.from_bytes(share) for i, share in shares.items()}
    total = 0
    for x, value in points.items():
        above = below = 1
        for other in points:
            if other != x:
                above, below = above * other % PRIME, below * (other - x) % PRIME
        total = (total + value * above * pow(below, -1, PRIME)) % PRIME
    return total.to_bytes((PRIME.bit_length() + 7) // 8)[-KEY:]


def expanded(seed: bytes, count: int) -> Residues:
    """Return pseudorandom numbers of a seed (ChaCha20), each uniform below 2^64."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    stream = Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(8 * count)), np.uint64)


def mean_of(total: Residues, step: float) -> Floats:
    """Return a sum modulo 2^64 as numbers: of either sign, in steps of the mean's grid."""
    return np.asarray(total.view(np.int64).astype(np.float64) * step)


def _noise(share: float, count: int) -> NDArray[np.int64]:
    """Return discrete Gaussian noise (OpenDP, from the operating system's entropy)."""
    if share == 0.0:
        return np.zeros(count, np.int64)
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    noise = dp.m.make_gaussian(*space, scale=share)([0] * count)
    return np.asarray(noise, np.int64)


def _nonce(writer: int, reader: int) -> bytes:
    """Return the nonce of a sender and a receiver; keys are fresh, so it is used once per key."""
    return writer.to_bytes(6) + reader.to_bytes(6)


def _x25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import x25519
    except ImportError:
        raise missing_extra("cryptography", "network", "a secure sum") from None
    return x25519
