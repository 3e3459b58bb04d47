"""Checks of privacy by attack: audits and demand reconstruction.

Figures look at private data, so none is public: an attack's errors tell how close a guess is, and
an audit runs the mechanism on the data themselves.
"""
