"""Metric learners on one interface, and the binary constraints they learn from."""

from pipeline_lib.metric_learning.constraints import Constraints, from_labels, from_tags
from pipeline_lib.metric_learning.dca import DCA
from pipeline_lib.metric_learning.itml import ITML
from pipeline_lib.metric_learning.kernel_pca import KernelPCA
from pipeline_lib.metric_learning.ldml import LDML
from pipeline_lib.metric_learning.lfda import LFDA
from pipeline_lib.metric_learning.lmnn import LMNN
from pipeline_lib.metric_learning.nca import NCA
from pipeline_lib.metric_learning.rca import PRCA, RCA

__all__ = [
    "DCA",
    "ITML",
    "LDML",
    "LFDA",
    "LMNN",
    "NCA",
    "PRCA",
    "RCA",
    "Constraints",
    "KernelPCA",
    "from_labels",
    "from_tags",
]
