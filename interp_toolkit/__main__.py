"""`python -m interp_toolkit` is `interp`."""

from interp_toolkit.cli.main import main

if __name__ == "__main__":
    main()
