"""The data plane: experience, rewards, memories, artifacts and training runs behind one HTTP service."""

import os

# numpy would start a thread for every core, which spin between products too small for more than one, on cores that
# PostgreSQL could use. It reads this once, when it is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
