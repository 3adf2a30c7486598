"""The command line as a process: Ctrl-C ends it with one line at any moment, even while modules load."""

import os
import signal
import sys
from contextlib import suppress

EXIT_INTERRUPTED = 130


def run():
    """Run the command line, and end the process."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed: what is opened next must not take its place
            with suppress(OSError):
                setattr(sys, name, open(os.open(os.devnull, os.O_RDWR), mode, closefd=False))  # noqa: SIM115 - to the end

    def end(*_):
        with suppress(OSError):
            os.write(2, b"interrupted\n")
        os._exit(EXIT_INTERRUPTED)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # unless it is ignored
        signal.signal(signal.SIGINT, end)
    from ppmodel.cli import run

    run()


if __name__ == "__main__":
    run()
