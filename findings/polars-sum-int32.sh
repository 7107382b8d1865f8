#!/usr/bin/env bash
# A good guess: the sum of whole numbers of 32 bits has 64 bits, as in pandas, NumPy, pyarrow, DuckDB and R (which gives NA), or it is an error.
# What happens: polars adds them in 32 bits and wraps: 2147483647 + 1 is -2147483648, in sum, in a sum by group and in the streaming engine,
# without a word. Narrower ones (8 and 16 bits) do get 64 bits, so that it is the common width that wraps.
# Versions: polars 2.1.0, pyarrow 26.0.1.
# Whom it hurts: Parquet files of R and Spark, whose whole numbers have 32 bits: person-days, doses or cents of a region add up to more.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check polars==2.1.0 pyarrow==26.0.1
cat > try.py <<'PY'
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

print("polars", pl.__version__, "pyarrow", pa.__version__)
pq.write_table(pa.table({"g": ["a", "a"], "days": pa.array([2**31 - 1, 1], pa.int32())}), "days.parquet")
frame = pl.scan_parquet("days.parquet")
found = {
    "sum": frame.select(pl.col("days").sum()).collect().item(),
    "by group": frame.group_by("g").agg(pl.col("days").sum()).collect()["days"].item(),
    "streaming": frame.select(pl.col("days").sum()).collect(engine="streaming").item(),
    "of 16 bits": pl.Series([2**15 - 1, 1], dtype=pl.Int16).sum(),
}
print(found, "pyarrow", pc.sum(pq.read_table("days.parquet")["days"]))
assert list(found.values()) == [-(2**31)] * 3 + [2**15]
PY
env/bin/python try.py
