"""Ryu and Kim's MNIST experiment at one budget: objective against output perturbation.

Needs the four MNIST files; say where with GRIDPRIV_DATA, as in
``GRIDPRIV_DATA=~/data python examples/learning_mnist.py``.
"""

from gridpriv.learning import learn, load_dataset, make_learn_settings

mnist = load_dataset("mnist")
for perturbation in ("objective", "output"):
    settings = make_learn_settings(
        "mnist", "ryu-kim", perturbation=perturbation, budget="per-release:0.1", rounds=200
    )
    result = learn(mnist, settings)
    total = result.privacy["total"]
    print(
        f"{perturbation}: test accuracy {result.final['test_accuracy']:.3f}, certified total "
        f"epsilon {total['epsilon']:.3f} at delta {total['delta']:g}"
    )
