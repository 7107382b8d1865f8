"""Runs the kernels of the sparse models on a device."""

from __future__ import annotations

import numpy as np

from .device import MATRIX, VECTOR, Array, Launched, blocks, current, matrix, pointer, strides, structure, vector

# --------------------
# Makes local sweeps and draws: a block a regression, its system in shared memory or, where that is too small, in global
# memory.

OWN_SHARED = 1024  # bytes of a block's shared memory that are not the system's
WORKSPACE = 1 << 30  # bytes for systems that do not fit into shared memory: so many regressions at a time
AGAIN = 16  # blocks that look for regressions whose pivot has failed

ROWS = np.dtype([(f, "i8") for f in ("data", "chains", "regressions", "cols", "chain", "regression", "col")], align=True)
_STATE = np.dtype([(f, ROWS) for f in ("deviation", "lambda_sq", "sigma_sq")], align=True)
_DESIGN = np.dtype([("R", MATRIX), ("gram", MATRIX)], align=True)
_HALF_CAUCHY = np.dtype([("scale", "f8"), ("expanded", "?")], align=True)
_MODEL = np.dtype([*((f, "f8") for f in ("n", "shape", "rate", "slab")), ("lambda_", _HALF_CAUCHY), ("form", "i4")], align=True)
_COUNTER = np.dtype([("seed", "u8"), ("chain", "u8"), ("client", "u4"), ("step", "u4"), ("n_sweeps", "i8")], align=True)
_SWEEPS = np.dtype(
    [
        ("design", _DESIGN), ("theta", ROWS), ("tau_sq", ROWS), ("from", _STATE), ("to", _STATE), ("events", ROWS), ("q", MATRIX),
        ("rss", VECTOR), ("model", _MODEL), ("counter", _COUNTER), ("inert", "i4"),
    ],
    align=True,
)  # fmt: skip
_POSTERIOR = np.dtype(
    [
        ("design", _DESIGN), ("q", MATRIX), ("mean", MATRIX), ("scale", MATRIX), ("sigma_sq", VECTOR), ("slab", "f8"),
        ("form", "i4"), ("counter", _COUNTER), ("deviation", MATRIX), ("marks", VECTOR),
    ],
    align=True,
)  # fmt: skip


def rows(array: Array, regressions: bool, cols: bool = True) -> Launched:
    """Returns Rows<T> of views.hpp: (c, g, p), (c, p), or of one number each (c, g), (c,)."""
    step, shape = strides(array), array.shape
    col = step[-1] if cols else 1
    chain = step[0]
    n_regressions = shape[1] if regressions else 1
    n_columns = shape[-1] if cols else 1
    stride = step[1] if regressions else 0
    return (pointer(array), shape[0], n_regressions, n_columns, chain, stride, col)


def _item(structure: np.void) -> object:
    return structure.item()


def _design(R: Array, gram: Array | None) -> tuple[Launched, Array]:
    if gram is None:
        p = R.shape[1]
        gram = current().xp.empty((p, p))
        current().launch("shrinkage", "gram_of", (blocks(p * p, 256),), 256, (matrix(R), gram))
    return (_item(matrix(R)), _item(matrix(gram))), gram


