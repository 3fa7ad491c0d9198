"""`python -m learnloop_gateway`"""

import sys

from learnloop_gateway.server import main

sys.exit(main())
