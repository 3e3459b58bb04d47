"""Public transforms of images: functions of one row that no other row and no training changes.

Because a transform is public and acts row by row, a certificate of what is trained on its rows is a
certificate of the images. Every transformed row has 2-norm 1.

- ``hog``: histograms of oriented gradients (Dalal and Triggs 2005) in cells of 4 x 4 pixels,
  normalized in blocks of 2 x 2 cells;
- ``scattering``: the scattering transform (Bruna and Mallat 2013) of two orders with Morlet
  wavelets of 2 scales and 8 orientations, averaged over 4 x 4 pixels, as Tramer and Boneh (2021)
  use for private learning.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import not_allowed

RAW, HOG, SCATTERING = "raw", "hog", "scattering"
TRANSFORMS = (RAW, HOG, SCATTERING)
TRANSFORMED_NORM = 1.0
CELL, ORIENTATIONS = 4, 8  # pixels of a cell's side; directions of a gradient
BLOCK_FLOOR = 0.1  # of a block's norm: flat blocks stay flat
SCALES, ANGLES = 2, 8
ROWS = 512  # transformed at once
Images = NDArray[np.floating[Any]]


def transform(name: str, x: Images) -> Images:
    """Return transformed rows, each of 2-norm 1 (0 where an image is flat).

    Parameters
    ----------
    name : {'raw', 'hog', 'scattering'}
        ``raw`` returns the rows as they are.
    x : (N, s * s)
        Square images of one channel, s a multiple of 4 and at least 8.

    Raises
    ------
    InputError
        If the rows are no such images.
    """
    if name == RAW:
        return x
    side = math.isqrt(x.shape[1])
    if side * side != x.shape[1] or side % CELL or side < 2 * CELL:
        raise not_allowed(
            "features",
            name,
            f"raw here: {x.shape[1]} columns are no square image whose side is a multiple of "
            f"{CELL}, at least {2 * CELL} pixels",
        )
    apply = {HOG: _hog, SCATTERING: _scattering}[name]
    parts = [
        _unit_rows(apply(x[first : first + ROWS].reshape(-1, side, side)))
        for first in range(0, len(x), ROWS)
    ]
    empty = [_unit_rows(apply(np.zeros((1, side, side), x.dtype)))[:0]]
    return np.concatenate(parts or empty).astype(x.dtype, copy=False)


def _unit_rows(x: Images) -> Images:
    flat = x.reshape(len(x), -1)
    lengths = np.sqrt(np.einsum("ij,ij->i", flat, flat, dtype=np.float64))[:, None]
    scaled: Images = flat * (1.0 / np.maximum(lengths, 1e-6)).astype(flat.dtype)
    return scaled


def _hog(images: Images) -> Images:
    """Return block-normalized histograms, (N, cells - 1, cells - 1, 4 * orientations)."""
    down, across = np.zeros_like(images), np.zeros_like(images)
    down[:, 1:-1] = images[:, 2:] - images[:, :-2]
    across[:, :, 1:-1] = images[:, :, 2:] - images[:, :, :-2]
    size = np.hypot(down, across)
    angle = np.arctan2(down, across) % (2.0 * math.pi) * (ORIENTATIONS / (2.0 * math.pi))
    maps = np.stack(
        [size * np.maximum(0.0, 1.0 - _circular(angle - k)) for k in range(ORIENTATIONS)], axis=1
    )
    window = _windows(images.shape[1]).astype(images.dtype)
    cells = np.moveaxis(window @ maps @ window.T, 1, -1)
    blocks = np.concatenate(
        [cells[:, :-1, :-1], cells[:, 1:, :-1], cells[:, :-1, 1:], cells[:, 1:, 1:]], axis=-1
    )
    norms = np.sqrt((blocks**2).sum(axis=-1, keepdims=True) + BLOCK_FLOOR**2)
    normalized: Images = blocks / norms
    return normalized


def _circular(steps: Images) -> Images:
    """Return the distance of directions in steps, around the circle."""
    around: Images = np.abs((steps + ORIENTATIONS / 2.0) % ORIENTATIONS - ORIENTATIONS / 2.0)
    return around


@cache
def _windows(side: int) -> Floats:
    """Return triangular weights of pixels in cells, (cells, side)."""
    centres = (np.arange(side // CELL) + 0.5) * CELL - 0.5
    weights: Floats = np.maximum(0.0, 1.0 - np.abs(np.arange(side) - centres[:, None]) / CELL)
    return weights


def _scattering(images: Images) -> Images:
    """Return scattering coefficients, (N, 1 + 16 + 64, s/4, s/4), each order divided by the last.

    An order is divided by the coefficient that it comes from: the first by the mean, the second
    by the first, so that no order outweighs another (Anden and Mallat 2014, for sounds).
    """
    import scipy.fft

    low, bands = _wavelets(images.shape[1])
    step = 2**SCALES

    def averaged(spectrum: Any) -> Images:
        smooth = scipy.fft.ifft2(spectrum * low).real
        return np.asarray(smooth[..., ::step, ::step], dtype=images.dtype)

    spectrum = scipy.fft.fft2(images)
    mean = averaged(spectrum)
    orders = [0.2 * mean[:, None]]
    for scale in range(SCALES):
        first = scipy.fft.fft2(np.abs(scipy.fft.ifft2(spectrum[:, None] * bands[scale])))
        once = averaged(first)
        orders.append(once / (np.abs(mean[:, None]) + 0.1))
        for finer in range(scale + 1, SCALES):
            for angle in range(ANGLES):
                inner = np.abs(scipy.fft.ifft2(first[:, angle, None] * bands[finer]))
                twice = averaged(scipy.fft.fft2(inner))
                orders.append(twice / (np.abs(once[:, angle, None]) + 0.05))
    return np.concatenate(orders, axis=1)


@cache
def _wavelets(side: int) -> tuple[Floats, tuple[Floats, ...]]:
    """Return the spectra of the low-pass filter (s, s) and of Morlet wavelets, a scale (8, s, s).

    A Gabor wave exp(i xi u - ||u||^2/(2 sigma^2)), with the envelope elongated across the wave,
    less a multiple of its envelope so that its mean is 0.
    """
    axis = np.fft.fftfreq(side) * side
    v, u = np.meshgrid(axis, axis, indexing="ij")

    def envelope(sigma: float, slant: float, angle: float) -> Floats:
        along = u * math.cos(angle) + v * math.sin(angle)
        across = v * math.cos(angle) - u * math.sin(angle)
        values: Floats = np.exp(-(along**2 + (slant * across) ** 2) / (2.0 * sigma**2))
        return np.asarray(values / values.sum())

    low = np.fft.fft2(envelope(0.8 * 2 ** (SCALES - 1), 1.0, 0.0)).real
    bands = []
    for scale in range(SCALES):
        spectra = []
        for k in range(ANGLES):
            angle, frequency = math.pi * k / ANGLES, 0.75 * math.pi / 2**scale
            shape = envelope(0.8 * 2**scale, 4.0 / ANGLES, angle)
            wave = shape * np.exp(1j * frequency * (u * math.cos(angle) + v * math.sin(angle)))
            spectra.append(np.fft.fft2(wave - wave.sum() / shape.sum() * shape).real)
        bands.append(np.stack(spectra))
    return low, tuple(bands)
