"""The `interp` command: thin modules with late imports.

- `main`: the command, its exit codes, and commands of other packages (entry points)

One module per subcommand:

- `analyze`: `interp analyze MODEL --probe NAME`
- `audit`: `interp audit CLAIM --model MODEL`
- `doctor`: `interp doctor MODEL`
- `compare`: `interp compare A.json B.json`
- `train`: `interp train RECIPE`
- `mcp`: `interp mcp`, a server with these commands as an agent's tools

Shared parts:

- `flags`: groups of flags that commands share, each a dataclass
- `probe_flags`: flags made from the options classes of analyses
- `prompts`: prompts of `interp analyze`: a file, texts, or a named task
- `info`: `interp list`, `interp info`, `interp show`
- `descriptions`: summaries and options of registered objects, read without importing them
- `options`: parsing of option texts; shell completion of names
- `outputs`: results to terminal, JSON and HTML; progress on standard error
"""
