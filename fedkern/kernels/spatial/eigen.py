"""Computes autoregressive priors by eigenvalues: one decomposition serves every phi (sigma.md, sections 3 and 9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh  # at once: a job limits the threads of the BLAS that is loaded when it begins

from ...arrays import Floats, Indices
from .._checks import choice, require
from .graph import FORMS, adjacency, check_graph, diagonal, null_dimension

__all__ = ["Eigen", "LogDet", "car_eigen", "car_variance", "car_weights", "icar_scale", "logdet_table", "precisions"]


@dataclass(frozen=True)
class Eigen:
    """Holds eigenvalues and orthonormal eigenvectors (in columns), rising.

    Attributes
    ----------
    values : (n,) float64 array
        Of D^-1/2 W D^-1/2 ("car"), the largest of each component exactly 1; of D - W ("leroux", "icar"), the smallest of each
        component exactly 0.
    vectors : (n, n) float64 array
    form : str

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # three areas in a row
    >>> eigen = spatial.car_eigen(indptr, indices)
    >>> isinstance(eigen, spatial.Eigen), eigen.precisions(np.array([0.5])).round(3)
    (True, array([[1.5, 1. , 0.5]]))
    """

    values: Floats
    vectors: Floats
    form: str

    def precisions(self, phi: Floats) -> Floats:
        """Returns precisions of the eigenvectors' coefficients, (m, n): 1 - phi lambda, 1 - phi + phi w, or w.

        Parameters
        ----------
        phi : (m,) float64 array
        """
        return precisions(self.values, phi, self.form)


def precisions(values: Floats, phi: Floats, form: str) -> Floats:
    """Returns the numbers of `Eigen.precisions`, from eigenvalues.

    Parameters
    ----------
    values : (n,) float64 array
    phi : (m,) float64 array
    form : str

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> spatial.precisions(np.array([-1.0, 0.0, 1.0]), np.array([0.5, 0.9]), "car")
    array([[1.5, 1. , 0.5],
           [1.9, 1. , 0.1]])
    """
    x = np.asarray(phi)[:, None]
    if form == "car":
        return 1 - x * values
    return (1 - x) + x * values if form == "leroux" else np.tile(values, (len(x), 1))


def _scaled(indptr: Indices, indices: Indices, form: str) -> Any:
    """Returns the dense matrix that is decomposed."""
    W, d = adjacency(indptr, indices).toarray(), diagonal(indptr)
    if form == "car":
        return W / np.sqrt(d[:, None] * d)
    return np.diag(d) - W


def car_eigen(indptr: Indices, indices: Indices, *, form: str = "car") -> Eigen:
    """Decomposes a graph once for all phi.

    Parameters
    ----------
    indptr, indices : int64 arrays
        See the module `spatial`.
    form : "car", "leroux" or "icar"
        D^-1/2 W D^-1/2 for the first, D - W for the others.

    Returns
    -------
    Eigen

    Raises
    ------
    ValueError
        No graph: see `check_graph`.

    Source: docs/spec/sigma.md, sections 3 and 9.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # three areas in a row
    >>> eigen = spatial.car_eigen(indptr, indices, form="leroux")
    >>> eigen.values.round(3)  # of D - W
    array([0., 1., 3.])
    """
    name = "spatial.car_eigen"
    choice(name, "form", form, FORMS)
    check_graph(indptr, indices, name=name)
    # Rounding leaves these eigenvalues near 1, or near 0: one for each component, and known exactly.
    null = null_dimension(indptr, indices)
    if len(indptr) == 1:
        return Eigen(np.zeros(0), np.zeros((0, 0)), form)
    values, vectors = eigh(_scaled(indptr, indices, form))
    if form == "car":
        values[len(values) - null :] = 1.0
        return Eigen(np.minimum(values, 1.0), vectors, form)
    values[:null] = 0.0
    return Eigen(np.maximum(values, 0.0), vectors, form)


def car_weights(indptr: Indices, *, form: str = "car") -> Floats:
    """Returns the factors of the eigenvectors' combination in a draw: D^-1/2 ("car"), or ones.

    Parameters
    ----------
    indptr : (n + 1,) int64 array
    form : str

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> spatial.car_weights(np.array([0, 1, 3, 4])).round(3)  # 1 / sqrt(neighbours)
    array([1.   , 0.707, 1.   ])
    """
    return 1 / np.sqrt(diagonal(indptr)) if form == "car" else np.ones(len(indptr) - 1)


def car_variance(values: Floats, vectors: Floats, weights: Floats, phi: Floats, *, form: str = "car") -> Floats:
    """Returns the variances of every area.

    Parameters
    ----------
    values, vectors : float64 arrays
        Of `car_eigen`.
    weights : (n,) float64 array
        See `car_weights`, `icar_scale`.
    phi : (m,) float64 array
    form : "car", "leroux" or "icar"
        "icar": without the null space, where the variance is infinite.

    Returns
    -------
    (m, n) float64 array

    Source: docs/spec/sigma.md, section 3.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # three areas in a row
    >>> eigen = spatial.car_eigen(indptr, indices)
    >>> spatial.car_variance(eigen.values, eigen.vectors, spatial.car_weights(indptr), np.array([0.0, 0.9])).round(3)
    array([[1.   , 0.5  , 1.   ],
           [3.132, 2.632, 3.132]])
    """
    eigenprecisions = precisions(values, np.asarray(phi, np.float64), form)
    inverse = np.divide(1.0, eigenprecisions, out=np.zeros_like(eigenprecisions), where=eigenprecisions > 0)
    return np.asarray(inverse @ (vectors**2).T * weights**2)


def icar_scale(values: Floats, vectors: Floats, groups: NDArray[np.int64]) -> Floats:
    """Returns weights with which the geometric mean of an intrinsic model's marginal variances is 1 in each component.

    Parameters
    ----------
    values, vectors : float64 arrays
        `car_eigen(.., form="icar")`.
    groups : (n,) int64 array
        Number of the component of each area: `components`.

    Returns
    -------
    (n,) float64 array
        1 where an area is alone.

    Source: docs/spec/sigma.md, section 9; Riebler et al. (2016), Freni-Sterrantino, Ventrucci and Rue (2018).

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # three areas in a row
    >>> eigen = spatial.car_eigen(indptr, indices, form="icar")
    >>> weights = spatial.icar_scale(eigen.values, eigen.vectors, spatial.components(indptr, indices))
    >>> weights.round(3)
    array([1.563, 1.563, 1.563])
    >>> variances = spatial.car_variance(eigen.values, eigen.vectors, weights, np.zeros(1), form="icar")
    >>> float(np.exp(np.log(variances).mean()).round(6))
    1.0
    """
    n = len(values)
    if not n:
        return np.ones(0)
    # A component is scaled by its own mean: components do not share a variance.
    logs = np.log(car_variance(values, vectors, np.ones(n), np.zeros(1), form="icar")[0])
    means = np.bincount(groups, logs) / np.bincount(groups)
    return np.asarray(np.exp(-means / 2)[groups])


@dataclass(frozen=True)
class LogDet:
    """Holds log det Q as a Chebyshev series in t = log(1 + widest phi / (1 - phi)) over [lo, hi], with bounds of its error.

    Attributes
    ----------
    coefficients : (k,) float64 array
    lo, hi : float
        The range of phi.
    bound : float
        No value is farther from the sum over eigenvalues, but for rounding.
    slope_bound : float
        The same for the derivative in phi.
    widest : float
        Scale of t: at least all eigenvalues of D - W ("leroux"), 2 ("car").
    rank : int
        Of Q: n, less the dimension of the null space of an intrinsic model.
    form : str

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # three areas in a row
    >>> eigen = spatial.car_eigen(indptr, indices)
    >>> table = spatial.logdet_table(eigen.values, indptr, hi=0.9)
    >>> isinstance(table, spatial.LogDet), table.rank, table.bound < 1e-11
    (True, 3, True)
    """

    coefficients: Floats
    lo: float
    hi: float
    bound: float
    slope_bound: float
    widest: float
    rank: int
    form: str

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `car_logdensity` that go with the coefficients."""
        return {"form": self.form, "lo": self.lo, "hi": self.hi, "widest": self.widest, "rank": self.rank}


