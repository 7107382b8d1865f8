"""Computes conditional autoregressive priors: densities, factors and draws for many phi at once (sigma.md, sections 3 and 9)."""

from __future__ import annotations

import numpy as np

from fedkern.errors import NumericalError

from .._checks import Domain, choice_of, require
from .._docs import documented
from .._record import COMPILED, F64, WITHOUT_NUMBA, Array, Kernel, Out, Scalar
from ._checks import HIGH, INT64, LOW, NAMES, WIDEST, WORDS, Floats, Indices, check_normals, check_triangle
from .graph import FORMS, check_graph

__all__ = ["car_factor", "car_logdensity", "car_sample"]

_PHI = Array("phi", ("m",), F64)
_INDPTR = Array("indptr", ("n+1",), INT64)
_INDICES = Array("indices", ("e",), INT64)

_FORM = Scalar("form", choice_of(FORMS), "car")
PROPER = Scalar("form", choice_of({f: code for f, code in FORMS.items() if f != "icar"}), "car")

_WORDS = WORDS | {
    "form": 'Q = D - phi W ("car"), (1 - phi) I + phi (D - W) ("leroux"), or D - W ("icar").',
    "phi": 'Not used by "icar".',
}
CAR_LOGDENSITY = Kernel(
    "spatial.car_logdensity",
    __name__,
    purpose="Log density of autoregressive priors, and its gradients in theta and phi.",
    source="docs/spec/sigma.md, sections 3 and 9",
    inputs=(Array("theta", ("m", "n"), F64), _PHI, _INDPTR, _INDICES, Array("logdet", ("k",), F64)),
    outputs=(Array("value", ("m",), F64), Array("grad_theta", ("m", "n"), F64), Array("grad_phi", ("m",), F64)),
    scalars=(
        _FORM,
        LOW,
        HIGH,
        WIDEST,
        Scalar(
            "rank", Domain("must be None or in [0, 2^31)", "x is None or 0 <= x < 2**31", "-1 if x is None else index(x)"), None
        ),
    ),
    host="20 to 40 us on a CPU: less than its launches would take",
    backends=COMPILED,
    words=_WORDS
    | {
        "theta": "Values of the areas, one set a row.",
        "phi": 'In [lo, hi]; beyond it all results of the row are NaN. Not used by "icar".',
        "indices": "The graph: see the module `spatial`. That it is symmetric is not checked here, but by `check_graph`.",
        "rank": "Of Q; None: n. With lo, hi and widest it is in `LogDet.options`.",
        "value": "Log densities.",
        "grad_theta": "Gradients in theta.",
        "grad_phi": 'Derivatives in phi; zero for "icar".',
    },
    example="""
        >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # three areas in a row
        >>> eigen = spatial.car_eigen(indptr, indices)
        >>> logdet = spatial.logdet_table(eigen.values, indptr)
        >>> theta, phi = np.array([[0.5, 0.2, -0.3]]), np.array([0.9])
        >>> value, grad_theta, grad_phi = spatial.car_logdensity(
        ...     theta, phi, indptr, indices, logdet.coefficients, **logdet.options
        ... )
        >>> value.round(3), grad_theta.round(3), grad_phi.round(3)
        (array([-3.415]), array([[-0.32, -0.22,  0.48]]), array([-4.697]))
    """,
)
CAR_FACTOR = Kernel(
    "spatial.car_factor",
    __name__,
    purpose="Sparse Cholesky factors of the precisions of a graph, for many phi.",
    source="docs/spec/sigma.md, section 3; columns from the left, as George and Liu (1981)",
    inputs=(
        _PHI,
        Array("order", ("n",), INT64),
        Array("factor_indptr", ("n+1",), INT64),
        Array("factor_indices", ("f",), INT64),
        _INDPTR,
        _INDICES,
    ),
    outputs=(Array("values", ("m", "f"), F64), Array("logdet", ("m",), F64)),
    scalars=(PROPER,),
    host="20 to 40 us on a CPU: less than its launches would take",
    backends=COMPILED,
    words=_WORDS
    | {
        "phi": "One for each factor.",
        "order": "`car_analyse` of the graph: order.",
        "factor_indptr": "`car_analyse` of the graph: indptr.",
        "factor_indices": "`car_analyse` of the graph: indices.",
        "form": 'Q = D - phi W ("car"), (1 - phi) I + phi (D - W) ("leroux"). An intrinsic model has no factor: see `car_eigen`.',
        "values": "The entries of L in the pattern's order.",
        "logdet": "log det Q.",
    },
    example="""
        >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # three areas in a row
        >>> pattern = spatial.car_analyse(indptr, indices)
        >>> parts = pattern.order, pattern.indptr, pattern.indices
        >>> values, logdet = spatial.car_factor(np.array([0.0, 0.9]), *parts, indptr, indices)
        >>> logdet.round(3)
        array([ 0.693, -0.968])
    """,
)
CAR_SAMPLE = Kernel(
    "spatial.car_sample",
    __name__,
    purpose="Draws of autoregressive priors through eigenvectors, each with a phi of its own.",
    source="docs/spec/sigma.md, sections 3 and 9",
    inputs=(Array("vectors", ("n", "n"), F64), Array("values", ("n",), F64), Array("weights", ("n",), F64), _PHI),
    outputs=(Array("theta", ("m", "n"), F64),),
    scalars=(_FORM, *NAMES),
    streams=("prior_draws",),
    blas=True,
    backends=WITHOUT_NUMBA,
    words=_WORDS
    | {
        "vectors": "`car_eigen(.., form=form)`.",
        "values": "`car_eigen(.., form=form)`.",
        "weights": "`car_weights`, or `icar_scale`.",
        "theta": "The draws. NaN where a phi leaves a precision below zero.",
    },
    example="""
        >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # three areas in a row
        >>> eigen, weights = spatial.car_eigen(indptr, indices), spatial.car_weights(indptr)
        >>> theta = spatial.car_sample(eigen.vectors, eigen.values, weights, np.array([0.1, 0.9]), seed=7)
        >>> theta.shape
        (2, 3)
    """,
)


