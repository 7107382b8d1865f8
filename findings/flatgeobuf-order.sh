#!/usr/bin/env bash
# A good guess: geopandas reads the rows of a file in the order in which it wrote them, whatever the format.
# What happens: a FlatGeobuf file comes back in another order (along a curve that fills the plane), without a word, and the index starts at 0
# again. Six squares in a row, 0 to 5, come back as 3, 4, 5, 0, 1, 2. SPATIAL_INDEX="NO" keeps the order.
# Versions: geopandas 1.2.0, pyogrio 0.13.0 (GDAL of its wheel), pandas 3.1.1.
# Whom it hurts: who joins weights, an adjacency matrix or posterior effects of areas to the map by position: all names are right and all
# numbers are of other areas.
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
table = geopandas.GeoDataFrame({"n": range(6)}, geometry=[box(i, 0, i + 1, 1) for i in range(6)], crs=4326)
found = {}
for file, options in (("map.fgb", {}), ("plain.fgb", {"SPATIAL_INDEX": "NO"}), ("map.gpkg", {})):
    table.to_file(file, **options)
    found[file] = geopandas.read_file(file)["n"].tolist()
    print(file, options, found[file])
assert found["map.fgb"] != list(range(6)) and sorted(found["map.fgb"]) == list(range(6))
assert found["plain.fgb"] == found["map.gpkg"] == list(range(6))
PY
env/bin/python try.py
