#!/usr/bin/env bash
# A good guess: a table of areas that is written to a GeoPackage and read again has the same columns and the same order of rows.
# What happens: a column of whole numbers named "fid" becomes the file's key: it is no column any more, and rows come back sorted by it. No
# word is said. With the name "FID_" or "id" nothing of this happens, and GeoJSON keeps column and order.
# Versions: geopandas 1.2.0, pyogrio 0.13.0 (GDAL of its wheel), pandas 3.1.1.
# Whom it hurts: who keeps neighbours, an adjacency matrix or effects of areas by position beside such a file (QGIS makes columns of this name).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check geopandas==1.2.0 pyogrio==0.13.0 pyproj==3.7.2 shapely==2.2.0 \
  pandas==3.1.1 numpy==2.4.6
cat > try.py <<'PY'
import warnings

import geopandas
import pyogrio
from shapely.geometry import box

warnings.simplefilter("error")
print("geopandas", geopandas.__version__, "pyogrio", pyogrio.__version__, "GDAL", pyogrio.__gdal_version_string__)
squares = [box(i, 0, i + 1, 1) for i in range(3)]
found = {}
for key, suffix in (("fid", "gpkg"), ("id", "gpkg"), ("fid", "geojson")):
    table = geopandas.GeoDataFrame({key: [30, 10, 20], "name": ["c", "a", "b"]}, geometry=squares, crs=4326)
    table.to_file(f"{key}.{suffix}")
    read = geopandas.read_file(f"{key}.{suffix}")
    found[key, suffix] = (list(read.columns), read["name"].tolist())
    print(key, suffix, *found[key, suffix])
assert found["fid", "gpkg"] == (["name", "geometry"], ["a", "b", "c"])
assert found["id", "gpkg"] == (["id", "name", "geometry"], ["c", "a", "b"])
assert found["fid", "geojson"] == (["fid", "name", "geometry"], ["c", "a", "b"])
PY
env/bin/python try.py
