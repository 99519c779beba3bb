"""The dictionary of a sparse coding problem for given codes (A-step).

    min_D  ||X - H D||_F^2    subject to  ||d_j||^2 <= c  for every atom j

X : (n, d) rows to code; H : (n, atoms) codes; D : (atoms, d) dictionary, one atom d_j per row.

With one multiplier mu_j >= 0 per atom, D = (H'H + diag(mu))^{-1} H'X, and the multipliers minimise

    phi(mu) = tr(X'H (H'H + diag(mu))^{-1} H'X) + c sum_j mu_j,    mu >= 0,

a convex function of as many variables as there are atoms, whatever n: gradient c - ||d_j||^2, Hessian
2 (H'H + diag(mu))^{-1} * (D D') entry by entry.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

Array = NDArray[np.float64]

# Added to the diagonal, relative to its mean: stands in for the pseudo-inverse where codes of several
# atoms are collinear.
_RIDGE = 1e-13
_MAX_NEWTON = 50
_MAX_HALVINGS = 30
_ROUNDING = 1e-12  # of phi, relative


@dataclass(frozen=True)
class DictionaryStep:
    """A dictionary and the multipliers of its norm constraints.

    Attributes
    ----------
    dictionary : ndarray of shape (atoms, d)
        Every atom within the norm bound.
    multipliers : ndarray of shape (atoms,)
        At least 0; positive where the bound is active. A good start for the next step.
    residual : float
        Largest violation of the optimality conditions of the multipliers, relative to c.
    """

    dictionary: Array
    multipliers: Array
    residual: float


def solve_dictionary(
    code_gram: Array,
    code_data: Array,
    previous: Array,
    multipliers: Array | None = None,
    *,
    bound: float = 1.0,
    tol: float = 1e-10,
) -> DictionaryStep:
    """Best dictionary for given codes, never worse than the previous one.

    Parameters
    ----------
    code_gram : ndarray of shape (atoms, atoms)
        H'H.
    code_data : ndarray of shape (atoms, d)
        H'X.
    previous : ndarray of shape (atoms, d)
        A dictionary within the bound. Atoms that no code uses (a zero row of H'H) are kept from it.
    multipliers : ndarray of shape (atoms,), optional
        Start of the multipliers, usually those of the step before.
    bound : float, default=1.0
        c, the largest squared norm of an atom.
    tol : float, default=1e-10
        Accepted violation of the optimality conditions, relative to c.

    Returns
    -------
    DictionaryStep

    Notes
    -----
    Projected Newton on the dual (Bertsekas 1982): multipliers that are zero with a gradient pointing
    outwards stay there, the others take a Newton step, and an Armijo search runs along the projected
    path. The rounding left in the constraints is removed by scaling; should the result not be better
    than ``previous`` (collinear codes), block coordinate descent from ``previous`` takes over.

    References
    ----------
    Lee, Battle, Raina, Ng, "Efficient sparse coding algorithms", NIPS 2006, section 4; Yu, Lu, Li,
    GraphSCAN 2023, equations (29)-(35).
    """
    used = np.diag(code_gram) > 0.0
    dictionary = previous.copy()
    if not used.any():
        return DictionaryStep(dictionary, np.zeros(len(previous)), 0.0)
    gram = code_gram[np.ix_(used, used)]
    data = code_data[used]
    start = None if multipliers is None else multipliers[used]
    mu, atoms, residual = _newton(gram, data, start, bound, tol)
    norms = np.sqrt(np.einsum("jd,jd->j", atoms, atoms))
    atoms *= np.minimum(1.0, np.sqrt(bound) / np.maximum(norms, np.finfo(float).tiny))[:, None]
    if not _fit(gram, data, atoms) <= _fit(gram, data, previous[used]):
        atoms = _coordinate_descent(gram, data, previous[used].copy(), bound)
    dictionary[used] = atoms
    all_multipliers = np.zeros(len(previous))
    all_multipliers[used] = mu
    return DictionaryStep(dictionary, all_multipliers, residual)


def _newton(
    gram: Array, data: Array, start: Array | None, bound: float, tol: float
) -> tuple[Array, Array, float]:
    ridge = _RIDGE * np.trace(gram) / len(gram)
    # An atom alone has mu = ||h'X|| / sqrt(c) - h'h: starting no lower keeps the first system regular.
    if start is None or not start.any():
        alone = np.linalg.norm(data, axis=1) / np.sqrt(bound) - np.diag(gram)
        mu = np.maximum(alone, 0.01 * np.diag(gram))
    else:
        mu = start.copy()
    value, atoms, factor = _dual(gram, data, mu, ridge, bound)
    for _ in range(_MAX_NEWTON):
        gradient = bound - np.einsum("jd,jd->j", atoms, atoms)
        residual = float(np.abs(np.where(mu > 0.0, gradient, np.minimum(gradient, 0.0))).max())
        if residual <= tol * bound:
            break
        # Multipliers about to leave the feasible set are held at zero in this step.
        free = (mu > 1e-12 * np.diag(gram)) | (gradient < 0.0)
        inverse = linalg.cho_solve(factor, np.eye(len(gram)), check_finite=False)
        hessian = 2.0 * (inverse * (atoms @ atoms.T))[np.ix_(free, free)]
        hessian[np.diag_indices_from(hessian)] *= 1.0 + 1e-12
        step = np.zeros_like(mu)
        try:
            step[free] = -linalg.solve(hessian, gradient[free], assume_a="pos", check_finite=False)
        except linalg.LinAlgError:
            step[free] = -gradient[free] / np.diag(hessian)
        step[~free] = -mu[~free]
        length = 1.0
        for _ in range(_MAX_HALVINGS):
            trial = np.maximum(mu + length * step, 0.0)
            trial_value, trial_atoms, trial_factor = _dual(gram, data, trial, ridge, bound)
            # Close to the solution the decrease drowns in the rounding of phi, and the full step is right.
            if trial_value <= value + 1e-4 * float(gradient @ (trial - mu)) + _ROUNDING * abs(
                value
            ):
                break
            length *= 0.5
        else:
            break
        mu, value, atoms, factor = trial, trial_value, trial_atoms, trial_factor
    return mu, atoms, residual / bound


def _dual(
    gram: Array, data: Array, mu: Array, ridge: float, bound: float
) -> tuple[float, Array, tuple[Array, bool]]:
    """phi(mu), the dictionary it belongs to and the Cholesky factor behind it."""
    system = gram.copy()
    system[np.diag_indices_from(system)] += mu + ridge
    factor = linalg.cho_factor(system, check_finite=False)
    atoms = linalg.cho_solve(factor, data, check_finite=False)
    return float(np.vdot(data, atoms) + bound * mu.sum()), atoms, factor


def _fit(gram: Array, data: Array, atoms: Array) -> float:
    """||X - H D||^2 - ||X||^2."""
    return float(np.vdot(atoms, gram @ atoms) - 2.0 * np.vdot(atoms, data))


def _coordinate_descent(
    gram: Array, data: Array, atoms: Array, bound: float, sweeps: int = 20
) -> Array:
    """Exact minimisation over one atom after the other: monotone and feasible for any H'H."""
    for _ in range(sweeps):
        for j in range(len(atoms)):
            atom = atoms[j] + (data[j] - gram[j] @ atoms) / gram[j, j]
            norm = np.linalg.norm(atom)
            atoms[j] = atom * min(1.0, np.sqrt(bound) / norm) if norm > 0.0 else atom
    return atoms
