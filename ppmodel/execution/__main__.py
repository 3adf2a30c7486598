"""``torchrun ... -m ppmodel.execution NAME...``: ppmodel execute among the processes of a cluster."""

import os
import sys

if __name__ == "__main__":
    from ppmodel.cli import main

    code = main(["execute", *sys.argv[1:]])
    sys.stdout.flush()
    os._exit(code or 0)  # what PyTorch loads may complain when Python ends