@documented(CAR_LOGDENSITY)
def car_logdensity(
    theta: Floats,
    phi: Floats,
    indptr: Indices,
    indices: Indices,
    logdet: Floats,
    *,
    form: str = "car",
    lo: float = 0.0,
    hi: float = 0.99,
    widest: float = 2.0,
    rank: int | None = None,
    out: Out = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Returns log N(theta; 0, Q(phi)^-1) of every row, normalised, and its gradients.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, an index outside the graph, a number outside its range, a wrong `out`.
    """
    CAR_LOGDENSITY.check_kinds(lo=lo, hi=hi)
    require(CAR_LOGDENSITY.name, 0 <= lo <= hi < 1, "lo <= hi", "must be in [0, 1)", (lo, hi))
    inputs = (theta, phi, indptr, indices, logdet)
    return CAR_LOGDENSITY.compute(inputs, out, n_threads, backend, form=form, lo=lo, hi=hi, widest=widest, rank=rank)


@documented(CAR_FACTOR)
def car_factor(
    phi: Floats,
    order: Indices,
    factor_indptr: Indices,
    factor_indices: Indices,
    indptr: Indices,
    indices: Indices,
    *,
    form: str = "car",
    out: Out = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[Floats, Floats]:
    """Returns Cholesky factors L L' = Q(phi)[order][:, order], one for each phi.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, a graph that `check_graph` refuses, a pattern of another graph, a wrong `out`.
    NumericalError
        A pivot is not greater than zero: phi and area are named.
    """
    name = CAR_FACTOR.name
    numbers = CAR_FACTOR.numbers(form=form)
    pattern = {"order": order, "factor_indptr": factor_indptr, "factor_indices": factor_indices}
    arrays = CAR_FACTOR.prepare({"phi": phi, **pattern, "indptr": indptr, "indices": indices}, out)
    phi, order, factor_indptr, factor_indices, indptr, indices = arrays[:6]
    # Compiled code indexes by these numbers: a wrong one would read or write beyond an array.
    check_graph(indptr, indices, name=name)
    check_triangle(name, factor_indptr, factor_indices, order)
    _check_pattern(name, indptr, indices, order, factor_indptr, factor_indices)
    failed = CAR_FACTOR.call(backend, arrays, numbers, n_threads)
    # The kernel returns entry times n plus area of the first bad pivot, else -1.
    if failed >= 0:
        entry, area = divmod(int(failed), len(order))
        raise NumericalError(
            f"{name}: the pivot of area {area} is not greater than zero at phi = {phi[entry]} (entry {entry}): "
            f"phi must lie within (-1, 1) for 'car' and [0, 1) for 'leroux'"
        )
    return arrays[6], arrays[7]


def _check_pattern(name: str, indptr: Indices, indices: Indices, order: Indices, columns: Indices, rows: Indices) -> None:
    """Refuses a factor's pattern in which an edge of the graph has no place."""
    n = len(order)
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    fine = not len(indices) or (indices.min() >= 0 and indices.max() < n)
    require(name, fine, "indices", f"must be in [0, {n})", "others")
    # Each edge as (row, column) in the order of elimination; the lower one of each pair is compared.
    a, b = place[np.repeat(np.arange(n), np.diff(indptr))], place[indices]
    lower = a > b
    wanted = b[lower] * n + a[lower]
    # Places of the factor as rising numbers, among which each edge is searched.
    held = np.repeat(np.arange(n), np.diff(columns)) * n + rows
    at = np.searchsorted(held, wanted)
    fine = not wanted.size or (at.max() < held.size and bool((held[at] == wanted).all()))
    require(name, fine, "factor_indices", "must be the pattern of this graph's factor (car_analyse)", "another")


@documented(CAR_SAMPLE)
def car_sample(
    vectors: Floats,
    values: Floats,
    weights: Floats,
    phi: Floats,
    *,
    form: str = "car",
    seed: int,
    chain: int = 0,
    client: int = 0,
    step: int = 0,
    out: Floats | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> Floats:
    """Returns draws weights * U (e / sqrt(precisions)), one for each phi, without the null space of an intrinsic model.

    Costs n^2 operations a draw after the decomposition's n^3: for streams of draws a table of sparse factors (`DrawTable.car`) is
    faster at every size from 100 areas on, thirty times at 2,221.
    """
    numbers = CAR_SAMPLE.numbers(form=form, seed=seed, chain=chain, client=client, step=step)
    arrays = CAR_SAMPLE.prepare({"vectors": vectors, "values": values, "weights": weights, "phi": phi}, out)
    check_normals(CAR_SAMPLE.name, arrays[3].size * arrays[1].size)
    CAR_SAMPLE.call(backend, arrays, numbers, n_threads)
    theta: Floats = arrays[-1]
    return theta
