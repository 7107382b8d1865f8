#!/usr/bin/env bash
# A good guess: sem(x) of DuckDB is stddev(x) / sqrt(count(x)), the standard error of the mean as in SciPy, pandas and every textbook, since
# DuckDB's stddev has the divisor n - 1.
# What happens: it is stddev_pop(x) / sqrt(count(x)), with the divisor n. Of three rows it is 18 % too small.
# Versions: duckdb 2.0.1, scipy 1.17.1.
# Whom it hurts: who reports intervals of groups straight from SQL: those of small groups are too narrow, as nothing else of the program is.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check duckdb==2.0.1 scipy==1.17.1 numpy==2.4.6
cat > try.py <<'PY'
import duckdb
import scipy
from scipy import stats

print("duckdb", duckdb.__version__, "scipy", scipy.__version__)
query = "select sem(x), stddev(x) / sqrt(count(x)), stddev_pop(x) / sqrt(count(x)) from (values (1.0), (2.0), (4.0)) t(x)"
sem, sample, population = duckdb.sql(query).fetchall()[0]
print(f"sem {sem:.6f}; by stddev {sample:.6f}; by stddev_pop {population:.6f}; scipy {stats.sem([1, 2, 4]):.6f}")
assert abs(sem - population) < 1e-12 and abs(sample - stats.sem([1, 2, 4])) < 1e-12 and sem < 0.82 * sample
PY
env/bin/python try.py
