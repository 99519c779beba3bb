"""Learning to rank: one module per method."""

from pipeline_lib.ltr.adarank import AdaRank
from pipeline_lib.ltr.frank import FRank, LinearFRank
from pipeline_lib.ltr.kernel_ranksvm import KernelRankSVM
from pipeline_lib.ltr.listnet import ListNet
from pipeline_lib.ltr.peers import BaggedLambdaMART, LightGBMRanker, XGBoostRanker
from pipeline_lib.ltr.rank_nystroem import RankNystroem
from pipeline_lib.ltr.rank_random_fourier import RankRandomFourier
from pipeline_lib.ltr.rankboost import RankBoost
from pipeline_lib.ltr.ranksvm import RankSVM
from pipeline_lib.ltr.ranksvm_struct import RankSVMStruct
from pipeline_lib.ltr.regression import RegressionRanker
from pipeline_lib.ltr.svm_map import SVMMAP

__all__ = [
    "SVMMAP",
    "AdaRank",
    "BaggedLambdaMART",
    "FRank",
    "KernelRankSVM",
    "LightGBMRanker",
    "LinearFRank",
    "ListNet",
    "RankBoost",
    "RankNystroem",
    "RankRandomFourier",
    "RankSVM",
    "RankSVMStruct",
    "RegressionRanker",
    "XGBoostRanker",
]
