"""What every room stands on: array types, errors, whole-file writes, processes."""
