"""prefect.yaml says what it means: Prefect drops keys that it does not know without a word."""

from __future__ import annotations

import asyncio
import copy
import importlib.util
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from flows.checkout import locate
from flows.service_launch import POOL

ROOT = Path(locate()["directory"])
FILE = ROOT / "prefect.yaml"

if not FILE.is_file():
    pytest.skip("prefect.yaml stands in the checkout only", allow_module_level=True)


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Schedule(Strict):
    cron: str
    timezone: str
    slug: str
    active: bool = True
    parameters: dict[str, Any] = {}


class Concurrency(Strict):
    limit: int
    collision_strategy: Literal["ENQUEUE", "CANCEL_NEW"]


class WorkPool(Strict):
    name: str
    work_queue_name: str | None = None
    job_variables: dict[str, Any] = {}


class Deployment(Strict):
    name: str
    description: str
    entrypoint: str
    tags: list[str]
    parameters: dict[str, Any]
    schedules: list[Schedule] = []
    concurrency_limit: Concurrency | None = None
    work_pool: WorkPool


class PrefectFile(Strict):
    """What this project uses of the format; a key outside of it is a mistake."""

    name: str
    pull: list[dict[str, dict[str, Any]]]
    deployments: list[Deployment] = Field(min_length=1)


RAW: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
DEPLOYMENTS = {one["name"]: one for one in RAW["deployments"]}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every key of the file outside of free-form tables."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            if key not in ("parameters", "pull"):
                yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from places(inner, (*path, position))


def test_file_has_no_unknown_key() -> None:
    PrefectFile.model_validate(RAW)


@pytest.mark.parametrize("place", list(places(RAW)), ids=lambda p: ".".join(map(str, p)))
def test_each_misspelled_key_is_found(place: tuple[Any, ...]) -> None:
    broken = copy.deepcopy(RAW)
    inner = broken
    for step in place[:-1]:
        inner = inner[step]
    inner[f"{place[-1][:-1]}"] = inner.pop(place[-1])
    with pytest.raises(ValidationError):
        PrefectFile.model_validate(broken)


def test_prefect_knows_every_key() -> None:
    """Our own list of keys must not be wrong either."""
    from prefect.cli.deploy import _models as prefect_models

    known = prefect_models.DeploymentConfig.model_fields
    assert set(Deployment.model_fields) <= set(known)
    assert set(WorkPool.model_fields) <= set(prefect_models.WorkPoolConfig.model_fields)
    assert set(PrefectFile.model_fields) <= set(prefect_models.PrefectYamlModel.model_fields)
    read = prefect_models.PrefectYamlModel.model_validate(RAW)
    for one in read.deployments:
        assert len(one.schedules or []) == len(DEPLOYMENTS[one.name].get("schedules", []))


def test_the_three_deployments() -> None:
    from prefect.server.schemas.schedules import CronSchedule

    assert set(DEPLOYMENTS) == {"nightly", "weekly", "on-demand"}
    assert "schedules" not in DEPLOYMENTS["on-demand"]
    for name, days in (("nightly", 1), ("weekly", 7)):
        (schedule,) = DEPLOYMENTS[name]["schedules"]
        timing = CronSchedule(cron=schedule["cron"], timezone=schedule["timezone"])
        first, second = asyncio.run(timing.get_dates(2))
        assert second - first == timedelta(days=days)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_entrypoint_imports_and_takes_the_parameters(name: str) -> None:
    from prefect.flows import Flow, load_flow_from_entrypoint

    one = DEPLOYMENTS[name]
    path, _, function = one["entrypoint"].partition(":")
    flow = load_flow_from_entrypoint(f"{ROOT / path}:{function}")
    assert isinstance(flow, Flow)
    flow.validate_parameters(one["parameters"])
    misspelled = {"request": {**one["parameters"]["request"], "suits": 1}}
    with pytest.raises(Exception, match="suits"):
        flow.validate_parameters(misspelled)
    assert not flow.retries, "no network in a whole run"


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_suites_exist(name: str) -> None:
    from pipeline_lib.suites import suite_names

    request = DEPLOYMENTS[name]["parameters"]["request"]
    assert set(request.get("suites", [request.get("suite", "quickstart")])) <= set(suite_names())


def test_work_pool_is_the_one_of_the_services() -> None:
    assert {one["work_pool"]["name"] for one in DEPLOYMENTS.values()} == {POOL}


def test_working_directory_is_the_checkout_wherever_one_deploys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect.utilities.importtools import import_object
    from prefect.utilities.templating import apply_values

    monkeypatch.chdir(tmp_path)
    outputs: dict[str, Any] = {}
    for step in RAW["pull"]:
        ((function, inputs),) = step.items()
        values = {name: value for name, value in inputs.items() if name != "id"}
        outputs[inputs.get("id", "")] = import_object(function)(**apply_values(values, outputs))
    assert Path(os.getcwd()) == ROOT
    assert importlib.util.find_spec("flows") is not None
    assert (Path.cwd() / "flows" / "benchmark.py").is_file()


def test_no_place_of_anybody_stands_in_the_file() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert str(ROOT) not in text and "/home/" not in text and str(Path.home()) not in text
