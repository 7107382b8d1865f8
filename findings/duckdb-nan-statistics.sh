#!/usr/bin/env bash
# A good guess: a filter keeps the same rows of a Parquet file as of a table with the same rows. (To DuckDB NaN is larger than every number.)
# What happens: "x > 3" keeps the row with NaN in a table and in a file that DuckDB wrote, and drops it from a file of pyarrow or polars, whose
# statistics say, as Parquet's rules want it, that the largest number is 2: the group is skipped. polars keeps the row of all three.
# Versions: duckdb 2.0.1, pyarrow 26.0.1, polars 2.1.0.
# Whom it hurts: who counts or removes rows by a threshold in columns with NaN: the count depends on who wrote the file, and on the rows that
# lie in the same group.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check duckdb==2.0.1 pyarrow==26.0.1 polars==2.1.0
cat > try.py <<'PY'
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

print("duckdb", duckdb.__version__, "pyarrow", pa.__version__, "polars", pl.__version__)
values = [1.0, float("nan"), 2.0]
pq.write_table(pa.table({"x": values}), "pyarrow.parquet")
pl.DataFrame({"x": values}).write_parquet("polars.parquet")
duckdb.sql("create table t as select * from (values (1.0::DOUBLE), ('nan'::DOUBLE), (2.0)) t(x)")
duckdb.sql("copy t to 'duckdb.parquet'")
found = {"table": duckdb.sql("select count(*) from t where x > 3").fetchall()[0][0]}
for writer in ("duckdb", "pyarrow", "polars"):
    file = f"{writer}.parquet"
    found[writer] = duckdb.sql(f"select count(*) from '{file}' where x > 3").fetchall()[0][0]
    by_polars = pl.scan_parquet(file).filter(pl.col("x") > 3).collect().height
    print(f"file of {writer}: rows with x > 3 by duckdb {found[writer]}, by polars {by_polars}")
print("table of duckdb:", found["table"])
assert found == {"table": 1, "duckdb": 1, "pyarrow": 0, "polars": 0}
PY
env/bin/python try.py
