#!/usr/bin/env bash
# A good guess: the mean of the decimals 0.1 and 0.2 is 0.15, as a decimal with more digits or as a float (DuckDB, polars).
# What happens: pyarrow's mean has the digits of the column: 0.2, and 2 for the whole decimals 1 and 2, in compute.mean and by group, while
# stddev of the same column is a float. A centred column then does not sum to zero.
# Versions: pyarrow 26.0.1.
# Whom it hurts: who standardises or averages columns that a database gave as decimals of few digits (NUMERIC(5, 0), prices, ages).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check pyarrow==26.0.1
cat > try.py <<'PY'
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

print("pyarrow", pa.__version__)
found = {}
for values in (["0.1", "0.2"], ["1", "2"]):
    column = pa.array([Decimal(value) for value in values])
    grouped = pa.table({"g": [1, 1], "x": column}).group_by("g").aggregate([("x", "mean")])["x_mean"][0].as_py()
    found[tuple(values)] = (str(pc.mean(column).as_py()), str(grouped), pc.stddev(column).as_py())
    print(values, column.type, "mean", found[tuple(values)][0], "by group", grouped, "stddev", round(found[tuple(values)][2], 6))
assert found["0.1", "0.2"][:2] == ("0.2", "0.2") and found["1", "2"][:2] == ("2", "2")
PY
env/bin/python try.py
