"""What every iterative method of the library shares: how it reports its convergence."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning


class IterativeEstimator(BaseEstimator):
    """An estimator fitted by iterations on an objective.

    Attributes
    ----------
    objective_ : float
        The last value of the objective.
    history_ : dict of lists
        ``history_["objective"]`` has one value per outer iteration; other keys are the method's own.
    n_iter_ : int
        Outer iterations made.
    converged_ : bool
        Whether the stopping rule was met; if not, `ConvergenceWarning` has been issued.
    """

    objective_: float
    history_: dict[str, list[float]]
    n_iter_: int
    converged_: bool

    def _record_convergence(
        self,
        history: Mapping[str, Sequence[float]],
        *,
        converged: bool,
        n_iter: int,
        objective: float | None = None,
        advice: str = "raise max_iter or loosen tol",
    ) -> None:
        """Set the fitted attributes, and warn when the stopping rule was not met."""
        self.history_ = {key: [float(value) for value in values] for key, values in history.items()}
        self.objective_ = float(self.history_["objective"][-1] if objective is None else objective)
        self.n_iter_ = int(n_iter)
        self.converged_ = bool(converged)
        if not converged:
            warnings.warn(
                f"{type(self).__name__} stopped after {n_iter} iterations before meeting its "
                f"stopping rule; {advice}",
                ConvergenceWarning,
                stacklevel=3,
            )