def _launch(kernel: str, call: np.void, tasks: int, r: int, p: int) -> None:
    """Starts all tasks, and those again whose pivot has failed."""
    device = current()
    xp = device.xp
    threads = next((n for n in (32, 128) if p <= n), 256)
    room = 8 * p + (p + 1) * (p + 2) // 2
    if 8 * room + OWN_SHARED <= device.shared_memory():
        device.launch("shrinkage", kernel, (tasks,), threads, (call, 0, None), 8 * room)
    else:
        most = max(1, WORKSPACE // (8 * room))
        workspace = xp.empty(min(most, tasks) * room)
        for first in range(0, tasks, most):
            device.launch("shrinkage", kernel, (min(most, tasks - first),), threads, (call, first, workspace))
    again = min(tasks, AGAIN)
    device.launch("shrinkage", f"{kernel}_again", (again,), threads, (call, xp.empty(again * (room + (r + p) * (p + 1)))))


def _swept(
    batched: bool, R: Array, gram: Array | None, theta: Array, tau_sq: Array, from_: Array, to: Array, events: Array,
    q: Array | None, rss: Array | None, model: Launched, counter: Launched,
) -> None:  # fmt: skip
    n_regressions = theta.shape[1] if batched else 1
    (r, p), tasks = R.shape, theta.shape[0] * n_regressions
    if not tasks:
        return
    design, gram = _design(R, gram)
    states = [tuple(rows(a, batched, k < 2) for k, a in enumerate(state)) for state in (from_, to)]
    response = ((0,) * 5, (0,) * 3) if q is None or rss is None else (_item(matrix(q)), _item(vector(rss)))
    given = (rows(theta, batched), rows(tau_sq, batched))
    call = structure(_SWEEPS, design, *given, *states, rows(events, batched), *response, model, counter, batched)
    _launch("sweeps", call, tasks, r, p)


def local_sweeps(
    R: Array, theta: Array, tau_sq: Array, deviation: Array, lambda_sq: Array, sigma_sq: Array, q: Array, rss: Array, gram: Array,
    n: float, seed: int, chain: int, client: int, step: int, n_sweeps: int, expanded: bool, form: int, scale_lambda: float,
    shape: float, rate: float, slab: float, new_deviation: Array, new_lambda_sq: Array, new_sigma_sq: Array, events: Array,
    n_threads: int,
) -> None:  # fmt: skip
    model, counter = (n, shape, rate, slab, (scale_lambda, expanded), form), (seed, chain, client, step, n_sweeps)
    states = (deviation, lambda_sq, sigma_sq), (new_deviation, new_lambda_sq, new_sigma_sq)
    _swept(False, R, gram, theta, tau_sq, *states, events, q, rss, model, counter)


def local_sweeps_batched(
    R: Array, theta: Array, tau_sq: Array, deviation: Array, lambda_sq: Array, sigma_sq: Array, gram: Array, n: float, seed: int,
    chain: int, client: int, step: int, n_sweeps: int, expanded: bool, form: int, scale_lambda: float, shape: float, rate: float,
    slab: float, new_deviation: Array, new_lambda_sq: Array, new_sigma_sq: Array, events: Array, n_threads: int,
) -> None:  # fmt: skip
    model, counter = (n, shape, rate, slab, (scale_lambda, expanded), form), (seed, chain, client, step, n_sweeps)
    states = (deviation, lambda_sq, sigma_sq), (new_deviation, new_lambda_sq, new_sigma_sq)
    _swept(True, R, gram, theta, tau_sq, *states, events, None, None, model, counter)


def gaussian_posterior_draw(
    R: Array, mean: Array, scale: Array, sigma_sq: Array, q: Array, gram: Array, seed: int, chain: int, client: int, step: int,
    form: int, slab: float, deviation: Array, n_threads: int,
) -> None:  # fmt: skip
    (r, p), chains = R.shape, len(mean)
    if not chains or not p:
        return
    design, gram = _design(R, gram)
    marks = current().xp.empty(chains, np.int64)
    given = (*(_item(matrix(a)) for a in (q, mean, scale)), _item(vector(sigma_sq)))
    counter = (seed, chain, client, step, 1)
    call = structure(_POSTERIOR, design, *given, slab, form, counter, _item(matrix(deviation)), _item(vector(marks)))
    _launch("posterior_draws", call, chains, r, p)


# Computes the sums that a client sends to the server of a sparse model --------------------

_SUMS = np.dtype([(f"s{k}", ROWS) for k in range(4)], align=True)


def local_sums(deviation: Array, lambda_sq: Array, slab: float, sums: Array, n_threads: int) -> None:
    if not deviation.size:
        return
    out = [rows(sums[k], True) for k in range(len(sums))]
    call = structure(_SUMS, *out, *(out[:1] * (4 - len(out))))
    inputs = (structure(ROWS, *rows(deviation, True)), structure(ROWS, *rows(lambda_sq, True)))
    current().launch("shrinkage", "local_terms", (blocks(deviation.size, 256),), 256, (*inputs, np.int32(len(sums)), call))
