"""Neighbour graphs: search, adaptive neighbours, affinities, Laplacians."""

from pipeline_lib.graphs.adaptive import AdaptiveNeighbors, initial_graph
from pipeline_lib.graphs.affinity import gaussian_affinity
from pipeline_lib.graphs.laplacian import laplacian
from pipeline_lib.graphs.neighbors import NeighborGraph, nearest_neighbors
from pipeline_lib.graphs.simplex import project_simplex

__all__ = [
    "AdaptiveNeighbors",
    "NeighborGraph",
    "gaussian_affinity",
    "initial_graph",
    "laplacian",
    "nearest_neighbors",
    "project_simplex",
]
