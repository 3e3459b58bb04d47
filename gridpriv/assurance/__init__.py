"""Checks of privacy by attack: audits and demand reconstruction.

All results use true demand, so none is public: errors of an attack show the accuracy of a guess,
and an audit runs the mechanism on the data.
"""
