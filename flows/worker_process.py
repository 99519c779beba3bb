"""The process of the worker: Prefect's own, so started that its memory stays level.

Run as ``python -m flows.worker_process ARGUMENTS``, the arguments of ``prefect worker start``. Each flow
run leaves half a megabyte in reference cycles (clients with their TLS contexts). Python frees them in a
full collection, for which it waits until a quarter of all that lives is new; after importing Prefect
that takes some forty runs. What is imported before the worker starts is exempted here, so that a
full collection comes after a few.
"""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Import what a worker uses, exempt it from collection, and start the worker."""
    import prefect.cli.worker
    import prefect.main
    import prefect.workers.process  # noqa: F401
    from prefect.cli import app

    gc.collect()
    gc.freeze()
    sys.argv = ["prefect", "worker", "start", *sys.argv[1:]]
    app()


if __name__ == "__main__":
    main()
