"""Measure time and memory of a round of federated DP-SGD: gridpriv, torch, Opacus, Flower.

    python benchmarks/learning_peers.py [--clients 10,100,1000] [--rounds 5] [--json FILE]

All programs do the same work: softmax regression on 60,000 synthetic rows of 784 features. In a
round every client computes the gradient of all its rows (each clipped to norm 1), adds Gaussian
noise of one scale and sends it. The server averages and steps. Every program runs in a separate
process on one thread. Time is processor time of a round (median, without the first). Memory is that
of the process, after reading of data and imports, and at its peak.

Opacus (``pip install opacus``) has a module and a private optimizer per client, as separate clients
have. Flower (``pip install "flwr[simulation]" psutil``) simulates clients in processes
of Ray, two at a time; its seconds and memory are those of all its processes, Ray's included.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

ROWS, FEATURES, CLASSES, CLIP, SCALE = 60_000, 784, 10, 1.0, 1e-3
PROGRAMS = {"gridpriv": "gridpriv", "torch": "torch", "opacus": "opacus", "flower": "flwr"}
MIB = 1024.0


def made() -> tuple[np.ndarray, np.ndarray]:
    """Return rows of norm about 9 and class numbers."""
    random = np.random.default_rng(1)
    x = random.random((ROWS, FEATURES), dtype=np.float32)
    return x, random.integers(0, CLASSES, ROWS)


def gridpriv(clients: int, rounds: int) -> Iterator[None]:
    """Run gridpriv's DP-SGD; yield when the data are ready and after every round."""
    from gridpriv.learning import Dataset, learn, make_learn_settings

    x, y = made()
    data = Dataset("mnist", "multiclass", x, y, x[:10], y[:10], CLASSES, 28.0)
    settings = make_learn_settings(
        "mnist",
        algorithm="dpsgd",
        clients=clients,
        clip=CLIP,
        intercept="off",
        split="contiguous",
        rounds=rounds,
        evaluate_every=rounds,
        learning_rate=0.1,
        workers=1,
    )
    yield
    clock: list[float] = []
    learn(data, settings, lambda _: clock.append(time.process_time()))
    for _ in clock:
        yield
    SECONDS.extend(np.diff(clock))


SECONDS: list[float] = []
"""Of rounds of gridpriv and Flower, which call back after each."""


@lru_cache
def parts_of(clients: int) -> list[tuple[Any, Any]]:
    import torch

    torch.set_num_threads(1)
    x, y = made()
    rows, labels = torch.as_tensor(x), torch.as_tensor(y)
    return list(zip(rows.tensor_split(clients), labels.tensor_split(clients), strict=True))


def clipped_gradient(x: Any, y: Any, w: Any) -> Any:
    """Return the mean of the rows' clipped gradients: the closed form of a linear model."""
    import torch

    residual = torch.softmax(x @ w, dim=1)
    residual[torch.arange(len(y)), y] -= 1.0
    lengths = x.norm(dim=1) * residual.norm(dim=1)
    return x.T @ (residual * (CLIP / lengths.clamp(min=CLIP))[:, None]) / len(y)


def plain_torch(clients: int, rounds: int) -> Iterator[None]:
    """Run a plain loop in torch."""
    import torch

    parts, w = parts_of(clients), torch.zeros(FEATURES, CLASSES)
    yield
    for _ in range(rounds):
        noisy = torch.zeros_like(w)
        for x, y in parts:
            noisy += clipped_gradient(x, y, w) + SCALE * torch.randn_like(w)
        w = w - 0.1 * noisy / clients
        yield


def opacus(clients: int, rounds: int) -> Iterator[None]:
    """Run Opacus, a private module and optimizer for every client."""
    import torch
    from opacus import PrivacyEngine
    from torch import nn

    warnings.simplefilter("ignore")
    parts, w = parts_of(clients), torch.zeros(CLASSES, FEATURES)
    members = []
    for x, y in parts:
        module = nn.Linear(FEATURES, CLASSES, bias=False)
        data = torch.utils.data.TensorDataset(x, y)
        members.append(
            PrivacyEngine(accountant="rdp").make_private(
                module=module,
                optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
                data_loader=torch.utils.data.DataLoader(data, batch_size=len(y)),
                noise_multiplier=SCALE * len(y) / CLIP,
                max_grad_norm=CLIP,
                poisson_sampling=False,
            )
        )
    yield
    for _ in range(rounds):
        total = torch.zeros_like(w)
        for (module, optimizer, _), (x, y) in zip(members, parts, strict=True):
            module._module.weight.data = w.clone()
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x), y).backward()
            optimizer.step()
            total += module._module.weight.data
        w = total / clients
        yield


