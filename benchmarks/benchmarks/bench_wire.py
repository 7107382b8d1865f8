"""Messages: encoding, decoding, and one federated round over MPI beside bare Bcast + Gather of the same bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from fedkern.transports.codec import HEADER, Codec

from . import common

SCRIPT = Path(__file__).parents[1] / "mpi_scaling.py"
sys.path.insert(0, str(SCRIPT.parent))

SIZES = [1 << 10, 1 << 20]
RANKS = 4


class Frame(common.Brief):
    """One message of so many bytes, checked on arrival."""

    params = SIZES
    param_names = ("bytes",)

    def setup(self, n_bytes: int) -> None:
        from mpi_scaling import Echo

        x = np.random.default_rng(0).standard_normal((n_bytes - HEADER.size - 8) // 8)
        self.codec, self.message, self.kinds = Codec({"n": len(x)}, 1), Echo(1, x), (Echo,)
        self.frame = self.codec.encode(0, self.message)

    def time_encode(self, n_bytes: int) -> None:
        self.codec.encode(0, self.message)

    def time_decode(self, n_bytes: int) -> None:
        self.codec.decode(self.frame, self.kinds)

    def track_bytes(self, n_bytes: int) -> int:
        return len(self.frame)


class Round:
    """The server and three clients, each a rank. Skipped where no mpirun lies beside this Python."""

    params = SIZES
    param_names = ("bytes",)
    timeout = 120

    def setup_cache(self) -> dict[int, dict[str, float]]:
        mpirun = Path(sys.executable).with_name("mpirun")
        if not mpirun.exists():
            return {}
        command = [mpirun, "--oversubscribe", "-n", str(RANKS), sys.executable, SCRIPT, "--json"]
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | allowed)
        return {row["bytes"]: row for row in map(json.loads, done.stdout.splitlines())}

    def setup(self, rows: dict[int, dict[str, float]], n_bytes: int) -> None:
        if n_bytes not in rows:
            raise NotImplementedError

    def track_round(self, rows: dict[int, dict[str, float]], n_bytes: int) -> float:
        return rows[n_bytes]["round_us"]

    def track_bare(self, rows: dict[int, dict[str, float]], n_bytes: int) -> float:
        return rows[n_bytes]["bare_us"]

    def track_ratio(self, rows: dict[int, dict[str, float]], n_bytes: int) -> float:
        return rows[n_bytes]["ratio"]


Frame.track_bytes.unit = "bytes"  # type: ignore[attr-defined]
Round.track_round.unit = Round.track_bare.unit = "us"  # type: ignore[attr-defined]
Round.track_ratio.unit = "x bare"  # type: ignore[attr-defined]
