"""Candidate lists: for each point everything nearer than a radius, extended on demand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.graphs.neighbors import NeighborGraph, nearest_in_database

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class CandidateLists:
    """Candidates of some points, one list after the other.

    Attributes
    ----------
    indptr : ndarray of int64, shape (rows + 1,)
    indices : ndarray of int64, shape (nnz,)
        Points, by ascending distance within a list.
    sq_distances : ndarray of shape (nnz,)
    radius : ndarray of shape (rows,)
        No point outside list r is nearer than this (squared); infinite when none is left out.
    """

    indptr: Ints
    indices: Ints
    sq_distances: Floats
    radius: Floats

    @property
    def row_of(self) -> Ints:
        return np.repeat(np.arange(len(self.radius)), np.diff(self.indptr))

    def take(self, rows: Ints) -> CandidateLists:
        """The lists of some rows, in the order given."""
        counts = np.diff(self.indptr)[rows]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        entries = np.arange(indptr[-1]) + np.repeat(self.indptr[rows] - indptr[:-1], counts)
        return CandidateLists(
            indptr, self.indices[entries], self.sq_distances[entries], self.radius[rows]
        )

    def replace(self, rows: Ints, lists: CandidateLists) -> CandidateLists:
        """The same lists with those of ascending `rows` exchanged."""
        indptr, (indices, sq_distances) = splice(
            self.indptr,
            rows,
            lists.indptr,
            (self.indices, lists.indices),
            (self.sq_distances, lists.sq_distances),
        )
        radius = self.radius.copy()
        radius[rows] = lists.radius
        return CandidateLists(indptr, indices, sq_distances, radius)


def splice(
    indptr: Ints, rows: Ints, new_indptr: Ints, *arrays: tuple[NDArray[Any], NDArray[Any]]
) -> tuple[Ints, list[NDArray[Any]]]:
    """Exchange ascending `rows` of ragged arrays, given as pairs (all rows, the new rows)."""
    counts = np.diff(indptr)
    changed = np.zeros(len(counts), dtype=bool)
    changed[rows] = True
    kept = ~np.repeat(changed, counts)
    counts[rows] = np.diff(new_indptr)
    new = np.repeat(changed, counts)
    spliced = []
    for old_values, new_values in arrays:
        values = np.empty(len(new), dtype=old_values.dtype)
        values[new] = new_values
        values[~new] = old_values[kept]
        spliced.append(values)
    return np.concatenate([[0], np.cumsum(counts)]), spliced


class CandidatePool:
    """Source of candidate lists of any radius, served from a neighbour graph where it reaches.

    Parameters
    ----------
    points : ndarray of shape (n, d)
    graph : NeighborGraph
        Exact nearest neighbours of the points. Rows asked for more are searched anew, and the longer
        lists are kept.
    units : ndarray of shape (n,), optional
        Squared distance that counts as 1 in the lists of each point. Default: 1.
    """

    def __init__(self, points: Floats, graph: NeighborGraph, units: Floats | None = None) -> None:
        self.points = points
        self.graph = graph
        self.units = np.ones(len(points)) if units is None else units
        self._longer: dict[int, tuple[Ints, Floats]] = {}

    def first(self, n_candidates: int) -> CandidateLists:
        """The `n_candidates` nearest points of every point, as complete lists of a local problem."""
        n = self.graph.n_points
        graph = self.graph.nearest(n_candidates)
        return CandidateLists(
            np.arange(0, n * n_candidates + 1, n_candidates),
            graph.indices.ravel(),
            (graph.sq_distances / self.units[:, None]).ravel(),
            np.full(n, np.inf),
        )

    def within(self, rows: Ints, radii: Floats, most: Ints | None = None) -> CandidateLists:
        """All points nearer than ``radii[r]`` (squared) to point ``rows[r]``, never an empty list.

        With `most`, lists end after ``most[r]`` candidates, and say so in their radius.
        """
        n, k = self.graph.n_points, self.graph.n_neighbors
        units = self.units[rows]
        asked, radii = radii, radii * units
        most = np.full(len(rows), n - 1) if most is None else np.minimum(most, n - 1)
        stored = self.graph.sq_distances[rows]
        beyond = (stored[:, -1] < radii) & (k < most)
        places = np.flatnonzero(beyond)
        searched = self._search(rows[places], radii[places], most[places])
        # The nearest point is always a candidate, so that every row can be projected.
        counts = np.maximum(np.count_nonzero(stored < radii[:, None], axis=1), 1)
        counts[places] = [
            np.searchsorted(distances, radius)
            for (_, distances), radius in zip(searched, radii[places])
        ]
        cut = counts >= most
        counts = np.minimum(counts, most)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        indices = np.empty(indptr[-1], dtype=np.int64)
        sq_distances = np.empty(indptr[-1])
        near = np.flatnonzero(~beyond)
        taken = np.arange(k) < counts[near, None]
        entries = np.repeat(~beyond, counts)
        indices[entries] = self.graph.indices[rows[near]][taken]
        sq_distances[entries] = stored[near][taken]
        for place, (found, distances) in zip(places, searched):
            part = slice(indptr[place], indptr[place + 1])
            indices[part] = found[: counts[place]]
            sq_distances[part] = distances[: counts[place]]
        sq_distances /= np.repeat(units, counts)
        # The radius asked for itself, not rounded by the units: a caller compares with it.
        radius = np.where(cut, sq_distances[indptr[1:] - 1], asked)
        radius[counts >= n - 1] = np.inf
        return CandidateLists(indptr, indices, sq_distances, radius)

    def _search(self, rows: Ints, radii: Floats, most: Ints) -> list[tuple[Ints, Floats]]:
        """Lists that reach the radii or hold `most`, for rows whose list in the graph does not.

        Searches go twice as far each time. Threads may search the same row at once: each works on
        what it found itself, the cache only saves work.
        """
        n, size = self.graph.n_points, self.graph.n_neighbors
        found = [self._longer.get(int(row)) for row in rows]
        places = np.array(
            [
                place
                for place, entry in enumerate(found)
                if entry is None or (entry[1][-1] < radii[place] and len(entry[1]) < most[place])
            ],
            dtype=np.int64,
        )
        while len(places):
            size = min(2 * size, n - 1)
            distinct, inverse = np.unique(rows[places], return_inverse=True)
            indices, distances = nearest_in_database(
                self.points[distinct], self.points, size, exclude=distinct
            )
            for place, position in zip(places, inverse):
                found[place] = (indices[position], distances[position])
            short = (distances[inverse, -1] < radii[places]) & (size < most[places])
            places = places[short]
        entries = [entry for entry in found if entry is not None]
        self._longer.update(zip(map(int, rows), entries))
        return entries
