"""The four stages of a path as functions: specification and references in, a reference out.

Every road to a result goes through these functions: the plain runner calls them, the Prefect tasks
wrap them, in threads, processes or on other machines alike. Nothing but specifications and references
is passed.
"""

from __future__ import annotations

import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline_lib import registry
from pipeline_lib.artifacts import Artifact, ArtifactRef, ArtifactStore, ArtifactWriter
from pipeline_lib.datasets import acquire
from pipeline_lib.datasets.canonical import read_canonical
from pipeline_lib.datasets.container import Dataset
from pipeline_lib.datasets.rawfiles import scratch_of
from pipeline_lib.environment import computing_environment
from pipeline_lib.fingerprints import canonical_json, digest, fingerprint
from pipeline_lib.protocol import ProblemKind
from pipeline_lib.specs import FeatureStep, PathSpec

DATA_TABLE = "data"
_CACHED_BYTES = 256 << 20
INGEST_MODULES = ("pipeline_lib.datasets.acquire",)
MADE_IN = "made_in"
"""Record of each artifact: `pipeline_lib.environment.computing_environment` at its making."""

_loaded: OrderedDict[Path, Dataset] = OrderedDict()
_loaded_lock = threading.Lock()

Refs = dict[str, ArtifactRef]


def run_ingest(
    root: Path, dataset: str, part: str, allow_mismatch: bool, seed: int = 0
) -> ArtifactRef:
    """Bring one part of a dataset into canonical Parquet.

    Generated data are drawn with ``seed``; what is read from files does not depend on it.

    Raises
    ------
    DataMissingError
        If the raw files are not found; the sentence holds the import command.
    InputError
        If a file cannot be read, or what it holds is not what is declared.
    """
    spec = {"dataset": dataset, "part": part, "allow_mismatch": allow_mismatch}
    sources = acquire.source_digest(dataset, part, seed=seed)
    name = fingerprint("ingest", {**spec, "sources": sources}, (), INGEST_MODULES)

    scratch = scratch_of(root / "pictures", dataset, part)

    def make(out: ArtifactWriter) -> None:
        info = acquire.ingest(
            dataset, part, out.folder, allow_mismatch=allow_mismatch, seed=seed, scratch=scratch
        )
        out.record(info=info)

    ref = _build(ArtifactStore(root), "ingest", name, {**spec, "sources": sources}, make)
    shutil.rmtree(scratch, ignore_errors=True)  # now part of the artifact
    return ref


def run_features(root: Path, spec: PathSpec, ingested: Refs) -> list[ArtifactRef]:
    """Make the artifacts of a path's features stage, each from the data and the one before."""
    store = ArtifactStore(root)
    steps = registry.kind(spec.kind).features(spec)
    refs: list[ArtifactRef] = []
    for step in steps:
        inputs = [content_digest(store, ingested[role]) for role in step.roles]
        inputs += [refs[-1].fingerprint] if refs else []
        body = step.model_dump(mode="json", exclude={"modules"})
        name = fingerprint("features", body, inputs, step_modules(step))
        refs.append(
            _build(store, "features", name, body, _FeatureMaker(store, step, ingested, refs[-1:]))
        )
    return refs


class _FeatureMaker:
    """Computes one features step when the store asks for it."""

    def __init__(
        self, store: ArtifactStore, step: FeatureStep, ingested: Refs, previous: list[ArtifactRef]
    ) -> None:
        self.store, self.step, self.ingested, self.previous = store, step, ingested, previous

    def __call__(self, out: ArtifactWriter) -> None:
        data = {role: load_data(self.store, self.ingested[role]) for role in self.step.roles}
        previous = self.store.open(self.previous[0]) if self.previous else None
        arrays = registry.load_object(self.step.function)(self.step.params, data, previous)
        for name, values in arrays.items():
            out.array(name, values)


def run_fit(
    root: Path, spec: PathSpec, ingested: Refs, features: Sequence[ArtifactRef]
) -> ArtifactRef:
    """Fit a path's method over its settings, with the values by which one is selected."""
    store = ArtifactStore(root)
    protocol: ProblemKind = registry.kind(spec.kind)
    name = fit_fingerprint(store, spec, ingested, features)

    def make(out: ArtifactWriter) -> None:
        data = {role: load_data(store, ref) for role, ref in ingested.items()}
        protocol.fit(spec, data, [store.open(ref) for ref in features], out)

    return _build(store, "fit", name, spec.model_dump(mode="json"), make)


