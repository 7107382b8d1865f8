"""Computes Gaussian processes at fixed locations: covariances, low-rank factors and draws (docs/spec/sigma.md, section 3)."""

from __future__ import annotations

import operator

from fedkern.errors import NumericalError

from ...arrays import Floats
from .._checks import AT_LEAST_0, NOT_NEGATIVE, Domain, choice_of
from .._docs import documented
from .._record import F64, WITHOUT_NUMBA, Array, Kernel, Out, Scalar
from .graph import NAMES, WORDS, check_normals

__all__ = ["gp_covariance", "gp_factor", "gp_sample"]

GP_KINDS = {"rbf": 0, "matern12": 1, "matern32": 2, "matern52": 3}

_X = Array("x", ("n", "p"), F64)
_LENGTHSCALE = Array("lengthscale", ("m",), F64)

_KIND = Scalar("kind", choice_of(GP_KINDS), "rbf")

_WORDS = WORDS | {
    "x": "Locations.",
    "lengthscale": "A number that is not in (0, 1e150] gives NaN; below 1e-150 it counts as 1e-150.",
    "kind": "exp(-s^2 / 2); exp(-s); (1 + a) exp(-a), a = sqrt(3) s; (1 + a + a^2 / 3) exp(-a), a = sqrt(5) s.",
    "jitter": "Added to the variances.",
    "rank": "Columns of a factor, >= 0.",
    "tolerance": "Once the mean remaining variance is below it, the other columns are zero.",
    "covariance": "One for each lengthscale.",
    "factors": "One for each lengthscale.",
    "residual": "Trace of the missing part, K - F F', which is positive semidefinite; at most n tolerance where the rank was "
    "enough.",
    "theta": "The draws.",
}
GP_COVARIANCE = Kernel(
    "spatial.gp_covariance",
    __name__,
    purpose="Covariance matrices of Gaussian processes of variance 1, for many lengthscales.",
    source="docs/spec/sigma.md, section 3; Rasmussen and Williams (2006), chapter 4",
    inputs=(_X, _LENGTHSCALE),
    outputs=(Array("covariance", ("m", "n", "n"), F64),),
    scalars=(_KIND, Scalar("jitter", NOT_NEGATIVE, 0.0)),
    backends=WITHOUT_NUMBA,
    words=_WORDS,
    example="""
        >>> x, lengthscale = np.array([[0.0], [1.0]]), np.array([0.5, 2.0])
        >>> spatial.gp_covariance(x, lengthscale).round(3)
        array([[[1.   , 0.135],
                [0.135, 1.   ]],
        <BLANKLINE>
               [[1.   , 0.882],
                [0.882, 1.   ]]])
    """,
)
GP_FACTOR = Kernel(
    "spatial.gp_factor",
    __name__,
    purpose="Low-rank factors of the covariances of Gaussian processes by pivoted Cholesky.",
    source="docs/spec/sigma.md, section 3; Harbrecht, Peters and Schneider (2012). Among pivots within 1e-6 of the largest "
    "the first is taken, so that rounding does not decide between locations that are mirror images",
    inputs=(_X, _LENGTHSCALE),
    outputs=(Array("factors", ("m", "n", "rank"), F64), Array("residual", ("m",), F64)),
    scalars=(_KIND, Scalar("tolerance", Domain("must be in [1e-10, 1)", "1e-10 <= x < 1", "float(x)"), 1e-6)),
    backends=WITHOUT_NUMBA,
    words=_WORDS,
    example="""
        >>> x, lengthscale = np.array([[0.0], [1.0], [2.0]]), np.array([3.0])
        >>> factors, residual = spatial.gp_factor(x, lengthscale, rank=2)
        >>> factors.shape, residual.round(3)
        ((1, 3, 2), array([0.006]))
    """,
)
GP_SAMPLE = Kernel(
    "spatial.gp_sample",
    __name__,
    purpose="Draws of Gaussian processes through whole Cholesky factors, each with a lengthscale of its own.",
    source="docs/spec/sigma.md, section 3",
    inputs=(_X, _LENGTHSCALE),
    outputs=(Array("theta", ("m", "n"), F64),),
    scalars=(_KIND, Scalar("jitter", NOT_NEGATIVE, 1e-6), *NAMES),
    streams=("prior_draws",),
    blas=True,
    backends=WITHOUT_NUMBA,
    words=_WORDS,
    example="""
        >>> x, lengthscale = np.array([[0.0], [1.0]]), np.array([0.5, 2.0])
        >>> spatial.gp_sample(x, lengthscale, seed=7).round(3)
        array([[ 0.674,  1.094],
               [-1.372, -1.444]])
    """,
)


@documented(GP_COVARIANCE)
def gp_covariance(
    x: Floats,
    lengthscale: Floats,
    *,
    kind: str = "rbf",
    jitter: float = 0.0,
    out: Floats | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> Floats:
    """Returns covariance matrices k(|x_i - x_j| / lengthscale) + jitter I."""
    covariance: Floats
    (covariance,) = GP_COVARIANCE.compute((x, lengthscale), out, n_threads, backend, kind=kind, jitter=jitter)
    return covariance


@documented(GP_FACTOR)
def gp_factor(
    x: Floats,
    lengthscale: Floats,
    *,
    rank: int,
    kind: str = "rbf",
    tolerance: float = 1e-6,
    out: Out = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[Floats, Floats]:
    """Returns factors F with F F' near the covariance: Cholesky with the largest remaining variance as the next pivot."""
    AT_LEAST_0.check(GP_FACTOR.name, "rank", rank)
    symbols = {"rank": operator.index(rank)}
    return GP_FACTOR.compute((x, lengthscale), out, n_threads, backend, symbols, kind=kind, tolerance=tolerance)


@documented(GP_SAMPLE)
def gp_sample(
    x: Floats,
    lengthscale: Floats,
    *,
    kind: str = "rbf",
    jitter: float = 1e-6,
    seed: int,
    chain: int = 0,
    client: int = 0,
    step: int = 0,
    out: Floats | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> Floats:
    """Returns draws L e with L L' = `gp_covariance`, one for each lengthscale.

    Raises
    ------
    NumericalError
        A covariance has no Cholesky factor: its lengthscale is named.
    """
    name = GP_SAMPLE.name
    numbers = GP_SAMPLE.numbers(kind=kind, jitter=jitter, seed=seed, chain=chain, client=client, step=step)
    arrays = GP_SAMPLE.prepare({"x": x, "lengthscale": lengthscale}, out)
    x, lengthscale = arrays[:2]
    check_normals(name, len(x) * len(lengthscale))
    failed = GP_SAMPLE.call(backend, arrays, numbers, n_threads)
    # The kernel returns the first draw whose covariance has no factor, else -1.
    if failed >= 0:
        raise NumericalError(
            f"{name}: the covariance of draw {failed} (lengthscale {lengthscale[failed]}) is not positive definite; "
            f"take a larger jitter than {jitter}"
        )
    theta: Floats = arrays[-1]
    return theta
