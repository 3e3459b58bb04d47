"""Compare the network of examples/learning_cnn.py with Opacus' DP-SGD at the same certificate.

``pip install opacus`` and the extra ``learning``; MNIST in $GRIDPRIV_DATA. Three methods at
(3, 1e-5) for one sample, with equal steps, clip and learning rate: ten clients without a trusted
server (gridpriv), one of the ten clients alone (Opacus), and a trusted server with all samples
(Opacus; batches ten times as large). ``python benchmarks/learning_cnn.py [ROUNDS]``.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import torch
from opacus import PrivacyEngine
from opacus.accountants.utils import get_noise_multiplier
from torch import nn

from gridpriv.learning import learn, load_dataset

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
from learning_cnn import network, settings

EPSILON, DELTA = 3.0, 1e-5


def opacus(
    x: torch.Tensor,
    y: torch.Tensor,
    test: tuple[torch.Tensor, torch.Tensor],
    batch: int,
    rounds: int,
) -> tuple[float, float]:
    """Return test accuracy and epsilon of DP-SGD by Opacus."""
    module = network()
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    data = torch.utils.data.TensorDataset(x, y)
    loader = torch.utils.data.DataLoader(data, batch_size=batch)
    engine = PrivacyEngine(accountant="prv")
    noise = get_noise_multiplier(
        target_epsilon=EPSILON,
        target_delta=DELTA,
        sample_rate=batch / len(x),
        steps=rounds,
        accountant="prv",
    )
    module, optimizer, loader = engine.make_private(
        module=module,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=noise,
        max_grad_norm=1.0,
    )
    done = 0
    while done < rounds:
        for rows, labels in loader:
            if done == rounds:
                break
            optimizer.zero_grad()
            if len(rows):
                nn.functional.cross_entropy(module(rows), labels).backward()
                optimizer.step()
            done += 1
    with torch.no_grad():
        right = torch.cat([module(part).argmax(1) for part in test[0].split(1000)]) == test[1]
    return float(right.float().mean()), engine.get_epsilon(DELTA)


def main() -> None:
    """Print the three methods."""
    warnings.simplefilter("ignore")
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    data = load_dataset("mnist")
    x, y = torch.as_tensor(data.x_train), torch.as_tensor(data.y_train).long()
    test = torch.as_tensor(data.x_test), torch.as_tensor(data.y_test).long()
    given = settings(rounds)
    began = time.perf_counter()
    result = learn(data, given, module=network())
    row = f"{result.final['test_accuracy']:.4f}  {result.privacy['total']['epsilon']:.3f}"
    took = time.perf_counter() - began
    print(f"gridpriv, 10 clients, no trusted server     {row}  {took:.0f} s", flush=True)
    part = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[: len(x) // 10]
    batch = given.batch or 0
    for name, (rows, labels), size in (
        ("Opacus, one of the ten clients by itself   ", (x[part], y[part]), batch),
        ("Opacus, a trusted server with all samples  ", (x, y), 10 * batch),
    ):
        began = time.perf_counter()
        accuracy, epsilon = opacus(rows, labels, test, size, rounds)
        took = time.perf_counter() - began
        print(f"{name} {accuracy:.4f}  {epsilon:.3f}  {took:.0f} s", flush=True)


if __name__ == "__main__":
    main()
