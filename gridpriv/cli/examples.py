r"""Examples that the help of each command ends with; a test has every line parsed.

Indented by two columns they fit 80. A comment says what the line below it is for; a backslash
joins lines.
"""

from __future__ import annotations

EXAMPLES = {
    "run": r"""
# noise drawn once, a total epsilon of 5 for a change of 1 MW
gridpriv run case14 --budget total:5 --beta 1MW
# a change of 10 MW at a total of 1; results into a folder
gridpriv run case118 --beta 10MW --budget total:1 --mechanism knorm \
    --release auto --out results/run
# your own grid in four zones, 20 % more load, branch 7 out of service
gridpriv run grid.m --zones 4 --load-scale 1.2 --outage branch:7
# a deployment: secure noise, charged to a ledger
gridpriv run case14 --noise secure --ledger owners.ledger --public --out out
""",
    "compare": r"""
# the default methods at four totals, with a report
gridpriv compare case14 --out results/first
# two methods of your own at 10 MW, three seeds, 100 and 120 % of the load
gridpriv compare case118 --beta 10MW --budgets 0.5,1,5 --seeds 3 \
    --load-scales 1,1.2 --method 'buses: rounds=20 release=bus' \
    --method 'sums: rounds=20 release=auto' --out sums
# a study file
gridpriv compare --study study.toml --out study
""",
    "plan": r"""
# protect 10 MW at one bus at a total epsilon of 1
gridpriv plan case14 --beta 10MW --total 1
# with last year's published demand and three kinds of release
gridpriv plan grid.m --zones 3 --public-demand published.csv \
    --releases nothing,bus,total --rounds central
""",
    "publish": r"""
# a case to share, with noise from the operating system's entropy
gridpriv publish case14 --beta 10MW --total 1 --noise secure \
    --out case14_private.m
# a trial, simulated noise: keeps the optimal cost, adds 20 scenarios
gridpriv publish case118 --beta 20MW --total 2 --fidelity cost \
    --scenarios 20 --out trial.m
""",
    "report": r"""
gridpriv report results/first --format html,pdf,xlsx
# public figures only, into results/first/public
gridpriv report results/first --public
""",
    "reproduce": r"""
gridpriv reproduce
gridpriv reproduce rk-table1
gridpriv reproduce rk-fig5 --scale quick --data data --out fig5
""",
    "audit": r"""
gridpriv audit case14
# the settings of Ryu and Kim: nominal and certified epsilon
gridpriv audit case118 --preset ryu-kim --protects p
# faster: one level, fewer runs
gridpriv audit case14 --levels release --runs 20000 --out audit
""",
    "attack": r"""
# all buses, at three totals and without noise
gridpriv attack case14 --update linearized --epsilons 1,10,100 --out attack
# the zone of bus 12, messages of three rounds
gridpriv attack case14 --update linearized --bus 12 --attack-rounds 3
""",
    "relax": r"""
# lower bound on cost ($/h) and bus prices ($/MWh)
gridpriv relax case118 --objective cost
# least load shedding at three times the load, and the limits that cause it
gridpriv relax case14 --load-scale 3
""",
    "acopf": r"""
gridpriv acopf case118 --bound
# least load shedding without branch 2 and generator 1
gridpriv acopf case14 --objective shed --outage branch:2 --outage gen:1
""",
    "exchange": r"""
# three zones, released demand; table, JSON and figure into a folder
gridpriv exchange case39 --beta 10MW --budget total:1 --out exchange
# PTDFs of the AC power flow, on true demand
gridpriv exchange case39 --view local --ptdf ac --mechanism none
""",
    "convert": r"""
gridpriv convert case118 case118.xiidm
# from a PSS/E file to MATPOWER
gridpriv convert grid.raw grid.m
""",
    "security": r"""
# all single outages on the released demand: public, at no further epsilon
gridpriv security case118 --beta 10MW --budget total:1 --mechanism knorm
# a list of outages: zone 2 with its true demand, other zones as released
gridpriv security case118 --contingencies list.csv --view zone:2
""",
    "zones": r"""
gridpriv zones case118 --zones 4 --partition louvain --plot zones.svg \
    --out zones.csv
gridpriv zones grid.json --zones-from zone
""",
    "cases": r"""
gridpriv cases
# fields of a file that are read, ignored or not modelled
gridpriv cases grid.m
""",
    "learn run": r"""
# without data files
gridpriv learn run lasso --preset gauthier --algorithm cdp-admm
gridpriv learn run mnist --data data --preset ryu-kim --budget total:1,1e-5
# your own samples, of norm 1 at most
gridpriv learn run meters.npz --norm 1 --algorithm dpsgd --clip 1 \
    --budget total:5,1e-5 --rounds 20
""",
    "learn compare": r"""
gridpriv learn compare adult --data data --totals 0.5,1,5 --seeds 3 \
    --algorithms ryu-kim,dp-admm,dpsgd --rounds 50 --out adult
""",
    "learn predict": r"""
# test rows of MNIST through a model that a run has written
gridpriv learn predict run/model.npz mnist --data data
# rows of your own, with the columns of training
gridpriv learn predict run/model.npz rows.csv --out predictions.csv
""",
    "learn forecast": r"""
# a public prior of tomorrow's demand, then a run that releases nothing more
gridpriv learn forecast case118 --history demand.csv --total 0.3 \
    --out forecast.csv
gridpriv learn forecast grid.m --history demand.csv --weather weather.csv \
    --test-steps 120
""",
    "learn grant": r"""
gridpriv learn grant adult --data data --epsilon 5 --delta 1e-5 \
    --ledger samples.ledger
""",
    "ledger grant": r"""
# grant each bus of case14 a total epsilon of 5 for changes of 10 MW
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
# refuse a copy that is older than a head printed earlier
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
