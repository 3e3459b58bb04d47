"""The consensus algorithm: local problems, agents, the coordinator, schedules and transports.

It does not depend on the application: grids and learning supply the local problems.
"""
