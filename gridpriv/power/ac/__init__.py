"""AC physics: power flow, violations, optimum, recourse and settling, on a case's exact grid."""
