"""Datasets: the catalogue, readers of the official formats, canonical Parquet."""

from pipeline_lib.datasets.acquire import ingest, load, locate, status
from pipeline_lib.datasets.catalogue import names
from pipeline_lib.datasets.container import Dataset
from pipeline_lib.datasets.description import describe

__all__ = ["Dataset", "describe", "ingest", "load", "locate", "names", "status"]
