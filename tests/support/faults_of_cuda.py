"""Faults that are planted into the kernels' text, each with the check that has to notice it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple


class Fault(NamedTuple):
    """One change of a file of csrc/cuda."""

    file: str
    old: str
    new: str
    kernel: str
    by: str  # "conformance", "refused" (by the emulator), "thread" or "address" (a sanitizer)
    said: str  # a part of what is then said
    order: int = 0


FAULTS = {
    "a barrier is missing before a block's sums are read": Fault(
        "grid.hpp",
        "c * 32 + lane()] = x[c];\n    __syncthreads();",
        "c * 32 + lane()] = x[c];",
        "privacy.clip_sum",
        "thread",
        "data race",
    ),
    "a barrier is missing before partial sums are read": Fault(
        "grid.hpp",
        "sums[threadIdx.x] = sum;\n    __syncthreads();",
        "sums[threadIdx.x] = sum;",
        "privacy.clip_sum",
        "thread",
        "data race",
    ),
    "a missing barrier gives other numbers in another order": Fault(
        "grid.hpp",
        "sums[threadIdx.x] = sum;\n    __syncthreads();",
        "sums[threadIdx.x] = sum;",
        "privacy.clip_sum",
        "conformance",
        "AssertionError",
        0,
    ),
    "a barrier that only some threads reach": Fault(
        "grid.hpp",
        "sums[threadIdx.x] = sum;\n    __syncthreads();",
        "sums[threadIdx.x] = sum;\n    if (j < size) __syncthreads();",
        "privacy.clip_sum",
        "refused",
        "threads have ended before the barrier at grid.hpp",
    ),
    "a lane that left before a shuffle": Fault(
        "privacy.cu",
        "        double squares = 0;\n        for (Index j = lane()",
        "        if (lane() >= x.cols % 32) return;\n        double squares = 0;\n        for (Index j = lane()",
        "privacy.clip_sum",
        "refused",
        "of a mask has ended",
    ),
    "shared memory that was not written": Fault(
        "grid.hpp",
        "sums[threadIdx.x] = sum;",
        "if (warp() > 0) sums[threadIdx.x] = sum;\n    if (warp() == 0) sum = sums[threadIdx.x];",
        "privacy.clip_sum",
        "conformance",
        "AssertionError",
    ),
    "a wrong lane": Fault("privacy.cu", "w, r * (32 / R));", "w, r);", "privacy.clip_sum", "conformance", "AssertionError"),
    "a share of the groups ends too early": Fault(
        "mixed.cu",
        "last = groups * (piece + 1) / pieces;",
        "last = groups * (piece + 1) / pieces - (piece > 0);",
        "mixed.values",
        "conformance",
        "AssertionError",
    ),
    "a forgotten tail of rows": Fault(
        "privacy.cu", "left = rows_left<R>(first, end);", "left = R;", "privacy.clip_sum", "address", "heap-buffer-overflow"
    ),
    "a forgotten tail of pairs": Fault(
        "rng.cu",
        "const bool both = 2 * i + 1 < out.size;",
        "const bool both = true;",
        "rng.normal",
        "address",
        "heap-buffer-overflow",
    ),
    "a write beyond the columns": Fault(
        "grid.hpp", "if (warp() == 0 && j < size) {", "if (warp() == 0) {", "privacy.clip_sum", "address", "heap-buffer-overflow"
    ),
    "two blocks write one number": Fault(
        "privacy.cu",
        "partial + blockIdx.x * x.cols, x.cols);",
        "partial + blockIdx.x / 2 * x.cols, x.cols);",
        "privacy.clip_sum",
        "conformance",
        "AssertionError",
    ),
    "a wrong counter": Fault(
        "rng.cu",
        "philox_bits(at_item(counter, i), key)",
        "philox_bits(at_item(counter, 2 * i), key)",
        "rng.uniform",
        "conformance",
        "AssertionError",
    ),
    "an argument that the launch does not have": Fault(
        "optim.cu",
        "AdagradRule rule, Vector<double> new_sum",
        "AdagradRule rule, int, Vector<double> new_sum",
        "optim.adagrad",
        "refused",
        "takes 6 arguments, got 5",
    ),
    "a row's nodes are summed over half of its lanes": Fault(
        "glm.cu",
        "int bit = step / 2; bit > 0;",
        "int bit = step / 2; bit > 1;",
        "glm.expectations",
        "conformance",
        "AssertionError",
    ),
    "rows beyond the last one count": Fault(
        "glm.cu",
        "if (counts && speaks<R>()) value[s] +=",
        "if (speaks<R>()) value[s] +=",
        "glm.loglik_grad",
        "conformance",
        "AssertionError",
    ),
    "another row's response": Fault(
        "glm.cu",
        "const Index at = place(data, i);",
        "const Index at = i;",
        "glm.clipped_grad_sum",
        "conformance",
        "AssertionError",
    ),
    "a barrier is missing in a back substitution": Fault(
        "glm.cu",
        "        __syncthreads();\n        const double xi",
        "        const double xi",
        "glm.elbo_grad_full",
        "thread",
        "data race",
    ),
    "a barrier is missing in a regression's back substitution": Fault(
        "shrinkage.cu",
        "x[i] -= A(j, i) * u;\n        __syncthreads();",
        "x[i] -= A(j, i) * u;",
        "shrinkage.local_sweeps",
        "thread",
        "data race",
    ),
    "a regression counts its own column": Fault(
        "shrinkage.cu",
        "j == inert ? 0 : prior_deviation(",
        "prior_deviation(",
        "shrinkage.local_sweeps_batched",
        "conformance",
        "AssertionError",
    ),
    "all scales of a regression have one item": Fault(
        "shrinkage.cu", "item.item += U32(j);", "", "shrinkage.local_sweeps", "conformance", "AssertionError"
    ),
    "a row of an inverse is changed before it has changed places": Fault(
        "sem.cu",
        "W[best * p + i] = W[k * p + i]; });\n        __syncwarp();",
        "W[best * p + i] = W[k * p + i]; });",
        "sem.log_density",
        "thread",
        "data race",
    ),
    "a chain's moves are counted twice in its residuals": Fault(
        "sem.cu", "own[i] -= move * y[i]; });", "own[i] -= 2 * move * y[i]; });", "sem.sweeps", "conformance", "AssertionError"
    ),
    "a move forgets the determinant": Fault(
        "sem.cu", "log_det += log_ratio, inverse /= ratio;", "inverse /= ratio;", "sem.sweeps", "conformance", "AssertionError"
    ),
    "a pivot is overwritten before all threads have read it": Fault(
        "spatial.cu",
        "            __syncthreads();\n            for (Index i = thread; i < n; i += threads) {\n                double value",
        "            for (Index i = thread; i < n; i += threads) {\n                double value",
        "spatial.gp_factor",
        "thread",
        "data race",
    ),
    "each row draws an entry of its own": Fault(
        "table.hpp", "row / group", "row", "spatial.table_sample", "conformance", "AssertionError"
    ),
    "a barrier is missing before a bias's sums are read": Fault(
        "mlp.cu",
        "room[threadIdx.x] = sum;\n        __syncthreads();",
        "room[threadIdx.x] = sum;",
        "mlp.backward",
        "thread",
        "data race",
    ),
    "a warp's sum of too few lanes": Fault(
        "mlp.cu",
        "sum = warp_sum(sum);\n        if (lane() == 0) squares[r] += sum;",
        "if (lane() == 0) squares[r] += sum;",
        "mlp.vae_gradient",
        "conformance",
        "AssertionError",
    ),
    "the slope of another layer's values": Fault(
        "mlp.cu",
        "with_slope<f>(d, values[r * from.cols + j])",
        "with_slope<f>(d, values[j])",
        "mlp.backward",
        "conformance",
        "AssertionError",
    ),
    "a chunk that takes a row of the next": Fault(
        "mlp.cu",
        "begin + chunk < from.rows ? begin + chunk : from.rows;",
        "begin + chunk < from.rows ? begin + chunk + 1 : from.rows;",
        "mlp.backward",
        "conformance",
        "AssertionError",
    ),
    "a number that the warp's other lanes do not wait for": Fault(
        "table.hpp", "        __syncwarp();\n", "", "mlp.vae_step", "thread", "data race"
    ),
    "steps behind one that is not finite": Fault(
        "mlp.cu",
        "if (going->alive == 0) return;",
        "if (going->alive < 0) return;",
        "mlp.vae_step",
        "conformance",
        "AssertionError",
    ),
    "too much shared memory": Fault(
        "privacy.cu",
        "FEDKERN_SHARED(double, room, most_warps * 32 * C);",
        "FEDKERN_SHARED(double, room, most_warps * 512 * C);",
        "privacy.clip_sum",
        "refused",
        "48 KiB of static shared memory",
    ),
}


def planted(fault: Fault, sources: Path, folder: Path) -> Path:
    """A copy of the sources with the fault in it."""
    shutil.copytree(sources, folder)
    path = folder / fault.file
    text = path.read_text()
    assert text.count(fault.old) == 1, f"{fault.file}: {fault.old!r} stands there {text.count(fault.old)} times"
    path.write_text(text.replace(fault.old, fault.new))
    return folder
