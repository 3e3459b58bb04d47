"""One private run on a grid: settings, run, result, and what is made of it."""
