#!/usr/bin/env bash
# A good guess: the geodesic area of a polygon is the same number whichever file the polygon came through.
# What happens: from a shapefile it is negative, from GeoJSON, GeoPackage and FlatGeobuf positive: a shapefile's shells turn clockwise, readers
# give rings as they stand, and pyproj's area has the sign of the turn. Shapely's planar area of both is positive.
# Versions: pyproj 3.7.2, geopandas 1.2.0, pyogrio 0.13.0 (GDAL of its wheel), shapely 2.2.0.
# Whom it hurts: who takes density = people / area, or log area as an offset, of maps from several sources: the sign turns for some of them.
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
import pyproj
from shapely.geometry import box

warnings.simplefilter("error")
print("pyproj", pyproj.__version__, "geopandas", geopandas.__version__, "pyogrio", pyogrio.__version__)
table = geopandas.GeoDataFrame({"n": [1]}, geometry=[box(0, 0, 1, 1, ccw=True)], crs=4326)
earth, found = pyproj.Geod(ellps="WGS84"), {}
for suffix in ("shp", "geojson", "gpkg", "fgb"):
    table.to_file(f"map.{suffix}")
    shape = geopandas.read_file(f"map.{suffix}").geometry[0]
    found[suffix] = round(earth.geometry_area_perimeter(shape)[0] / 1e6)
    print(suffix, found[suffix], "km2; planar", shape.area)
assert found == {"shp": -12309, "geojson": 12309, "gpkg": 12309, "fgb": 12309}
PY
env/bin/python try.py
