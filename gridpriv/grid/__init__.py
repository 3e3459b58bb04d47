"""The grid: cases, readers, admittances and zones."""
