"""`interp`, and `python -m interp_toolkit`: the command line in a process of its own."""

from __future__ import annotations

import gc
import signal
import threading

#: new objects between two garbage collections: imports make a million objects and free few, and
#: with Python's default of 700 collections take a tenth of the time of a short run
COLLECT_EVERY = 100_000


def interp() -> None:
    """Run the command line without a traceback if Ctrl-C comes while Python starts or exits.

    At either time all output is complete, so SIGINT gets its default action, which ends the
    process. The handler is left alone in a thread other than the main one, and where the caller
    ignores SIGINT or has installed a handler.
    """
    own = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if own:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.set_threshold(COLLECT_EVERY, *gc.get_threshold()[1:])
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
