"""The manifest of a run: what was computed, from what, by which code, and where.

``manifest.json`` holds, besides times, status and places:

================  =================================================================================
``version``       2; version 1 had neither ``paths`` nor ``environments`` nor checksums of artifacts
``suite``         the suite in full; its ``seed`` is the base of every draw
``environment``   the run's own: Python, platform, processors, BLAS and its threads, packages, and
                  ``code``: version, commit, local changes, and the digest of each module used
``data``          by part: ``digest`` of the rows, ``sources`` (checksum of each raw file, or of the
                  options of generated data), ``info`` on what was found
``paths``         one entry a path, in the order of the rows: ``problem``, ``label``, ``position``
                  among the paths of its row, ``spec``, ``declared`` (what the registry fixes),
                  ``seeds`` derived for it, ``steps``: stage, name and artifact of each step
``artifacts``     by name ``stage/fingerprint``: checksum of each ``files``, position of what it was
                  ``made_in`` among the environments
``environments``  the distinct environments in which those artifacts were computed; another run may
                  have made what this one reused
================  =================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pipeline_lib import registry, stages
from pipeline_lib.artifacts import ArtifactRef, ArtifactStore
from pipeline_lib.fingerprints import canonical_json, source_digests
from pipeline_lib.specs import PathSpec

VERSION = 2


def path_entry(
    problem: str,
    label: str,
    position: int,
    spec: PathSpec,
    ingested: Mapping[str, ArtifactRef],
    features: Sequence[ArtifactRef],
    fitted: ArtifactRef | None,
    evaluated: tuple[int, ArtifactRef] | None,
) -> dict[str, Any]:
    """Entry of one path; steps that were not reached are left out."""
    steps: list[dict[str, Any]] = [
        {"stage": "ingest", "name": role, "artifact": ref.name}
        for role, ref in sorted(ingested.items())
    ]
    declared_steps = registry.kind(spec.kind).features(spec)
    for step, ref in zip(declared_steps, features):
        body = step.model_dump(mode="json", exclude={"modules"})
        steps.append({"stage": "features", "name": step.name, "artifact": ref.name, "asked": body})
    if fitted is not None:
        steps.append({"stage": "fit", "name": spec.method, "artifact": fitted.name})
    if evaluated is not None:
        setting, ref = evaluated
        asked = {"setting": setting, "chosen": spec.trial(setting)}
        steps.append(
            {"stage": "evaluate", "name": spec.method, "artifact": ref.name, "asked": asked}
        )
    return {
        "problem": problem,
        "label": label,
        "position": position,
        "spec": spec.model_dump(mode="json"),
        "declared": stages.declared(spec),
        "seeds": {"data": spec.data_seed(), "method": spec.method_seed()},
        "steps": steps,
    }


def data_entry(store: ArtifactStore, ref: ArtifactRef) -> dict[str, Any]:
    """Entry of one ingested part."""
    artifact = store.open(ref)
    return {
        "digest": stages.content_digest(store, ref),
        "sources": artifact.sidecar["spec"]["sources"],
        "info": artifact.records.get("info"),
    }


def artifact_entries(
    store: ArtifactStore, refs: Iterable[ArtifactRef]
) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """Checksums of artifacts by name, and the environments they were made in."""
    environments: dict[str, tuple[int, dict[str, Any]]] = {}
    entries = {}
    for ref in sorted(refs, key=lambda ref: ref.name):
        artifact = store.open(ref)
        made_in = artifact.records.get(stages.MADE_IN)
        position = None
        if made_in is not None:
            position, _ = environments.setdefault(
                canonical_json(made_in), (len(environments), made_in)
            )
        entries[ref.name] = {"files": artifact.sidecar["files"], "made_in": position}
    return entries, [environment for _, environment in environments.values()]


def module_digests(specs: Iterable[PathSpec]) -> dict[str, str]:
    """Digest of every module whose code the stages of some paths can reach."""
    used = set(stages.INGEST_MODULES)
    for spec in specs:
        used.update(stages.modules(spec))
        for step in registry.kind(spec.kind).features(spec):
            used.update(stages.step_modules(step))
    return source_digests(used)
