"""The process of the worker: Prefect's own, with the memory of one that runs for weeks.

Run as ``python -m flows.worker_process ARGUMENTS``, the arguments of ``prefect worker start``.
"""

from __future__ import annotations

import sys

from flows.processes import collect_often


def main() -> None:
    """Import what a worker uses and start it."""
    import prefect.cli.worker
    import prefect.main
    import prefect.workers.process  # noqa: F401
    from prefect.cli import app

    collect_often()
    sys.argv = ["prefect", "worker", "start", *sys.argv[1:]]
    app()


if __name__ == "__main__":
    main()
