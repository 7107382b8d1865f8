#!/usr/bin/env bash
# A good guess: an ordered category low < mid < high of pandas, through Parquet, keeps its order in polars, as polars' own ordered type (Enum)
# keeps it in pandas; or the file is refused.
# What happens: polars makes it a Categorical, which sorts and compares by the letters: high, low, mid. The largest is "mid", and "low" is above
# "high". The file has the order, and pandas reads it back.
# Versions: polars 2.1.0, pandas 3.1.1, pyarrow 26.0.1.
# Whom it hurts: who fits an ordinal response, or sets a reference level by min(), of files that came from pandas.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check polars==2.1.0 pandas==3.1.1 pyarrow==26.0.1 numpy==2.4.6
cat > try.py <<'PY'
import pandas as pd
import polars as pl
import pyarrow as pa

print("polars", pl.__version__, "pandas", pd.__version__, "pyarrow", pa.__version__)
levels = ["low", "mid", "high"]
pd.DataFrame({"stage": pd.Categorical(["mid", "high", "low"], levels, ordered=True)}).to_parquet("pandas.parquet")
pl.DataFrame({"stage": pl.Series(["mid", "high", "low"], dtype=pl.Enum(levels))}).write_parquet("polars.parquet")
for file in ("pandas.parquet", "polars.parquet"):
    by_pandas, by_polars = pd.read_parquet(file)["stage"], pl.read_parquet(file)["stage"]
    print(file, "pandas:", by_pandas.sort_values().tolist(), "polars:", by_polars.dtype.base_type().__name__, by_polars.sort().to_list())
    assert by_pandas.cat.ordered and by_pandas.sort_values().tolist() == levels
    assert by_polars.sort().to_list() == (levels if file == "polars.parquet" else ["high", "low", "mid"])
PY
env/bin/python try.py
