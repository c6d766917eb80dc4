"""The `interp` command: thin, with late imports; `main` lists the commands, each has a file."""
