"""From results to files."""

from gridpriv.report.folder import write_run

__all__ = ["write_run"]
