"""Adjacency, sensitivity, mechanisms, releases, accounting and the ledger."""
