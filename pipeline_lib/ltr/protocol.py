"""Learning to rank in the pipeline: folds, feature maps, fits along C, LETOR evaluation."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from pipeline_lib import registry
from pipeline_lib.artifacts import Artifact, ArtifactWriter
from pipeline_lib.datasets.catalogue import dataset_spec
from pipeline_lib.datasets.container import Dataset
from pipeline_lib.errors import InputError
from pipeline_lib.features.query_normalization import query_minmax
from pipeline_lib.metrics.ranking import ranking_metrics
from pipeline_lib.protocol import Data, FitLog, ProblemKind, write_evaluation
from pipeline_lib.registry import MethodSpec
from pipeline_lib.specs import FeatureStep, Parameters, PathSpec, StrictModel

_ROLES = ("train", "vali", "test")


class LearningToRank(ProblemKind):
    """Ranking documents of a query by relevance; folds with training, validation and test parts.

    The map of a kernel approximation is fitted once a path and its image of the training documents
    shared along C; a solver that takes ``coef_init`` starts from the solution of the setting before.
    """

    name: ClassVar[str] = "ltr"
    title: ClassVar[str] = "learning to rank"
    item: ClassVar[str] = "query"

    class Options(StrictModel):
        """Options of a learning-to-rank problem.

        Attributes
        ----------
        definitions : list
            Metric definitions reported for the test part; the first one also serves selection.
        normalize : {"none", "query-minmax"}
            ``query-minmax`` scales each feature to [0, 1] within each query, as LETOR's
            query-level normalised files are; ``none`` takes the files as they are.
        """

        definitions: list[Literal["letor3", "letor4", "standard"]] = Field(
            default=["letor4", "standard"], min_length=1
        )
        normalize: Literal["none", "query-minmax"] = "none"

    def selection_metrics(self, options: Parameters) -> list[str]:
        """Metrics of the validation part under the first definition."""
        measured = ranking_metrics([0.0], [0], [0], definition=options["definitions"][0])
        return list(measured.means)

    def check_data(self, dataset: str, splits: Sequence[str], *, path: Any = None) -> None:
        """Raise `InputError` unless each split has its three parts."""
        declared = dataset_spec(dataset)
        for split in splits:
            for role in _ROLES:
                part = declared.part(f"{split}/{role}")
                if part.kind != "ltr":
                    raise InputError(
                        f'the dataset "{dataset}" is no learning-to-rank data', path=path
                    )

    def parts(self, spec: PathSpec) -> dict[str, str]:
        """Training, validation and test part of the split."""
        return {role: f"{spec.split}/{role}" for role in _ROLES}

    def features(self, spec: PathSpec) -> list[FeatureStep]:
        """One step where the method has a feature map: the map, fitted on the training documents."""
        method = registry.method(spec.method, self.name)
        if method.feature_map is None:
            return []
        map_class = method.load_feature_map()
        assert map_class is not None
        params: Parameters = {
            "feature_map": method.feature_map,
            "params": {**_map_defaults(method), **spec.features},
            "normalize": spec.options["normalize"],
        }
        if "random_state" in inspect.signature(map_class).parameters:
            params["seed"] = spec.method_seed("feature map")
        return [
            FeatureStep(
                name=map_class.__name__,
                function="pipeline_lib.ltr.protocol:fit_feature_map",
                params=params,
                modules=(method.feature_map.partition(":")[0],),
            )
        ]

    def fit(
        self, spec: PathSpec, data: Data, features: Sequence[Artifact], out: ArtifactWriter
    ) -> None:
        """Fit along the settings; write each model's arrays and the values on the validation part."""
        method = registry.method(spec.method, self.name)
        solver = method.load_solver()
        accepted = inspect.signature(solver).parameters
        train_X, train_y, train_qid = ranking_data(data["train"], spec.options["normalize"])
        vali_X, vali_y, vali_qid = ranking_data(data["vali"], spec.options["normalize"])
        started = time.perf_counter()
        mapped = _load_map(method, features)
        train_X = train_X if mapped is None else mapped.transform(train_X)
        shared = time.perf_counter() - started
        vali_X = vali_X if mapped is None else mapped.transform(vali_X)
        warm = "coef_init" in inspect.signature(solver.fit).parameters
        log = FitLog()
        coef: NDArray[np.float64] | None = None
        for index in range(len(spec.settings)):
            with log.trial(index) as record:
                params = {**method.defaults, **spec.params, **spec.settings[index]}
                if "random_state" in accepted:
                    params["random_state"] = spec.method_seed("fit")
                model = solver(**params)
                begun = time.perf_counter()
                extra = {"coef_init": coef} if warm and coef is not None else {}
                model.fit(train_X, train_y, train_qid, **extra)
                record.seconds = time.perf_counter() - begun
                record.take(model)
                record.validation = ranking_metrics(
                    model.predict(vali_X),
                    vali_y,
                    vali_qid,
                    definition=spec.options["definitions"][0],
                )
                coef = getattr(model, "coef_", None)
                for name, values in model.get_state().items():
                    out.array(f"model{index}.{name}", values)
        log.write(out)
        out.record(shared_seconds=shared)

    def evaluate(
        self,
        spec: PathSpec,
        index: int,
        data: Data,
        features: Sequence[Artifact],
        fitted: Artifact,
        out: ArtifactWriter,
    ) -> None:
        """Score the test part and measure it under each definition."""
        method = registry.method(spec.method, self.name)
        params = {**method.defaults, **spec.params, **spec.settings[index]}
        prefix = f"model{index}."
        state = {
            name.removeprefix(prefix): fitted.array(name)
            for name in fitted.array_names()
            if name.startswith(prefix)
        }
        model = method.load_solver().from_state(params, state)
        X, y, qid = ranking_data(data["test"], spec.options["normalize"])
        started = time.perf_counter()
        mapped = _load_map(method, features)
        scores = model.predict(X if mapped is None else mapped.transform(X))
        seconds = time.perf_counter() - started
        results = {
            definition: ranking_metrics(scores, y, qid, definition=definition)
            for definition in spec.options["definitions"]
        }
        if mapped is not None:
            # How good the map is stands beside how good its ranker is, measured on the same documents.
            quality = {
                "kernel_error": mapped.approximation_error(X),
                "map_dimension": float(mapped.n_features_out_),
            }
            results = {
                definition: result._replace(means={**result.means, **quality})
                for definition, result in results.items()
            }
        predictions = pl.DataFrame({"qid": qid, "y": y, "score": scores})
        ids = data["test"].ids
        if ids is not None:
            predictions = predictions.with_columns(pl.Series("id", ids.astype(str)))
        write_evaluation(out, results, seconds=seconds, predictions=predictions)