def all_processes() -> tuple[float, float]:
    """Return processor seconds and resident MiB of this process and its children."""
    import psutil

    me, seconds, size = psutil.Process(), 0.0, 0.0
    for process in [me, *me.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            seconds += sum(process.cpu_times()[:2])
            size += process.memory_full_info().pss / MIB**2
    return seconds, size


def flower(clients: int, rounds: int) -> Iterator[None]:
    """Run Flower's simulation; a client sends its noisy gradient as its parameters."""
    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)  # of Ray's processes
    import flwr.client
    import flwr.server
    from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.simulation import run_simulation

    clock: list[float] = []

    class Client(flwr.client.NumPyClient):
        def __init__(self, position: int) -> None:
            self.position = position

        def fit(self, parameters: Any, _config: Any) -> Any:
            import torch
            from learning_peers import clipped_gradient, parts_of

            x, y = parts_of(clients)[self.position]
            gradient = clipped_gradient(x, y, torch.as_tensor(parameters[0]))
            return [(gradient + SCALE * torch.randn_like(gradient)).numpy()], len(y), {}

    class Step(flwr.server.strategy.FedAvg):
        w = np.zeros((FEATURES, CLASSES), np.float32)

        def aggregate_fit(self, _round: int, results: Any, failures: Any) -> Any:
            if len(results) < clients:
                raise RuntimeError(f"{len(results)} of {clients} clients answered: {failures[:1]}")
            sent = sum(parameters_to_ndarrays(result.parameters)[0] for _, result in results)
            self.w = self.w - np.float32(0.1 / clients) * sent
            seconds, size = all_processes()
            clock.append(seconds)
            MEMORY.append(size)
            return ndarrays_to_parameters([self.w]), {}

    def server(_context: Any) -> Any:
        strategy = Step(
            fraction_evaluate=0.0,
            min_fit_clients=clients,
            min_available_clients=clients,
            initial_parameters=ndarrays_to_parameters([Step.w]),
        )
        config = flwr.server.ServerConfig(num_rounds=rounds)
        return flwr.server.ServerAppComponents(strategy=strategy, config=config)

    def client(context: Any) -> Any:
        return Client(int(context.node_config["partition-id"])).to_client()

    yield
    run_simulation(
        server_app=flwr.server.ServerApp(server_fn=server),
        client_app=flwr.client.ClientApp(client_fn=client),
        num_supernodes=clients,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": 2},
        },
    )
    for _ in clock:
        yield
    SECONDS.extend(np.diff(clock))


MEMORY: list[float] = []
"""Resident MiB after each of Flower's rounds, of all its processes."""


def peak() -> float:
    """Return the largest resident size of this process so far, MiB."""
    return max(MEMORY) if MEMORY else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB


def run_program(program: str, clients: int, rounds: int) -> None:
    """Run a program in this process and print its values as JSON."""
    runs: dict[str, Callable[[int, int], Iterator[None]]] = {
        "gridpriv": gridpriv,
        "torch": plain_torch,
        "opacus": opacus,
        "flower": flower,
    }
    steps = runs[program](clients, rounds)
    next(steps)
    before, clock = peak(), [time.process_time()]
    for _ in steps:
        clock.append(time.process_time())
    taken = SECONDS or list(np.diff(clock)[1:])
    print(json.dumps({"seconds": float(np.median(taken)), "before": before, "peak": peak()}))


def main() -> None:
    """Print a line for every program and number of clients."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", default="10,100,1000")
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.one:
        run_program(args.one[0], int(args.one[1]), args.rounds)
        return
    rows = []
    print("program   clients  round s  data MiB  peak MiB")
    for program in args.programs.split(","):
        if find_spec(PROGRAMS[program]) is None:
            print(f"{program:9} is not installed")
            continue
        for clients in map(int, args.clients.split(",")):
            command = [sys.executable, __file__, "--one", program, str(clients)]
            done = subprocess.run(
                [*command, "--rounds", str(args.rounds)],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                print(f"{program:9} {clients:7}  failed: {done.stderr.strip()[-200:]}", flush=True)
                continue
            row = {"program": program, "clients": clients} | json.loads(done.stdout.split("\n")[-2])
            rows.append(row)
            print(
                f"{program:9} {clients:7} {row['seconds']:8.3f} {row['before']:9.0f} "
                f"{row['peak']:9.0f}",
                flush=True,
            )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
