"""An announced server counts only while its own process lives, not another one with its id."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from flows.processes import identity
from flows.server import PrefectServer, ServerState, read_state, running_state
from pipeline_lib.home import Home, database_path


def test_a_stranger_with_the_same_id_is_no_server_and_is_left_alone(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.prefect.mkdir()
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as stranger:
        try:
            url = "http://127.0.0.1:1"
            ServerState(stranger.pid, identity(stranger.pid), url, False).write(home.prefect)
            assert running_state(home.prefect) is not None
            ServerState(stranger.pid, "an earlier start", url, False).write(home.prefect)
            assert read_state(home.prefect) is not None
            assert running_state(home.prefect) is None
            server = PrefectServer(home)
            server._lock = (home.prefect / "users.lock").open("a")
            server.end()
            assert stranger.poll() is None
            assert read_state(home.prefect) is None
        finally:
            stranger.kill()


def test_an_announcement_of_an_earlier_version_is_none(tmp_path: Path) -> None:
    (tmp_path / "server.json").write_text(f'{{"pid": {os.getpid()}, "url": "u", "keep": true}}')
    assert read_state(tmp_path) is not None and running_state(tmp_path) is None


def test_only_what_an_address_would_read_is_escaped() -> None:
    import sqlalchemy

    for text in ("/hö me/a b", "/a %41 %", "/what?/x", "/number #1"):
        written = database_path(Path(text) / "x.db")
        assert sqlalchemy.make_url(f"sqlite:///{written}").database == f"{text}/x.db"
        if not set(text) & set("%?"):
            assert written == f"{text}/x.db"
