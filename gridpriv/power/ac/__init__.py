"""AC equations of a grid: power flow, limits, optimal power flow and redispatch."""
