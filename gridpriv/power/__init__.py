"""The zone problem: relaxation (Pyomo), program (sparse matrices), solvers, AC redispatch."""
