"""Former name of `task_check`, kept as an alias."""

from interp_toolkit.circuits.behaviour.task_check import task_performance as checked_home

__all__ = ["checked_home"]
