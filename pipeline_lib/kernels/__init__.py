"""Kernel functions and explicit feature maps."""

from pipeline_lib.kernels.chi2 import AdditiveChi2Map, SkewedChi2Features
from pipeline_lib.kernels.fourier import FourierFeatures
from pipeline_lib.kernels.functions import kernel_matrix
from pipeline_lib.kernels.nystroem import Nystroem

__all__ = [
    "AdditiveChi2Map",
    "FourierFeatures",
    "Nystroem",
    "SkewedChi2Features",
    "kernel_matrix",
]
