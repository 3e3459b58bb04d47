"""One noisy run on a grid: settings, run, result, tables and analyses."""
