#!/usr/bin/env bash
# A good guess: a time that is written to Parquet in a coarser unit is cut to the unit it lies in, before 1970 as after it, as NumPy, pandas
# and polars cut.
# What happens: pyarrow's cast, and its option coerce_timestamps="ms", cut towards 1970: 1969-12-31 23:59:59.999999 becomes 1970-01-01
# 00:00:00.000, a later time on another day, and DuckDB's epoch_ms of it is 0, while its epoch is -1e-06. Differences across 1970 shrink.
# Versions: pyarrow 26.0.1, duckdb 2.0.1, polars 2.1.0, numpy 2.4.6.
# Whom it hurts: dates of birth, and events by day, in cohorts that began before 1970: the two sides of a join are a unit apart.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check pyarrow==26.0.1 duckdb==2.0.1 polars==2.1.0 numpy==2.4.6
cat > try.py <<'PY'
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

print("pyarrow", pa.__version__, "duckdb", duckdb.__version__, "polars", pl.__version__, "numpy", np.__version__)
times = np.array(["1969-12-31T23:59:59.999999", "1970-01-01T00:00:00.000001"], "M8[us]")
pq.write_table(pa.table({"t": times}), "t.parquet", coerce_timestamps="ms", allow_truncated_timestamps=True)
found = {
    "pyarrow file": pq.read_table("t.parquet")["t"].cast(pa.int64()).to_pylist(),
    "pyarrow cast": pa.array(times).cast(pa.timestamp("ms"), safe=False).cast(pa.int64()).to_pylist(),
    "duckdb epoch_ms": [duckdb.execute("select epoch_ms(?::TIMESTAMP)", [str(t)]).fetchall()[0][0] for t in times],
    "polars": pl.Series(times).cast(pl.Datetime("ms")).to_physical().to_list(),
    "numpy": times.astype("M8[ms]").astype(int).tolist(),
}
for program, milliseconds in found.items():
    print(program, milliseconds)
assert found["pyarrow file"] == found["pyarrow cast"] == found["duckdb epoch_ms"] == [0, 0]
assert found["polars"] == found["numpy"] == [-1, 0]
PY
env/bin/python try.py