def run_evaluate(
    root: Path,
    spec: PathSpec,
    index: int,
    ingested: Refs,
    features: Sequence[ArtifactRef],
    fitted: ArtifactRef,
) -> ArtifactRef:
    """Evaluate one trial of a fitted path on the test side."""
    store = ArtifactStore(root)
    protocol: ProblemKind = registry.kind(spec.kind)
    body = {"path": spec.model_dump(mode="json"), "trial": index}
    name = fingerprint("evaluate", body, (fitted.fingerprint,), modules(spec))

    def make(out: ArtifactWriter) -> None:
        data = {role: load_data(store, ref) for role, ref in ingested.items()}
        opened = [store.open(ref) for ref in features]
        protocol.evaluate(spec, index, data, opened, store.open(fitted), out)

    return _build(store, "evaluate", name, body, make)


def _build(
    store: ArtifactStore,
    stage: str,
    name: str,
    body: Mapping[str, Any],
    make: Callable[[ArtifactWriter], None],
) -> ArtifactRef:
    def make_and_sign(out: ArtifactWriter) -> None:
        make(out)
        out.record(**{MADE_IN: computing_environment()})

    return store.build(stage, name, body, make_and_sign)


def fit_fingerprint(
    store: ArtifactStore, spec: PathSpec, ingested: Refs, features: Sequence[ArtifactRef]
) -> str:
    """Name of a path's fit artifact; also the path's fingerprint in tables and MLflow."""
    inputs = [f"{role}:{content_digest(store, ref)}" for role, ref in sorted(ingested.items())]
    inputs += [ref.fingerprint for ref in features]
    body = {"path": spec.model_dump(mode="json"), "method": declared(spec)}
    return fingerprint("fit", body, inputs, modules(spec))


def declared(spec: PathSpec) -> dict[str, Any]:
    """What the registry fixes of a path's method: part of the question as much as what the suite says."""
    method = registry.method(spec.method, spec.kind)
    return {
        "target": method.target,
        "solver": method.solver,
        "feature_map": method.feature_map,
        "defaults": dict(method.defaults),
    }


def content_digest(store: ArtifactStore, ref: ArtifactRef) -> str:
    """Digest of what an ingest artifact holds.

    Later stages are named by the data, not by the reader's code: an edited reader that reads the same
    values makes nothing else stale.
    """
    return digest(store.open(ref).sidecar["files"])[:32]


def load_data(store: ArtifactStore, ref: ArtifactRef) -> Dataset:
    """Read an ingested part; small ones are kept for the next path of this process."""
    artifact: Artifact = store.open(ref)
    path = artifact.path(DATA_TABLE)
    with _loaded_lock:
        if path in _loaded:
            _loaded.move_to_end(path)
            return _loaded[path]
    dataset = read_canonical(path)
    with _loaded_lock:
        _loaded[path] = dataset
        while len(_loaded) > 1 and sum(map(_size, _loaded.values())) > _CACHED_BYTES:
            _loaded.popitem(last=False)
        if _size(dataset) > _CACHED_BYTES:
            _loaded.pop(path, None)
    return dataset


def features_key(spec: PathSpec) -> str:
    """Equal for paths that need the same features artifacts."""
    steps = [step.model_dump(mode="json") for step in registry.kind(spec.kind).features(spec)]
    parts = registry.kind(spec.kind).parts(spec)
    return canonical_json({"dataset": spec.dataset, "parts": parts, "steps": steps})


def step_modules(step: FeatureStep) -> tuple[str, ...]:
    """Modules whose code a features step runs."""
    return (step.function.partition(":")[0], *step.modules)


def modules(spec: PathSpec) -> tuple[str, ...]:
    """Modules whose code the fit and the evaluation of a path run."""
    protocol = type(registry.kind(spec.kind)).__module__
    return (protocol, *registry.method(spec.method, spec.kind).modules)


def _size(dataset: Dataset) -> int:
    arrays: list[Any] = [dataset.X, dataset.y, dataset.qid, dataset.Y, dataset.ids]
    return sum(array.nbytes for array in arrays if array is not None)
