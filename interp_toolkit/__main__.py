"""`interp`, and `python -m interp_toolkit`: the command line in a process of its own."""

from __future__ import annotations

import signal
import threading


def interp() -> None:
    """Run the command line; Ctrl-C while Python starts or ends shows no traceback.

    What the command line writes is whole at either time, so the signal's own end will do. That is
    for a process of its own: from another thread, or where Ctrl-C is ignored or somebody else's,
    it is left as it is.
    """
    own = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if own:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from interp_toolkit.cli.main import main

    if own:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        main()
    finally:
        if own:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    interp()
