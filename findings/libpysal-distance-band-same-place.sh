#!/usr/bin/env bash
# A good guess: points at the same place are neighbours in every distance band, since their distance, 0, is below the threshold.
# What happens: they are none in libpysal.weights.DistanceBand, binary or not, though both are neighbours of a third point: the band is a sparse
# matrix of distances, in which 0 is "no entry". libpysal.graph.Graph.build_distance_band of the same package has them, and so has R's spdep.
# Versions: libpysal 4.14.1, scipy 1.17.1, numpy 2.4.6.
# Whom it hurts: maps of cases by address, household or clinic, where many share a place: Moran's I and spatial lags miss the nearest pairs.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/python -m pip install --quiet --disable-pip-version-check libpysal==4.14.1 geopandas==1.2.0 scipy==1.17.1 numpy==2.4.6 \
  pandas==3.1.1 scikit-learn==1.9.1
cat > try.py <<'PY'
import warnings

import libpysal
import numpy as np
from libpysal.graph import Graph

warnings.simplefilter("ignore")
print("libpysal", libpysal.__version__)
points = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
band = {i: sorted(int(j) for j in near) for i, near in libpysal.weights.DistanceBand(points, threshold=1.5).neighbors.items()}
graph = {int(i): sorted(int(j) for j in near) for i, near in Graph.build_distance_band(points, 1.5).neighbors.items()}
print("points", points.tolist(), "DistanceBand", band, "Graph", graph)
assert band == {0: [2], 1: [2], 2: [0, 1]}
assert graph == {0: [1, 2], 1: [0, 2], 2: [0, 1]}
PY
env/bin/python try.py
