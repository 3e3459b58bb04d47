"""Train a small convolutional network on MNIST with ten clients and no trusted server.

Needs the extra ``learning`` (torch) and MNIST's files in $GRIDPRIV_DATA. Every client adds its own
noise to the clipped gradients of a Poisson batch that it draws in secret. The script prints the
certified epsilon. Twenty rounds take 40 s of one processor; ``python examples/learning_cnn.py 300``
takes ten minutes, at the same budget.
"""

from __future__ import annotations

import sys

import torch
from torch import nn

from gridpriv.learning import LearnSettings, learn, load_dataset


def network() -> nn.Module:
    """Return a network of 26,010 parameters for a row of 784 pixels."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.Tanh(),
        nn.Linear(32, 10),
    )


def settings(rounds: int) -> LearnSettings:
    """Return distributed DP-SGD at a certified (3, 1e-5) for one sample of one client."""
    return LearnSettings(
        algorithm="dpsgd",
        budget="total:3,1e-5",
        adjacency="zero-out",
        clients=10,
        batch=64,
        clip=1.0,
        learning_rate=1.0,
        rounds=rounds,
        evaluate_every=rounds,
    )


if __name__ == "__main__":
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    result = learn(load_dataset("mnist"), settings(rounds), module=network())
    total = result.privacy["total"]
    print(f"test accuracy {result.final['test_accuracy']:.4f} after {rounds} rounds")
    print(f"certified: epsilon {total['epsilon']:.4g} at delta {total['delta']:g}")
    print(f"protected: {result.privacy['adjacency']}")
