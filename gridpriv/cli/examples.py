r"""Examples that the help of each command ends with; a test has every line parsed.

Indented by two columns they fit 80. A comment says what the line below it is for; a backslash
joins lines.
"""

from __future__ import annotations

EXAMPLES = {
    "run": r"""
# noise drawn once, a total epsilon of 5 for a change of 1 MW
gridpriv run case14 --budget total:5 --beta 1MW
# a change of 10 MW, released as sums where they serve as well; into a folder
gridpriv run case118 --beta 10MW --budget total:1 --mechanism knorm \
    --release auto --out results/run
# a grid of one's own in four zones, heavier loaded, branch 7 out of service
gridpriv run grid.m --zones 4 --load-scale 1.2 --outage branch:7
# a deployment: noise of the system, charged to a ledger
gridpriv run case14 --noise secure --ledger owners.ledger --public --out out
""",
    "compare": r"""
# the ways that come with the command, at four total epsilons, and a report
gridpriv compare case14 --out results/first
# two ways of one's own at 10 MW, three seeds, at 100 and 120 % of the load
gridpriv compare case118 --beta 10MW --budgets 0.5,1,5 --seeds 3 \
    --load-scales 1,1.2 --scheme 'buses: rounds=20 release=bus' \
    --scheme 'sums: rounds=20 release=auto' --out sums
# what a study file says
gridpriv compare --study study.toml --out study
""",
    "plan": r"""
# to hide 10 MW at one bus at a total epsilon of 1
gridpriv plan case14 --protect 10MW --total 1
# with last year's published demand, and fewer ways
gridpriv plan grid.m --zones 3 --public-demand published.csv \
    --releases nothing,bus,total --rounds central
""",
    "report": r"""
gridpriv report results/first --format html,pdf,xlsx
# without any figure of private demand, into results/first/public
gridpriv report results/first --public
""",
    "reproduce": r"""
gridpriv reproduce
gridpriv reproduce rk-table1
gridpriv reproduce rk-fig5 --scale quick --data data --out fig5
""",
    "audit": r"""
gridpriv audit case14
# the paper's settings: what they claim and what they deliver
gridpriv audit case118 --preset ryu-kim --protects p
# quicker: one level, fewer runs
gridpriv audit case14 --levels release --runs 20000 --out audit
""",
    "attack": r"""
# every bus, at three total epsilons and without noise
gridpriv attack case14 --update linearized --epsilons 1,10,100 --out attack
# the zone of bus 12, three rounds
gridpriv attack case14 --update linearized --bus 12 --attack-rounds 3
""",
    "relax": r"""
# the bound of the least cost, and bus prices, in $/h and $/MWh
gridpriv relax case118 --objective cost
# how much of three times the demand cannot be served, in MW, and why
gridpriv relax case14 --load-scale 3
""",
    "acopf": r"""
gridpriv acopf case118 --bound
# the least demand that goes unserved without branch 2 and generator 1, in MW
gridpriv acopf case14 --objective shed --outage branch:2 --outage gen:1
""",
    "zones": r"""
gridpriv zones case118 --zones 4 --method louvain --plot zones.svg --out z.csv
gridpriv zones grid.json --zones-from zone
""",
    "cases": r"""
gridpriv cases
# what of a file is read, ignored and not modelled
gridpriv cases grid.m
""",
    "learn run": r"""
# without data files
gridpriv learn run lasso --preset gauthier --algorithm cdp-admm
gridpriv learn run mnist --data data --preset ryu-kim --budget total:1,1e-5
# samples of one's own, of norm 1 at most
gridpriv learn run meters.npz --norm 1 --algorithm dpsgd --clip 1 \
    --budget total:5,1e-5 --rounds 20
""",
    "learn compare": r"""
gridpriv learn compare adult --data data --totals 0.5,1,5 --seeds 3 \
    --algorithms ryu-kim,dp-admm,dpsgd --rounds 50 --out adult
""",
    "learn grant": r"""
gridpriv learn grant adult --data data --epsilon 5 --delta 1e-5 \
    --ledger samples.ledger
""",
    "ledger grant": r"""
# every bus of case14 may lose an epsilon of 5 in all, for changes of 10 MW
gridpriv ledger grant owners.ledger --case case14 --epsilon 5 --beta 10MW
""",
    "ledger show": r"""
gridpriv ledger show owners.ledger
""",
    "ledger export": r"""
gridpriv ledger export owners.ledger --out charges.csv
gridpriv ledger export owners.ledger --format json
""",
    "ledger verify": r"""
gridpriv ledger verify owners.ledger
# and refuse a copy older than the head that verify printed before
gridpriv ledger verify owners.ledger --expect "$(cat head.txt)"
""",
    "schema": r"""
gridpriv schema
gridpriv schema buses
""",
    "consortium": r"""
gridpriv consortium case14 --budget total:5 --rounds 10 \
    --address 127.0.0.1:50051 --out trial
""",
    "coordinator": r"""
gridpriv coordinator --config trial/coordinator/coordinator.toml --log info
""",
    "zone-agent": r"""
gridpriv zone-agent --config trial/1/zone.toml
""",
    "keys": r"""
gridpriv keys --zone north --zone south --days 30 --out keys
""",
    "account": r"""
# the total of a hundred releases of epsilon 0.1 each, at delta 1e-5
gridpriv account --releases 100 --epsilon 0.1
# the noise for a total of (5, 1e-5) over a hundred Gaussian releases
gridpriv account --releases 100 --total 5,1e-5 --mechanism gaussian
""",
}
"""Of each command, by the words after ``gridpriv``."""
