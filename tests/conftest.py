"""What all tests share: quiet hypothesis, the optional real data, no state outside the test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Shared machines stall for seconds: a deadline would test the machine.
settings.register_profile(
    "project", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("project")


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every test off the user's home folder and servers."""
    monkeypatch.setenv("AFFINITY_HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of the real files, or a skip with the reason."""
    folder = os.environ.get("AFFINITY_DATA")
    if not folder:
        pytest.skip("AFFINITY_DATA names no folder with the real files")
    return Path(folder.split(":")[0])


@pytest.fixture(scope="session")
def reference_code() -> Path:
    """Folder of the plain reference implementations, or a skip with the reason."""
    folder = os.environ.get("AFFINITY_REFERENCE")
    if not folder:
        pytest.skip("AFFINITY_REFERENCE names no folder with the plain reference code")
    return Path(folder)
