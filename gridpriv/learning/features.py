"""Public transforms of images: fixed functions of a single row.

Because a transform is public and acts on each row, a certificate of a training on its rows is a
certificate of the images. Every transformed row has 2-norm 1.

- ``hog``: histograms of oriented gradients (Dalal and Triggs 2005) in cells of 4 x 4 pixels,
  normalized in blocks of 2 x 2 cells;
- ``strokes``: kernel principal components of these histograms of deslanted images, under a Gaussian
  kernel. Landmarks and components are those of images of random pen strokes, drawn by a public
  program from a fixed seed: a public prior of handwriting (as Tang et al. 2023 use random
  processes). Few components of equal size need less noise, and fewer steps, than thousands of
  histogram cells.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gridpriv.core.arrays import Floats
from gridpriv.core.errors import not_allowed

RAW, HOG, STROKES = "raw", "hog", "strokes"
TRANSFORMS = (RAW, HOG, STROKES)
TRANSFORMED_NORM = 1.0
CELL, ORIENTATIONS = 4, 8  # pixels of a cell's side; directions of a gradient
BLOCK_FLOOR = 0.1  # of a block's norm: flat blocks stay flat
SYNTHETIC_IMAGES, LANDMARKS, COMPONENTS = 8000, 1500, 400  # images of strokes; kernel features kept
ROWS = 512  # transformed at once
Images = NDArray[np.floating[Any]]


def transform(name: str, x: Images) -> Images:
    """Return transformed rows, each of 2-norm 1 (0 where an image is flat).

    Parameters
    ----------
    name : {'raw', 'hog', 'strokes'}
        ``raw`` returns the rows as they are.
    x : (N, s * s)
        Square images of one channel, s a multiple of 4 and at least 8.

    Raises
    ------
    InputError
        If the rows are not such images.
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
    apply = _hog if name == HOG else _kernel_components
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
    distances: Images = np.abs((steps + ORIENTATIONS / 2.0) % ORIENTATIONS - ORIENTATIONS / 2.0)
    return distances


@cache
def _windows(side: int) -> Floats:
    """Return triangular weights of pixels in cells, (cells, side)."""
    centres = (np.arange(side // CELL) + 0.5) * CELL - 0.5
    weights: Floats = np.maximum(0.0, 1.0 - np.abs(np.arange(side) - centres[:, None]) / CELL)
    return weights


def _kernel_components(images: Images) -> Images:
    """Return kernel components of upright images, each of equal size on strokes, (N, d)."""
    landmarks, mean, directions = _components(images.shape[1])
    kernel = np.exp(2.0 * (_upright_histograms(images) @ landmarks.T) - 2.0)
    return np.asarray((kernel - mean) @ directions, dtype=images.dtype)


def _upright_histograms(images: Images) -> Images:
    return _unit_rows(_hog(_upright(images)))


@cache
def _components(side: int) -> tuple[Floats, Floats, Floats]:
    """Return landmarks (L, F), the mean of their kernels (L,) and directions (L, d): public.

    The kernel of unit rows at distance r is exp(-r^2). Directions are those of the kernel's
    principal components on the images that are not landmarks, divided by their deviations.
    """
    strokes = _strokes(SYNTHETIC_IMAGES, side)
    histograms = np.concatenate(
        [_upright_histograms(strokes[k : k + ROWS]) for k in range(0, SYNTHETIC_IMAGES, ROWS)]
    )
    landmarks, samples = histograms[:LANDMARKS], histograms[LANDMARKS:]
    values, vectors = np.linalg.eigh(np.exp(2.0 * (landmarks @ landmarks.T) - 2.0))
    whitening = vectors / np.sqrt(np.maximum(values, 1e-5))
    kernel = np.exp(2.0 * (samples @ landmarks.T) - 2.0)
    mean = kernel.mean(axis=0)
    whitened = (kernel - mean) @ whitening
    spread, axes = np.linalg.eigh(whitened.T @ whitened / len(whitened))
    spread, axes = spread[: -COMPONENTS - 1 : -1], axes[:, : -COMPONENTS - 1 : -1]
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(COMPONENTS)])
    return landmarks, mean, whitening @ (axes / np.sqrt(spread))


def _strokes(count: int, side: int) -> Floats:
    """Return images of one to three random pen strokes (cubic Bezier curves), (N, s, s) in [0, 1].

    At most two thirds of the side long and wide, with the mean of their points in the centre, as in
    MNIST; half of the strokes begin at the end of the previous stroke.
    """
    random = np.random.default_rng(1)
    t = np.linspace(0.0, 1.0, 24)[:, None]
    down, across = np.mgrid[0:side, 0:side].astype(float)
    images = np.empty((count, side, side))
    for image in images:
        parts: list[Floats] = []
        for _ in range(random.integers(1, 4)):
            a, b, c, d = random.uniform(size=(4, 2))
            if parts and random.random() < 0.7:
                a = parts[-1][-1]
            parts.append(
                (1 - t) ** 3 * a + 3 * (1 - t) ** 2 * t * b + 3 * (1 - t) * t**2 * c + t**3 * d
            )
        points = np.concatenate(parts)
        extent = max(float((points.max(axis=0) - points.min(axis=0)).max()), 1e-3)
        points *= 18.0 / 28.0 * side * random.uniform(0.85, 1.0) / extent
        points += side / 2.0 - points.mean(axis=0)
        squares = (points[:, 0, None, None] - down) ** 2 + (points[:, 1, None, None] - across) ** 2
        image[:] = np.clip(random.uniform(1.3, 2.3) - np.sqrt(squares.min(axis=0)), 0.0, 1.0)
    return images


def _upright(images: Images) -> Images:
    """Return images without slant: rows are shifted until columns and rows are uncorrelated."""
    side = images.shape[1]
    pixel = np.arange(side, dtype=images.dtype)
    mass = images.sum(axis=(1, 2)) + 1e-6
    down = pixel - (images.sum(axis=2) @ pixel / mass)[:, None]
    across = pixel - (images.sum(axis=1) @ pixel / mass)[:, None]
    together = np.einsum("nyx,ny,nx->n", images, down, across)
    alone = np.einsum("ny,ny->n", images.sum(axis=2), down**2)
    slant = np.clip(together / np.maximum(alone, 1e-3 * mass), -1.0, 1.0)
    source = pixel[None, None] + slant[:, None, None] * down[:, :, None]
    lower = np.floor(source).astype(int)
    share = source - lower

    def at(columns: Any) -> Images:
        inside = (columns >= 0) & (columns < side)
        shifted: Images = np.take_along_axis(images, np.clip(columns, 0, side - 1), 2) * inside
        return shifted

    return np.asarray(at(lower) * (1.0 - share) + at(lower + 1) * share, dtype=images.dtype)
