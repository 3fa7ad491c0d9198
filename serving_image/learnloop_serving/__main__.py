"""`python -m learnloop_serving`"""

import sys

from learnloop_serving.server import main

sys.exit(main())
