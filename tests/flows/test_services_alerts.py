"""Alerts: what is sent, to whom, and what happens when nobody takes it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from flows.alerts import AlertError, AlertSettings, alert_body, call_webhook, run_command
from pipeline_lib.regression import RowCheck, Verdict

ROW = RowCheck("rank", "b", "default", "map", 0.8, 0.7, alarm=True, reason="rank, b: map fell")
CALM = RowCheck("rank", "a", "default", "map", 0.8, 0.8)
DROP = Verdict("small", "small-2", "small-1", "alarm", (ROW.reason,), (CALM, ROW))


def test_body_of_a_drop_and_of_a_failure() -> None:
    body = alert_body(DROP, "report.html", None)
    assert (body["event"], body["suite"], body["run"], body["baseline"]) == (
        "regression",
        "small",
        "small-2",
        "small-1",
    )
    assert [row["label"] for row in body["rows"]] == ["b"]
    assert body["summary"] == "small: rank, b: map fell"
    failure = Verdict("small", "", None, "alarm", ("the run failed", "again"))
    assert alert_body(failure, None, None)["event"] == "failure"
    assert alert_body(failure, None, None)["summary"] == "small: the run failed (and 1 more)"
    json.dumps(body, allow_nan=False)


def test_command_gets_json(tmp_path: Path) -> None:
    target = tmp_path / "it's here.json"
    body = alert_body(DROP, "ré port.html", "http://page")
    run_command(AlertSettings(command=f'cat > "{target}"'), body)
    assert json.loads(target.read_text(encoding="utf-8")) == body


def test_command_that_fails_or_hangs() -> None:
    with pytest.raises(AlertError, match="ended with status 3: no mail"):
        run_command(AlertSettings(command="echo no mail >&2; exit 3"), {})
    with pytest.raises(AlertError, match=r"did not end within 0\.2 s"):
        run_command(AlertSettings(command="exec sleep 20", timeout=0.2), {})


def test_nobody_is_told_without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COMMAND", "WEBHOOK"):
        monkeypatch.delenv(f"AFFINITY_ALERT_{name}", raising=False)
    run_command(AlertSettings(), {})
    call_webhook(AlertSettings(), {})
    monkeypatch.setenv("AFFINITY_ALERT_WEBHOOK", "http://127.0.0.1:9/x")
    assert AlertSettings().webhook == "http://127.0.0.1:9/x"


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[Any], list[int]]]:
    taken: list[Any] = []
    answers: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(answers.pop(0) if answers else 204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/secret", taken, answers
    server.shutdown()
    server.server_close()


def test_webhook(webhook: tuple[str, list[Any], list[int]]) -> None:
    url, taken, answers = webhook
    call_webhook(AlertSettings(webhook=url), {"a": "é"})
    assert taken == [{"a": "é"}]
    answers.append(503)
    with pytest.raises(AlertError, match=r"the webhook at 127\.0\.0\.1 answered 503$"):
        call_webhook(AlertSettings(webhook=url), {})


def test_webhook_keeps_its_address_to_itself() -> None:
    with pytest.raises(AlertError, match="cannot be reached") as caught:
        call_webhook(AlertSettings(webhook="http://127.0.0.1:9/secret", timeout=2.0), {})
    assert "secret" not in str(caught.value)
    with pytest.raises(AlertError, match="not an http or https address"):
        call_webhook(AlertSettings(webhook="file:///etc/passwd"), {})


def test_only_the_webhook_is_retried() -> None:
    from flows.scheduled import alert_by_command, alert_by_webhook
    from tasks.stages import BY_STAGE

    assert alert_by_webhook.retries == 3
    assert alert_by_command.retries == 0
    assert {task.retries for task in BY_STAGE.values()} == {0}
