"""Sorting tasks: where lists stand in a prompt (`layout`) and how they are drawn (`draws`)."""
