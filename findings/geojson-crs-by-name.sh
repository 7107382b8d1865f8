#!/usr/bin/env bash
# A good guess: a GeoJSON file (of the specification of 2008, which many agencies still write) that names its coordinate system in
# words, "OSGB36 / British National Grid", is read by geopandas with that system, as GDAL's other formats find it by this name; or
# with none; or the reader warns.
#
# What happens: its system is EPSG:4326, degrees of longitude and latitude, without a warning, though coordinates are metres such as
# 530000, 180000. The code of the same system ("EPSG:27700") is read rightly, and pyproj knows the name. Distances, areas and
# reprojections of such a file are then of points that do not exist, while borders that touch look right.
#
# Versions: geopandas 1.1.1, pyogrio 0.11.1 (GDAL of its wheel), pyproj 3.7.2, shapely 2.1.2, pandas 2.3.3, numpy 2.3.5.
# Whom it hurts: who makes neighbours or distances of areas, as spatial models do, of files of national agencies.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check geopandas==1.1.1 pyogrio==0.11.1 pyproj==3.7.2 shapely==2.1.2 \
  pandas==2.3.3 numpy==2.3.5
cat > try.py <<'PY'
import json
import warnings

import geopandas
import pyogrio
import pyproj

warnings.simplefilter("error")
print("geopandas", geopandas.__version__, "pyogrio", pyogrio.__version__, "GDAL", pyogrio.__gdal_version_string__)
NAME = "OSGB36 / British National Grid"
square = [[[530000, 180000], [531000, 180000], [531000, 181000], [530000, 181000], [530000, 180000]]]
found = {}
for name in ("EPSG:27700", NAME):
    crs = {"type": "name", "properties": {"name": name}}
    area = {"type": "Feature", "properties": {"area": "a"}, "geometry": {"type": "Polygon", "coordinates": square}}
    with open("map.geojson", "w") as file:
        json.dump({"type": "FeatureCollection", "crs": crs, "features": [area]}, file)
    read = geopandas.read_file("map.geojson")
    found[name] = read.crs.to_string() if read.crs else None
    print(f"{name!r}: {found[name]}, bounds {read.total_bounds.tolist()}")
print("pyproj finds the name:", pyproj.CRS.from_user_input(NAME).to_authority())
assert found == {"EPSG:27700": "EPSG:27700", NAME: "EPSG:4326"}, found
PY
env/bin/python try.py