def logdet_table(
    values: Floats, indptr: Indices, *, form: str = "car", lo: float = 0.0, hi: float = 0.99, tolerance: float = 1e-12
) -> LogDet:
    """Returns log det Q(phi) for all phi of a range, without eigenvalues at every call.

    With r = phi / (1 - phi), log det Q = log det D + sum log((1 - phi)(1 + r w_i)), w = 1 - lambda ("car"), or w of D - W
    ("leroux", without D). In t = log(1 + c r), c >= all w, 1 + r w = 1 - u + u e^t with 0 <= u = w / c <= 1: all singularities
    have imaginary parts of pi or more, however near to 1 phi comes. On an ellipse of foci t(lo), t(hi) within |Im t| <= y < pi
    the modulus of 1 - u + u e^t is between min(1, e^Re t) cos(y / 2) and max(1, e^Re t), its argument at most y: that bounds the
    function, and so the interpolant's error (Trefethen, 2013, theorem 8.2).

    Parameters
    ----------
    values : (n,) float64 array
        Eigenvalues: `car_eigen(..).values`.
    indptr : (n + 1,) int64 array
        The graph's rows: their lengths are D.
    form : "car", "leroux" or "icar"
    lo, hi : float
        0 <= lo <= hi < 1.
    tolerance : float
        The bound of the error for each area: `bound` <= n tolerance.

    Returns
    -------
    LogDet
        For "icar": a constant, the log of the product of the eigenvalues that are not 0.

    Raises
    ------
    ValueError
        A range or tolerance that is none.

    Source: docs/spec/sigma.md, section 3.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # three areas in a row
    >>> eigen = spatial.car_eigen(indptr, indices)
    >>> table = spatial.logdet_table(eigen.values, indptr, hi=0.9)
    >>> table.options
    {'form': 'car', 'lo': 0.0, 'hi': 0.9, 'widest': 2.0, 'rank': 3}
    """
    name = "spatial.logdet_table"
    choice(name, "form", form, FORMS)
    require(name, 0 <= lo <= hi < 1, "lo <= hi", "must be in [0, 1)", (lo, hi))
    require(name, 1e-14 <= tolerance < 1, "tolerance", "must be in [1e-14, 1)", tolerance)
    n = len(values)
    # Q does not depend on phi: the logarithm of its product of positive eigenvalues is a constant.
    if form == "icar":
        kept = values[values > 0]
        return LogDet(np.array([np.log(kept).sum()]), lo, hi, 0.0, 0.0, 2.0, len(kept), form)
    w = 1 - values if form == "car" else values
    widest = 2.0 if form == "car" else float(max(2.0, w.max(initial=0)))
    # The range of phi in t, with a least width, so that one phi alone has an interval too.
    ends = np.log1p(widest * np.array([lo, hi]) / (1 - np.array([lo, hi])))
    middle, half = ends.mean(), max(float(ends[1] - ends[0]) / 2, 1e-3)
    slope = (1 - hi) ** 2 * (1 + widest * hi / (1 - hi)) / widest  # the least dphi / dt on the range is at one of its ends
    slope = min(slope, (1 - lo) ** 2 * (1 + widest * lo / (1 - lo)) / widest)

    def bounds(degree: int) -> tuple[float, float]:
        # The bound holds for each ellipse; the best of some is taken.
        y = np.linspace(0.02, 0.98, 97) * np.pi
        b = y / half
        a = np.sqrt(1 + b * b)
        rho = a + b
        largest = 2 * n * np.hypot(np.maximum(abs(middle - half * a), abs(middle + half * a)) - np.log(np.cos(y / 2)), y)
        value = 4 * largest * rho**-degree / (rho - 1)
        k = degree + 1  # sum over j >= k of 4 M j^2 / rho^j, 2 M for the tail and 2 M for what is folded back from it
        tail = rho ** -float(k) * (
            k * k / (1 - 1 / rho) + 2 * k / rho / (1 - 1 / rho) ** 2 + (1 + 1 / rho) / rho / (1 - 1 / rho) ** 3
        )
        return float(value.min()), float((4 * largest * tail).min()) / half / slope

    # The lowest degree whose bound is within the tolerance.
    degree = 1
    while (bounds(degree)[0] > tolerance * n) and degree < 2000:
        degree += 1

    def function(x: Any) -> Any:
        t = middle + half * x[:, None]
        u = w / widest
        return (np.log1p(u * np.expm1(t)) - np.log1p(np.expm1(t) / widest)).sum(axis=1)

    coefficients = np.polynomial.chebyshev.chebinterpolate(function, degree) if n else np.zeros(1)
    # The constant part, which the series of the eigenvalues lacks.
    if form == "car":
        coefficients[0] += np.log(diagonal(indptr)).sum()
    return LogDet(coefficients, lo, hi, *bounds(degree), widest, n, form)
