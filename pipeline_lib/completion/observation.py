"""What the methods of a completion problem get to see: the shared steps of the features stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline_lib.artifacts import Artifact
from pipeline_lib.completion.sampling import filter_tags, hide_tags, replace_with_noise
from pipeline_lib.completion.visual_graph import visual_laplacian
from pipeline_lib.datasets.container import Dataset
from pipeline_lib.datasets.generators import draw_tags, low_rank_probabilities
from pipeline_lib.errors import InputError
from pipeline_lib.protocol import Data
from pipeline_lib.specs import Parameters

Arrays = Mapping[str, NDArray[Any]]


def observe(params: Parameters, data: Data, previous: Artifact | None) -> Arrays:
    """Filter, hide and corrupt the tags of a dataset.

    Returns
    -------
    mapping
        ``observed`` and ``truth`` (images x tags), and ``images`` and ``tags``, the rows and columns
        of the dataset that stayed. The truth is all tags of an image, or the labels of the part
        ``labels`` when the task is refinement.
    """
    Y = data["all"].tag_matrix()
    images, tags = filter_tags(Y, params["min_tags_per_image"], params["min_images_per_tag"])
    images = _subset(images, params["max_images"], params["seed"])
    if len(images) < 2 or len(tags) < 2:
        raise InputError(
            f"the filters leave {len(images)} images and {len(tags)} tags", remedy="loosen them"
        )
    assigned = Y[np.ix_(images, tags)]
    observed = hide_tags(assigned, params["n_observed"], params["seed"], images)
    if params["noise"] > 0:
        observed = replace_with_noise(
            observed,
            assigned,
            params["noise"],
            params["seed"],
            images,
            per_image=params["task"] != "completion",
        )
    truth = assigned
    if params["task"] == "refinement":
        truth = _labels(data["all"], data["labels"], tags)[images]
    return {"truth": truth, "observed": observed, "images": images, "tags": tags}


def draw(params: Parameters, data: Data, previous: Artifact | None) -> Arrays:
    """Draw tags anew, with repetition, from the probabilities behind a generated dataset.

    Returns
    -------
    mapping
        ``observed`` (counts, images x tags), ``truth`` (the probabilities) and ``rank``.
    """
    made = data["all"].info.get("findings", {}).get("parameters", {})
    names = ("n", "m", "rank", "concentration", "floor", "seed")
    if any(name not in made for name in names):
        raise InputError(
            f"{data['all'].name} was not drawn from known probabilities", remedy="use lowrank-tags"
        )
    known = {name: made[name] for name in names}
    truth, _ = low_rank_probabilities(**known)
    observed = draw_tags(truth, params["n_observed"], replace=True, seed=params["seed"])
    return {"truth": truth, "observed": observed, "rank": np.array(known["rank"])}


def graph(params: Parameters, data: Data, previous: Artifact | None) -> Arrays:
    """Laplacian of the graph of visually similar images, as the parts of a sparse matrix."""
    if previous is None:
        raise RuntimeError("the step follows that of the observed tags")
    X = kept_features(data, previous)
    L = visual_laplacian(X, params["n_neighbors"], params["metric"])
    return {"data": L.data, "indices": L.indices, "indptr": L.indptr}


def kept_features(data: Data, observed: Artifact) -> NDArray[np.float64]:
    """Visual features of the images that `observe` kept."""
    return np.asarray(data["all"].features()[observed.array("images")], dtype=np.float64)


def read_graph(artifact: Artifact) -> sparse.csr_array:
    """Read the Laplacian that `graph` made."""
    parts = tuple(artifact.array(name) for name in ("data", "indices", "indptr"))
    n = len(parts[2]) - 1
    return sparse.csr_array(parts, shape=(n, n))


def _subset(images: NDArray[np.int64], most: int | None, seed: int) -> NDArray[np.int64]:
    """Draw at most ``most`` images."""
    if most is None or len(images) <= most:
        return images
    return np.sort(np.random.default_rng(seed).choice(images, most, replace=False))


def _labels(tagged: Dataset, labelled: Dataset, tags: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Manual labels of the same images, put under the columns of the tags of the same name."""
    labels = labelled.tag_matrix()
    same = tagged.ids is None or labelled.ids is None or np.array_equal(tagged.ids, labelled.ids)
    if len(labels) != len(tagged) or not same:
        raise InputError(
            f"{labelled.name} {labelled.part} labels other images than {tagged.part} tags",
            expected="the same images in the same order",
        )
    column = {name: j for j, name in enumerate(labelled.tags)}
    known = [
        (j, column[tagged.tags[tag]]) for j, tag in enumerate(tags) if tagged.tags[tag] in column
    ]
    if not known:
        raise InputError(
            f"{labelled.name} {labelled.part} has no label with the name of a tag of {tagged.part}"
        )
    truth = np.zeros((len(labels), len(tags)), dtype=np.uint8)
    truth[:, [j for j, _ in known]] = labels[:, [k for _, k in known]]
    return truth
