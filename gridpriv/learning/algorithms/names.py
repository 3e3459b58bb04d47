"""Names of the algorithms; the files are imported when one runs."""

ALGORITHMS = (
    "ryu-kim", "admm", "pvp", "dvp", "dp-admm", "dpsgd", "dp-fedavg", "fedspd-dp", "cdp-admm",
    "ddp-admm", "centralized",
)  # fmt: skip
