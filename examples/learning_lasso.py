"""Fit a Lasso without a server, by CDP-ADMM and DDP-ADMM on a graph; needs no data files."""

from gridpriv.learning import learn, load_dataset, make_learn_settings

lasso = load_dataset("lasso")
for algorithm in ("cdp-admm", "ddp-admm"):
    settings = make_learn_settings("lasso", "gauthier", algorithm=algorithm, graph="regular:4")
    result = learn(lasso, settings)
    print(
        f"{algorithm}: objective {result.final['objective']:.4f}, "
        f"certified total epsilon {result.privacy['total']['epsilon']:.2f}"
    )
