"""The zone problem: relaxation (Pyomo), program (sparse matrices), solvers, recourse, AC check."""
