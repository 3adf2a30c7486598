import sys

from ppmodel.cli import main

sys.exit(main())
