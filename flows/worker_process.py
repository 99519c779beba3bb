"""The process of the worker: Prefect's own, so started that its memory stays level.

Run as ``python -m flows.worker_process ARGUMENTS``, the arguments of ``prefect worker start``. Each flow
run leaves half a megabyte in reference cycles: clients with their TLS contexts, large but few objects.
Python counts objects, so that tens of flow runs can pass before the full collection that frees them.
Here it comes every few runs; what is imported before the worker starts is exempt, so that it takes
milliseconds.
"""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Import what a worker uses, have garbage collected often, and start the worker."""
    import prefect.cli.worker
    import prefect.main
    import prefect.workers.process  # noqa: F401
    from prefect.cli import app

    gc.collect()
    gc.freeze()
    gc.collect()  # Python waits until what is new is a quarter of what the last full collection left
    gc.set_threshold(700, 2, 1)
    sys.argv = ["prefect", "worker", "start", *sys.argv[1:]]
    app()


if __name__ == "__main__":
    main()
