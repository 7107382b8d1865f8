#!/usr/bin/env bash
# A good guess: 0.1 times 0.1 of decimal columns is 0.01, as in Python's decimal, pyarrow and DuckDB, where the digits behind the point add up.
# What happens: the product keeps the digits of the factors, and so does the quotient: of columns with one digit 0.1 * 0.1 is 0.0, and
# 0.1 / 3.0 is 0.0, with no word of it.
# Versions: polars 2.1.0, pyarrow 26.0.1, duckdb 2.0.1.
# Whom it hurts: who multiplies money by rates, or doses by weights, of Parquet files that keep decimals: small products are rounded to zero.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check polars==2.1.0 pyarrow==26.0.1 duckdb==2.0.1
cat > try.py <<'PY'
from decimal import Decimal

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

print("polars", pl.__version__, "pyarrow", pa.__version__, "duckdb", duckdb.__version__)
tenth, three = pl.Series([Decimal("0.1")]), pl.Series([Decimal("3.0")])
product, quotient = (tenth * tenth).item(), (tenth / three).item()
by_arrow = pc.multiply(pa.array([Decimal("0.1")]), pa.array([Decimal("0.1")]))[0].as_py()
by_duckdb = duckdb.sql("select 0.1::DECIMAL(10, 1) * 0.1::DECIMAL(10, 1)").fetchall()[0][0]
print("0.1 * 0.1: polars", product, "pyarrow", by_arrow, "duckdb", by_duckdb, "; 0.1 / 3.0: polars", quotient)
assert product == 0 and quotient == 0 and by_arrow == by_duckdb == Decimal("0.01")
PY
env/bin/python try.py
