"""Tell the user that a scheduled run has become worse or failed: by a command, or by a webhook.

``AFFINITY_ALERT_COMMAND`` is given to the shell with the alert as JSON on standard input;
``AFFINITY_ALERT_WEBHOOK`` gets the same JSON by POST. Both can be set; neither has to be. They are
settings of the worker: set them before ``affinity services up``, or as ``env`` among a deployment's
job variables.
"""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from pydantic_settings import BaseSettings, SettingsConfigDict

from pipeline_lib.errors import AffinityError
from pipeline_lib.regression import Verdict

VERSION = 1


class AlertError(AffinityError):
    """An alert could not be delivered."""


class AlertSettings(BaseSettings):
    """Who is told, and how long to wait for them."""

    model_config = SettingsConfigDict(env_prefix="AFFINITY_ALERT_")

    command: str | None = None
    webhook: str | None = None
    timeout: float = 30.0


def alert_body(verdict: Verdict, report: str | None, flow_run: str | None) -> dict[str, Any]:
    """Make the alert of a verdict.

    Returns
    -------
    dict
        ``version``, ``event`` (``regression``, or ``failure`` when the run did not finish), ``suite``,
        ``run``, ``baseline``, ``summary``, ``reasons``, ``rows`` (those that alarm, as in
        `pipeline_lib.regression.RowCheck`), ``report`` (path) and ``flow_run`` (address).
    """
    alarming = [row for row in verdict.as_dict()["rows"] if row["alarm"]]
    more = f" (and {len(verdict.reasons) - 1} more)" if len(verdict.reasons) > 1 else ""
    return {
        "version": VERSION,
        "event": "regression" if len(alarming) == len(verdict.reasons) else "failure",
        "suite": verdict.suite,
        "run": verdict.run,
        "baseline": verdict.baseline,
        "summary": f"{verdict.suite}: {verdict.reasons[0]}{more}",
        "reasons": list(verdict.reasons),
        "rows": alarming,
        "report": report,
        "flow_run": flow_run,
    }


def run_command(settings: AlertSettings, body: dict[str, Any]) -> None:
    """Give the alert to the user's command, if there is one.

    Raises
    ------
    AlertError
        If it fails or does not end in time.
    """
    if not settings.command:
        return
    try:
        done = subprocess.run(
            settings.command,
            shell=True,
            input=json.dumps(body, ensure_ascii=False),
            capture_output=True,
            text=True,
            timeout=settings.timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise AlertError(
            f"AFFINITY_ALERT_COMMAND did not end within {settings.timeout:g} s"
        ) from None
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise AlertError(
            f"AFFINITY_ALERT_COMMAND ended with status {done.returncode}"
            + (f": {said[-1]}" if said else "")
        )


def call_webhook(settings: AlertSettings, body: dict[str, Any]) -> None:
    """Post the alert to the user's webhook, if there is one.

    Raises
    ------
    AlertError
        If it is not taken; the sentence names the host only, since addresses of webhooks are secrets.
    """
    if not settings.webhook:
        return
    place = urlsplit(settings.webhook)
    if place.scheme not in ("http", "https") or not place.hostname:
        raise AlertError("AFFINITY_ALERT_WEBHOOK is not an http or https address")
    request = urllib.request.Request(
        settings.webhook,
        data=json.dumps(body, ensure_ascii=False).encode(),
        headers={"Content-Type": "application/json", "User-Agent": "affinity-bench"},
        method="POST",
    )
    try:
        with urllib.request.urlopen(request, timeout=settings.timeout):
            return
    except urllib.error.HTTPError as error:
        error.close()
        raise AlertError(f"the webhook at {place.hostname} answered {error.code}") from None
    except (OSError, ValueError) as error:
        raise AlertError(
            f"the webhook at {place.hostname} cannot be reached ({type(error).__name__})"
        ) from None
