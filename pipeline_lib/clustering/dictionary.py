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
_SHIFT = 1e-11
_STALLED = 3
_ACCEPTED_GAP = 1e-10


@dataclass(frozen=True)
class DictionaryStep:
    """A dictionary and the multipliers of its norm constraints.

    Attributes
    ----------
    dictionary : ndarray of shape (atoms, d)
        Every atom within the norm bound.
    multipliers : ndarray of shape (atoms,)
        At least 0; positive where the bound is active. A good start for the next step.
    gap : float
        Duality gap, relative to phi: ||X - H D||^2 is at most gap * phi above its smallest value.
    """

    dictionary: Array
    multipliers: Array
    gap: float


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
        Accepted violation of the optimality conditions of the multipliers,
        |min(1 - ||d_j||^2 / c, mu_j / ||h_j||^2)| with h_j the codes of atom j.

    Returns
    -------
    DictionaryStep

    Notes
    -----
    Projected Newton on the dual (Bertsekas 1982): multipliers that are zero with a gradient pointing
    outwards stay there, the others take a Newton step, and an Armijo search runs along the projected
    path. The rounding left in the constraints is removed by scaling. The duality gap certifies the
    result; where it does not close (collinear codes), the pseudo-inverse and block coordinate descent
    from the best dictionary known take over.

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
    mu, atoms, value = _newton(gram, data, start, bound, tol)
    candidates = [_shorten(atoms, bound), previous[used]]
    if _gap(gram, data, candidates[0], value) > _ACCEPTED_GAP:
        # Collinear codes: the minimum-norm dictionary (pseudo-inverse), then block coordinate descent
        # from the best one known.
        system = gram + np.diag(mu)
        smallest = np.linalg.pinv(system, rcond=1e-10, hermitian=True) @ data
        candidates.append(_shorten(smallest, bound))
        best = min(candidates, key=lambda candidate: _fit(gram, data, candidate))
        candidates.append(_coordinate_descent(gram, data, best.copy(), bound))
    atoms = min(candidates, key=lambda candidate: _fit(gram, data, candidate))
    gap = _gap(gram, data, atoms, value)
    dictionary[used] = atoms
    all_multipliers = np.zeros(len(previous))
    all_multipliers[used] = mu
    return DictionaryStep(dictionary, all_multipliers, gap)


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
    stalled = 0
    for _ in range(_MAX_NEWTON):
        gradient = bound - np.einsum("jd,jd->j", atoms, atoms)
        residual = float(np.abs(np.minimum(gradient / bound, mu / np.diag(gram))).max())
        if residual <= tol or stalled == _STALLED:
            break
        # Multipliers about to leave the feasible set are held at zero in this step.
        free = (mu > 1e-12 * np.diag(gram)) | (gradient < 0.0)
        inverse = linalg.cho_solve(factor, np.eye(len(gram)), check_finite=False)
        hessian = 2.0 * (inverse * (atoms @ atoms.T))[np.ix_(free, free)]
        # The shift keeps the system solvable where codes are collinear; it costs no accuracy, only pace.
        hessian[np.diag_indices_from(hessian)] += _SHIFT * np.trace(hessian) / max(len(hessian), 1)
        step = np.zeros_like(mu)
        try:
            newton = linalg.cho_factor(hessian, check_finite=False)
            step[free] = -linalg.cho_solve(newton, gradient[free], check_finite=False)
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
        # Where the fit is exact, multipliers are rounding errors and only phi tells the end.
        stalled = stalled + 1 if value - trial_value <= 1e-15 * abs(value) else 0
        mu, value, atoms, factor = trial, trial_value, trial_atoms, trial_factor
    return mu, atoms, value


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


def _gap(gram: Array, data: Array, atoms: Array, value: float) -> float:
    """Distance of ||X - H D||^2 from the dual bound, relative to phi."""
    return max(_fit(gram, data, atoms) + value, 0.0) / max(value, np.finfo(float).tiny)


def _shorten(atoms: Array, bound: float) -> Array:
    """Scale the atoms that exceed the bound down to it."""
    norms = np.linalg.norm(atoms, axis=1, keepdims=True)
    return atoms * np.minimum(1.0, np.sqrt(bound) / np.maximum(norms, np.finfo(float).tiny))


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
