"""Audit of the delivered epsilon, and attacks on messages."""
