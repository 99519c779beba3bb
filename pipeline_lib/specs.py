"""Frozen specifications: what is to be computed, said completely, before anything is computed.

The unit of work, of caching and of resuming is a *path*: dataset x split x repetition x method x
feature map, walked over its grid of settings in a fixed order from a fixed start, so that warm starts
are part of its definition and results never depend on what ran before. One setting of a path is a
*trial*.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from pipeline_lib.seeds import derive_seed

Scalar = bool | int | float | str | None
Parameters = dict[str, Any]


class StrictModel(BaseModel):
    """A frozen model that refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PathSpec(StrictModel):
    """One path.

    Attributes
    ----------
    kind : str
        Problem kind, for example ``ltr``.
    dataset, split : str
        Catalogue name and split of it, for example ``mq2008`` and ``fold1``.
    repetition : int
        Which repetition of the random draws, from 0.
    method : str
        Registered name of the method.
    features : dict
        Parameters of the method's feature map (empty when it has none).
    params : dict
        Parameters of the method that stay fixed along the path.
    settings : tuple of dict
        The settings walked, in order; each completes ``params`` to one trial.
    options : dict
        Options of the problem kind's protocol.
    seed : int
        Base seed of the suite.
    allow_mismatch : bool
        Whether data that differ from their declaration are accepted (and said so).
    """

    kind: str
    dataset: str
    split: str
    repetition: int = 0
    method: str
    features: Parameters = {}
    params: Parameters = {}
    settings: tuple[Parameters, ...] = ({},)
    options: Parameters = {}
    seed: int = 0
    allow_mismatch: bool = False

    def data_seed(self, *parts: str | int) -> int:
        """Seed of a draw that every method of the problem shares (a split, hidden tags, a subset)."""
        return derive_seed(self.seed, "data", self.dataset, self.split, self.repetition, *parts)

    def method_seed(self, *parts: str | int) -> int:
        """Seed of the method's own draws (landmarks, initial dictionary); the same along the grid."""
        return derive_seed(
            self.seed, "method", self.dataset, self.split, self.repetition, self.method, *parts
        )

    def trial(self, index: int) -> Parameters:
        """All parameters of one trial: feature map, fixed and walked."""
        return {**self.features, **self.params, **self.settings[index]}


class FeatureStep(StrictModel):
    """One step of the features stage; steps of different paths with equal content are one artifact.

    Attributes
    ----------
    name : str
        What the step makes, for example ``normalised`` or ``Nystroem``.
    function : str
        ``module:function`` called as ``function(params, data, previous)``, where ``data`` maps roles to
        datasets and ``previous`` is the artifact of the step before (or None); returns a mapping of
        arrays and may be cached under any path that asks for the same step.
    params : dict
        Plain JSON parameters, seed included.
    roles : tuple of str
        The data roles it reads.
    modules : tuple of str
        Further modules whose code it runs (for the artifact's name).
    """

    name: str
    function: str
    params: Parameters = {}
    roles: tuple[str, ...] = ("train",)
    modules: tuple[str, ...] = ()
