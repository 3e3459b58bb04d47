"""Checks of privacy by attack: audits and demand reconstruction.

All results use private data, so none is public: errors of an attack show the accuracy of a guess,
and an audit runs the mechanism on the data.
"""
