#!/usr/bin/env bash
# A good guess: the sum of a column of whole numbers, written to Parquet by DuckDB, is whole numbers (64 bits, or a decimal of 38 digits).
# What happens: it is a column of DOUBLE. Sums have 128 bits in DuckDB, Parquet has no such type, and COPY turns them into doubles in silence:
# 9007199254740993 becomes 9007199254740992, and a program that asks for counts meets floats. count(*) stays whole. A cast to BIGINT helps.
# Versions: duckdb 2.0.1, pyarrow 26.0.1.
# Whom it hurts: who aggregates cases by area with SQL for a count model; sums of ids, cents or nanoseconds lose digits.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check duckdb==2.0.1 pyarrow==26.0.1
cat > try.py <<'PY'
import duckdb
import pyarrow
import pyarrow.parquet as pq

print("duckdb", duckdb.__version__, "pyarrow", pyarrow.__version__)
rows = "(values (9007199254740992::BIGINT), (1::BIGINT)) t(x)"
print("in DuckDB:", duckdb.sql(f"select sum(x) from {rows}").fetchall()[0][0])
duckdb.sql(f"copy (select sum(x) as total, sum(x)::BIGINT as whole, count(*) as n from {rows}) to 'sums.parquet'")
table = pq.read_table("sums.parquet")
print("in the file:", {field.name: str(field.type) for field in table.schema}, table.to_pylist())
assert [str(field.type) for field in table.schema] == ["double", "int64", "int64"]
assert table.to_pylist() == [{"total": 9007199254740992.0, "whole": 9007199254740993, "n": 2}]
PY
env/bin/python try.py
