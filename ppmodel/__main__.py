"""The command line as a process: Ctrl-C ends it with one line at any moment, even while modules load."""

EXIT_INTERRUPTED = 130


def run():
    """Run the command line, and end the process."""
    import signal

    def end(*_):
        import os

        os.write(2, b"interrupted\n")
        os._exit(EXIT_INTERRUPTED)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # unless it is ignored
        signal.signal(signal.SIGINT, end)
    from ppmodel.cli import run

    run()


if __name__ == "__main__":
    run()