def fit_feature_map(
    params: Parameters, data: Data, previous: Artifact | None
) -> Mapping[str, NDArray[Any]]:
    """Fit a feature map on the training documents and return its arrays."""
    X, _, _ = ranking_data(data["train"], params["normalize"])
    arguments = dict(params["params"])
    if "seed" in params:
        arguments["random_state"] = params["seed"]
    fitted = registry.load_object(params["feature_map"])(**arguments).fit(X)
    state: Mapping[str, NDArray[Any]] = fitted.get_state()
    return state


def _load_map(method: MethodSpec, features: Sequence[Artifact]) -> Any:
    if not features:
        return None
    artifact = features[0]
    arguments = dict(artifact.sidecar["spec"]["params"]["params"])
    return method.load_feature_map().from_state(arguments, artifact.arrays())


def _map_defaults(method: MethodSpec) -> Parameters:
    """Map parameters where the suite names none: the estimator's own, or what the entry fixes."""
    declared = {
        name: p.default
        for name, p in method.parameters().items()
        if name in method.map_parameters and not p.required
    }
    return declared | {n: v for n, v in method.defaults.items() if n in method.map_parameters}


def ranking_data(
    dataset: Dataset, normalize: str
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]:
    """Features, labels and queries of a part, normalised as the problem asks."""
    X, y, qid = dataset.ranking()
    return (query_minmax(X, qid) if normalize == "query-minmax" else X), y, qid
