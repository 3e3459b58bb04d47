"""Run Ryu and Kim's MNIST experiment at one budget: objective and output perturbation.

    GRIDPRIV_DATA=~/data python examples/learning_mnist.py

Needs the four MNIST files. Without them the error names the folder and the download command.
"""

import sys

from gridpriv import InputError
from gridpriv.learning import learn, load_dataset, make_learn_settings

try:
    mnist = load_dataset("mnist")
except InputError as error:
    sys.exit(f"{error}\nFetch it: gridpriv learn run mnist --data DIR --download --rounds 1")

for perturbation in ("objective", "output"):
    settings = make_learn_settings(
        "mnist", "ryu-kim", perturbation=perturbation, budget="per-release:0.1", rounds=100
    )
    result = learn(mnist, settings)
    total = result.privacy["total"]
    print(
        f"{perturbation}: test accuracy {result.final['test_accuracy']:.3f}, certified total "
        f"epsilon {total['epsilon']:.3f} at delta {total['delta']:g}"
    )
