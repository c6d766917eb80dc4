"""The `interp` command: thin modules with late imports.

- `main`: the command, its exit codes, and commands of other packages (entry points)

One module per subcommand:

- `analyze`: `interp analyze MODEL --probe NAME`
- `audit`: `interp audit CLAIM --model MODEL`
- `doctor`: `interp doctor MODEL`
- `compare`: `interp compare A.json B.json`
- `info`: `interp list` and `interp info`
- `show`: `interp show NAME`
- `train`: `interp train RECIPE`

Shared by them:

- `flags`: groups of flags that commands share, each a dataclass
- `options`: the text of options turned into data
- `probe_flags`: flags made from the options classes of analyses
- `rows`: the prompts of `interp analyze`: a file, texts, or a named task
- `outputs`: writes results to the terminal, JSON and HTML
- `progress`: progress messages on standard error
- `completion`: shell completion of names
"""
