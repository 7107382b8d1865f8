"""Computes conditional autoregressive priors: densities, factors and draws for many phi at once (sigma.md, sections 3 and 9)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedkern.errors import NumericalError

from ...arrays import Floats, Indices
from .._checks import SWITCH, Domain, choice_of, require
from .._docs import documented
from .._record import COMPILED, F64, WITHOUT_NUMBA, Array, Kernel, Out, Scalar
from .graph import (
    FORMS,
    HIGH,
    INT64,
    LOW,
    NAMES,
    WIDEST,
    WORDS,
    check_graph,
    check_normals,
    check_triangle,
    columns_of,
    minimum_degree,
)

__all__ = [
    "Bordered",
    "bordered_analyse",
    "bordered_factor",
    "bordered_inverse",
    "bordered_solve",
    "car_factor",
    "car_logdensity",
    "car_sample",
]

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
    found = np.searchsorted(held, wanted)
    fine = not wanted.size or (found.max() < held.size and bool((held[found] == wanted).all()))
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


# --------------------
# Factorises precisions that are sparse but for a last block: a client's areas, its border last (sigma.md, section 13).

_BOUNDARIES = Array("indptr", ("c",), INT64)
_ROWS = Array("indices", ("f",), INT64)
_FACTOR = Array("factor", ("f",), F64)
_BLOCK = Array("block", ("b", "b"), F64)
_BORDERED_WORDS = {
    "indptr": "`bordered_analyse` of the graph: where the c - 1 sparse columns begin.",
    "indices": "`bordered_analyse` of the graph: rows of the entries. That it has a place for all that elimination fills is not "
    "checked.",
    "factor": "Entries of L in the pattern, from `bordered_factor`.",
}
_HOST = "some 100 us on a CPU, and each column waits for others"
BORDERED_FACTOR = Kernel(
    "spatial.bordered_factor",
    __name__,
    purpose="The sparse columns of the Cholesky factor of a precision whose last block is dense, and the rest of that block.",
    source="docs/spec/sigma.md, section 13; columns from the left, as George and Liu (1981)",
    inputs=(Array("values", ("f",), F64), _BOUNDARIES, _ROWS, _BLOCK),
    outputs=(_FACTOR, Array("rest", ("b", "b"), F64)),
    host=_HOST,
    backends=COMPILED,
    words=_BORDERED_WORDS
    | {
        "values": "Entries of the precision in the pattern; 0 where there are none.",
        "block": "The precision's dense block, of which the lower triangle is read.",
        "factor": "Entries of L in the pattern.",
        "rest": "The block less the part that the sparse columns take from it: its Cholesky factor completes L.",
    },
    example="""
        >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # areas 0, 1, 2 in a row; the border is area 1
        >>> pattern = spatial.bordered_analyse(indptr, indices, border=np.array([1]))
        >>> values, block = np.array([4.0, -1.0, 4.0, -1.0]), np.array([[2.0]])  # of the precision: areas 0 and 2; area 1
        >>> factor, rest = spatial.bordered_factor(values, pattern.indptr, pattern.indices, block)
        >>> factor.round(3), rest.round(3)
        (array([ 2. , -0.5,  2. , -0.5]), array([[1.5]]))
    """,
)
BORDERED_INVERSE = Kernel(
    "spatial.bordered_inverse",
    __name__,
    purpose="The entries of the inverse of a factored precision in the pattern of its factor, the diagonal among them.",
    source="docs/spec/sigma.md, section 13; Takahashi, Fagan and Chin (1973)",
    inputs=(_FACTOR, _BOUNDARIES, _ROWS, _BLOCK),
    outputs=(Array("inverse", ("f",), F64),),
    host=_HOST,
    backends=COMPILED,
    words=_BORDERED_WORDS
    | {
        "block": "The inverse of the rest from `bordered_factor`: the dense block of the inverse.",
        "inverse": "Entries of the inverse.",
    },
    example="""
        >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # areas 0, 1, 2 in a row; the border is area 1
        >>> pattern = spatial.bordered_analyse(indptr, indices, border=np.array([1]))
        >>> values, block = np.array([4.0, -1.0, 4.0, -1.0]), np.array([[2.0]])  # of the precision: areas 0 and 2; area 1
        >>> factor, rest = spatial.bordered_factor(values, pattern.indptr, pattern.indices, block)
        >>> spatial.bordered_inverse(factor, pattern.indptr, pattern.indices, 1 / rest).round(3)
        array([0.292, 0.167, 0.292, 0.167])
    """,
)
BORDERED_SOLVE = Kernel(
    "spatial.bordered_solve",
    __name__,
    purpose="Half of a solution with the sparse columns of a Cholesky factor.",
    source="docs/spec/sigma.md, section 13",
    inputs=(Array("right", ("m", "n"), F64), _FACTOR, _BOUNDARIES, _ROWS),
    outputs=(Array("solved", ("m", "n"), F64),),
    scalars=(Scalar("back", SWITCH, False),),
    host=_HOST,
    backends=COMPILED,
    words=_BORDERED_WORDS
    | {
        "right": "Right sides, one a row, in the order of elimination. With `back` their last part is the solution's already.",
        "back": "Whether with L' instead of L.",
        "solved": "Solutions; without `back` the last part remains for the factor of the dense block.",
    },
    example="""
        >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # areas 0, 1, 2 in a row; the border is area 1
        >>> pattern = spatial.bordered_analyse(indptr, indices, border=np.array([1]))
        >>> values, block = np.array([4.0, -1.0, 4.0, -1.0]), np.array([[2.0]])  # of the precision: areas 0 and 2; area 1
        >>> factor, rest = spatial.bordered_factor(values, pattern.indptr, pattern.indices, block)
        >>> spatial.bordered_solve(np.array([[1.0, 0.0, 0.0]]), factor, pattern.indptr, pattern.indices).round(3)
        array([[0.5 , 0.  , 0.25]])
    """,
)


@dataclass(frozen=True)
class Bordered:
    """Holds the pattern of the Cholesky factors of all precisions of a graph whose last areas are dense among each other.

    Attributes
    ----------
    order : (n,) int64 array
        Which area is eliminated when; the dense ones last, in their order.
    indptr, indices : int64 arrays
        Columns of L left of the dense block: in each the diagonal first, then rising rows.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # three areas in a row
    >>> pattern = spatial.bordered_analyse(indptr, indices, border=np.array([1]))
    >>> isinstance(pattern, spatial.Bordered), pattern.indptr, pattern.indices
    (True, array([0, 2, 4]), array([0, 2, 1, 2]))
    """

    order: Indices
    indptr: Indices
    indices: Indices


def bordered_analyse(indptr: Indices, indices: Indices, border: Indices) -> Bordered:
    """Returns an order of elimination that keeps the factor sparse, with the dense areas last, and the factor's pattern.

    Parameters
    ----------
    indptr, indices : int64 arrays
        The graph: see the module `spatial`. Edges between areas of the border do not matter.
    border : (b,) int64 array
        The areas that are dense among each other, rising.

    Returns
    -------
    Bordered

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import spatial
    >>> indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])  # three areas in a row
    >>> spatial.bordered_analyse(indptr, indices, border=np.array([1])).order  # the border is eliminated last
    array([0, 2, 1])
    """
    n = len(indptr) - 1
    # The border is dense whatever comes before it: only the other areas need an order.
    inner = np.setdiff1d(np.arange(n), border)
    place = np.full(n, -1)
    place[inner] = np.arange(len(inner))
    rows = np.repeat(np.arange(n), np.diff(indptr))
    # The graph of the other areas alone, in their numbers.
    kept = (place[rows] >= 0) & (place[indices] >= 0)
    starts = np.searchsorted(place[rows[kept]], np.arange(len(inner) + 1))
    order = np.concatenate([inner[minimum_degree(starts.astype(np.int64), place[indices[kept]])], border]).astype(np.int64)
    # The whole order, with the border last, gives the rows of each sparse column.
    columns = columns_of(order, indptr, indices)[: len(inner)]
    ends = np.cumsum([0, *map(len, columns)], dtype=np.int64)
    return Bordered(order, ends, np.concatenate([[], *columns]).astype(np.int64))


@documented(BORDERED_FACTOR)
def bordered_factor(
    values: Floats,
    indptr: Indices,
    indices: Indices,
    block: Floats,
    *,
    out: Out = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> tuple[Floats, Floats]:
    """Returns the sparse columns of a Cholesky factor, and the Schur complement of the dense block.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, no pattern, a wrong `out`.
    NumericalError
        A pivot is not greater than zero: its place in the order of elimination is named.
    """
    given = {"values": values, "indptr": indptr, "indices": indices, "block": block}
    arrays = BORDERED_FACTOR.prepare(given, out)
    failed = BORDERED_FACTOR.call(backend, arrays, BORDERED_FACTOR.numbers(), n_threads)
    # The kernel stops at the first bad pivot and returns its place, else -1.
    if failed >= 0:
        raise NumericalError(
            f"{BORDERED_FACTOR.name}: pivot {failed} is not greater than zero: the matrix is not positive definite"
        )
    return arrays[4], arrays[5]


@documented(BORDERED_INVERSE)
def bordered_inverse(
    factor: Floats,
    indptr: Indices,
    indices: Indices,
    block: Floats,
    *,
    out: Floats | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> Floats:
    """Returns the entries of the inverse in the pattern, without computing the others."""
    inverse: Floats
    (inverse,) = BORDERED_INVERSE.compute((factor, indptr, indices, block), out, n_threads, backend)
    return inverse


@documented(BORDERED_SOLVE)
def bordered_solve(
    right: Floats,
    factor: Floats,
    indptr: Indices,
    indices: Indices,
    *,
    back: bool = False,
    out: Floats | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> Floats:
    """Returns solutions of L x = right before the dense block's own factor, or of L' x = right after it."""
    solved: Floats
    (solved,) = BORDERED_SOLVE.compute((right, factor, indptr, indices), out, n_threads, backend, back=back)
    return solved
