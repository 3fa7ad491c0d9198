"""A certificate for a server that is no program of ours: `python -m learnloop_common.tls.certificate_files FOLDER`.

It runs in a container beside that server, in a folder that both have. With `--once` it ends when there is a
certificate, before the server starts; without, it renews it for as long as the pod lives.
"""

import argparse
import logging
import signal
import sys
import threading
from pathlib import Path

from learnloop_api import names
from learnloop_common.tls.pod_certificate import NotIssued, wanted


def main(arguments: list[str]) -> int:
    """Exit codes: 0 there is a certificate, or the pod ends; 1 the data plane gives none; 2 a wrong variable."""
    parser = argparse.ArgumentParser(prog="python -m learnloop_common.tls.certificate_files", description=__doc__)
    parser.add_argument("folder", type=Path, help="where tls.crt and tls.key are written")
    parser.add_argument("--once", action="store_true", help="end when there is a certificate")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    # The first process of a container has no default for it, and would be waited for.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        own = wanted(folder=options.folder)
        if own is None:
            raise ValueError(f"{names.ENV_TLS_NAMES}: '' is empty: name what the server is reached by, comma-separated")
    except ValueError as error:
        print(f"configuration error: {error}", file=sys.stderr)
        return 2
    try:
        due = own.obtain() if options.once else own.obtain(float("inf"))
    except (NotIssued, OSError) as error:
        print(f"TLS: {error}", file=sys.stderr)
        return 1
    if not options.once:
        own.keep(due)
        threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
