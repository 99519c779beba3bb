"""Learning to rank."""

from pipeline_lib.ltr.ranksvm import RankNystroem, RankRandomFourier, RankSVM

__all__ = ["RankNystroem", "RankRandomFourier", "RankSVM"]
