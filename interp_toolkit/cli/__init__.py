"""The `interp` command."""
