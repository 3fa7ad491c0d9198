"""`python -m learnloop_dataplane`: see `command_line`."""

import sys

from learnloop_dataplane.command_line import main

sys.exit(main(sys.argv[1:]))
