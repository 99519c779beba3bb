"""Datasets: the catalogue, readers of the official formats, canonical Parquet."""

from pipeline_lib.datasets.acquire import describe, ingest, load, locate, status
from pipeline_lib.datasets.catalogue import names
from pipeline_lib.datasets.container import Dataset

__all__ = ["Dataset", "describe", "ingest", "load", "locate", "names", "status"]
