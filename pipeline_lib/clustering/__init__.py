"""Image clustering by sparse coding on neighbour graphs, and its baselines."""

from pipeline_lib.clustering.graph_sparse_coding import GraphSC
from pipeline_lib.clustering.graphscan import GraphSCAN
from pipeline_lib.clustering.labels import RepresentationClustering, codes_to_labels
from pipeline_lib.clustering.logsc import LogSC
from pipeline_lib.clustering.sparse_coding import SparseCoding
from pipeline_lib.clustering.spectral import SpectralEmbedding

__all__ = [
    "GraphSC",
    "GraphSCAN",
    "LogSC",
    "RepresentationClustering",
    "SparseCoding",
    "SpectralEmbedding",
    "codes_to_labels",
]
