"""Leading eigenpairs: block Lanczos against the full decomposition, hard spectra included."""

import numpy as np
import pytest

from pipeline_lib.kernels import block_lanczos
from pipeline_lib.kernels.block_lanczos import leading_eigenpairs


def symmetric(spectrum: np.ndarray, seed: int = 0) -> np.ndarray:
    n = len(spectrum)
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0]
    M = (Q * spectrum) @ Q.T
    return 0.5 * (M + M.T)


SPECTRA = {
    "decaying": 0.97 ** np.arange(600),
    "flat": np.linspace(2.0, 1.0, 600),
    "repeated": np.repeat([3.0, 2.0, 1.0], 200),
    "a few repeated": np.concatenate([np.full(30, 3.0), np.linspace(2.0, 0.0, 570)]),
    "low rank": np.concatenate([np.arange(20.0, 0.0, -1.0), np.zeros(580)]),
    "indefinite": np.linspace(1.0, -3.0, 600),
}


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("rank", [1, 25, 300])
def test_agrees_with_the_full_decomposition(name: str, rank: int) -> None:
    M = symmetric(SPECTRA[name])
    values, vectors = leading_eigenpairs(M, rank)
    expected = np.sort(np.linalg.eigvalsh(M))[::-1][:rank]
    expected = expected[expected > 1e-12 * expected[0]]
    np.testing.assert_allclose(values, expected, atol=1e-9)
    np.testing.assert_allclose(M @ vectors, vectors * values, atol=1e-8)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(len(values)), atol=1e-10)


def test_the_krylov_path_is_taken_and_is_deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    M = symmetric(0.9 ** np.arange(600))
    first = leading_eigenpairs(M, 25)
    monkeypatch.setattr(
        block_lanczos.linalg, "eigh", _small_only(block_lanczos.linalg.eigh, limit=400)
    )
    again = leading_eigenpairs(M, 25)
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])


def _small_only(eigh, limit: int):  # type: ignore[no-untyped-def]
    def guarded(matrix, *args, **kwargs):  # type: ignore[no-untyped-def]
        assert len(matrix) <= limit, "fell back to the full decomposition"
        return eigh(matrix, *args, **kwargs)

    return guarded


@pytest.mark.parametrize("tail", ["decaying", "flat"])
def test_pairs_below_the_cutoff_need_not_converge(
    tail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = {"decaying": 10.0 ** -np.linspace(3.1, 9.0, 570), "flat": np.full(570, 4e-4)}[tail]
    spectrum = np.concatenate([10.0 ** -np.linspace(0.0, 2.9, 30), below])
    M = symmetric(spectrum)
    monkeypatch.setattr(
        block_lanczos.linalg, "eigh", _small_only(block_lanczos.linalg.eigh, limit=400)
    )
    values, vectors = leading_eigenpairs(M, 55, cutoff=1e-3, tol=1e-8)
    np.testing.assert_allclose(values, spectrum[:30], rtol=1e-8)
    np.testing.assert_allclose(M @ vectors, vectors * values, atol=2e-8)


@pytest.mark.parametrize("n", [300, 600])
def test_border_keeps_small_pairs_in_single_precision(n: int) -> None:
    rng = np.random.default_rng(3)
    a, b = 1e3 * (1.0 + 0.1 * rng.random((2, n)))
    rest = symmetric(0.9 ** np.arange(n))
    whole = rest + np.outer(a, b) + np.outer(b, a)
    values, vectors = leading_eigenpairs(rest.astype(np.float32), 25, tol=1e-13, border=(a, b))
    expected = np.sort(np.linalg.eigvalsh(whole))[::-1][:25]
    # Relative to the largest eigenvalue, float32 alone would know nothing below 60.
    assert expected[0] > 5e8 and expected[-1] < 0.2
    np.testing.assert_allclose(values[1:], expected[1:], atol=1e-4)
    np.testing.assert_allclose((whole @ vectors - vectors * values)[:, 1:], 0.0, atol=1e-4)
