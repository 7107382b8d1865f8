#!/usr/bin/env bash
# A good guess: a shapefile keeps numbers to 15 or more significant digits (its columns are 24 characters wide), and a number too small is an
# error or a warning.
# What happens: columns have 15 digits *behind the point*: 1.23456789e-12 comes back as 1.235e-12 and 1e-20 as 0, without a warning, while
# 1.23456789012345e20 keeps all its digits. The same table by GeoPackage is exact.
# Versions: geopandas 1.2.0, pyogrio 0.13.0 (GDAL of its wheel), pandas 3.1.1.
# Whom it hurts: who passes rates per person-second, densities, likelihoods or p-values of areas to another program: log of 0.
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
values = [1.23456789e-12, 1e-20, 1.23456789012345e20]
table = geopandas.GeoDataFrame({"rate": values}, geometry=[box(i, 0, i + 1, 1) for i in range(3)], crs=4326)
found = {}
for file in ("map.shp", "map.gpkg"):
    table.to_file(file)
    found[file] = geopandas.read_file(file)["rate"].tolist()
    print(file, found[file])
assert found == {"map.shp": [1.235e-12, 0.0, 1.23456789012345e20], "map.gpkg": values}
PY
env/bin/python try.py
