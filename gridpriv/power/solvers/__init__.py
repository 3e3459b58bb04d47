"""Solvers of zone problems, one file each."""
