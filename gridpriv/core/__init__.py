"""Foundations: array types, errors, atomic file writes, processes."""
