"""The consensus algorithm: local problems, agents, the coordinator, schedules and the trace.

Nothing here knows what a local problem is about: grids and learning both come from above.
"""
