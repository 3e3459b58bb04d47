"""AC physics: power flow, violations, optimum, redispatch and settling, on a case's exact grid."""
