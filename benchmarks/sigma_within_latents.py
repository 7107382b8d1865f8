"""How many latents the errors of a large map take, and whether another measure of what is missing takes fewer; phi known.

    python -m benchmarks.sigma_within_latents [PHI ..]

100 x 200 areas of 40 clients, y = theta + N(0, sd 0.5); errors as in sigma_within.py. The factors are the leading ones of
P (C + H) P', P block by block of the clients: "plain" is P = I, as `models.spatial.factors` has it. The others count what is
missing as posterior means feel it, e = U theta_b seen with noise N by the client's own rows: "rows" P'P = (I + N)^-1, "means"
the squared error of theta that an error of the prior mean of e makes, "both" the geometric mean of the two, "theta" e in units of
theta. Subspace iteration from a random start, so that errors are those of eigenvectors to 0.0005.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import numpy as np
from scipy.linalg import eigh

from benchmarks.sigma_within import VARIANCE, squares
from fedkern.arrays import Array
from fedkern.models.spatial.factors import Division, Judge, Part, inside, owed

SWEEPS, MORE = 10, 20
FEW, MANY = 300, (500, 700, 900, 1200)


def main() -> None:
    """All errors at the values of phi that are named."""
    prior, sizes = squares()
    division, rng = Division(prior, sizes, [str(j) for j in range(len(sizes))]), np.random.default_rng(1)
    for phi in map(float, sys.argv[1:] or ("0.6", "0.95", "0.98")):
        judge = Judge(division, phi, VARIANCE)
        C, H = judge.at.C, owed(judge.at.C, division.parts)
        print(f"phi {phi:g}: {0:4d} latents {judge.error(np.zeros((len(C), 0))):.4f}", flush=True)
        measures = measured(judge)
        runs = [(name, FEW) for name in measures] + [(name, r) for r in MANY for name in ("plain", "both")]
        for name, r in runs:
            begin = time.process_time()
            error = judge.error(weighted(C, H, division.parts, r, measures[name], rng))
            took = time.process_time() - begin
            print(f"phi {phi:g}: {r:4d} latents {error:.4f}   {name}   ({took:.0f} s)", flush=True)


def measured(judge: Judge) -> dict[str, list[Array]]:
    """P of each client, by name."""
    found: dict[str, list[Array]] = {name: [] for name in ("plain", "rows", "means", "both", "theta")}
    for (own, _, _, back), U in zip(judge._of, judge.at.U):
        identity, back_to_theta = np.eye(len(U)), np.linalg.inv(U)
        told = back_to_theta.T @ own @ back_to_theta  # N^-1
        rows = np.asarray(np.linalg.inv(identity + np.linalg.inv(told)), dtype=np.float64)
        left = np.linalg.inv(identity + told)
        means = np.asarray(left @ back_to_theta.T @ (identity + back) @ back_to_theta @ left, dtype=np.float64)
        half = root(rows)
        inverse = np.linalg.inv(half)
        found["plain"].append(identity)
        found["rows"].append(half)
        found["means"].append(root(means))
        found["both"].append(root(half @ root(inverse @ means @ inverse) @ half))
        found["theta"].append(root(np.asarray(back_to_theta.T @ back_to_theta, dtype=np.float64)))
    return found


def root(M: Array) -> Array:
    """The symmetric root."""
    lengths, directions = np.linalg.eigh((M + M.T) / 2)
    return np.asarray((directions * np.sqrt(np.maximum(lengths, 1e-12))) @ directions.T)


def weighted(C: Array, H: Array, parts: Sequence[Part], r: int, P: Sequence[Array], rng: np.random.Generator) -> Array:
    """W (n, r), as `factors.leading` but in the measure P."""
    n = len(C)
    W, M = np.zeros((n, r)), C.copy()
    V = rng.normal(size=(n, min(r + MORE, n)))
    for part, own in zip(parts, P):
        M[part.place] = own @ M[part.place]
    for part, own in zip(parts, P):
        M[:, part.place] = M[:, part.place] @ own.T
    for sweep in range(SWEEPS):
        for part, own in zip(parts, P):
            at = part.place
            M[at, at] = own @ (W[at] @ W[at].T if sweep else H[at, at]) @ own.T
        for _ in range(2 if sweep else 8):
            V = np.linalg.qr(M @ V)[0]
        lengths, turned = eigh(V.T @ (M @ V))
        W = ((V @ turned)[:, -r:] * np.sqrt(np.maximum(lengths[-r:], 0)))[:, ::-1]
        for part, own in zip(parts, P):
            W[part.place] = np.linalg.solve(own, W[part.place])
        W = inside(W, parts)
    return W


if __name__ == "__main__":
    main()
