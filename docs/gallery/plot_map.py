"""
A map whose areas belong to several offices
===========================================

Cases of a disease in 36 counties of four states. Neighbours are alike, also across a state's border. The prior is exact inside
each state, and a few shared numbers tie the states together. No message holds a state's counts, but whoever has the map and the
expected counts can compute them from what is sent: a map's counts count as told.
"""

# %%
# ``fedkern simulate sigma`` writes such a federation: counts and expected counts of each state, the map, and a prior to be built.
import json
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.patches import Polygon

import fedkern
from fedkern.cli.__main__ import main

folder = Path(tempfile.mkdtemp())
main(["simulate", "sigma", "--out", str(folder), "--clients", "4", "--rows", "9"])

# %%
# The prior is built once, from the map alone. Then the states fit it together.
main(["sigma", "build", str(folder / "prior.toml"), "--out", str(folder / "prior"), "--quiet"])
result = fedkern.run(folder / "job.toml", out=folder / "run", job={"rounds": 3000})
print(result)

# %%
# Each state's own map lies in its own folder and has no message. Here all lie in one place, so that they can be drawn.
areas = pd.concat([pd.read_csv(path) for path in sorted((folder / "run").glob("client-*/areas.csv"))], ignore_index=True)
features = json.loads((folder / "map.geojson").read_text())["features"]
shapes = {str(feature["properties"]["area"]): feature["geometry"]["coordinates"][0] for feature in features}
figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
colours = plt.get_cmap("viridis")
titles = {"crude": "observed / expected", "rate_mean": "posterior mean of the rate ratio"}
both = np.log(areas[[*titles]].clip(lower=0.3))
low, high = both.min().min(), both.max().max()
for axis, (column, title) in zip(axes, titles.items()):
    for _, area in areas.iterrows():
        value = (np.log(max(area[column], 0.3)) - low) / (high - low)
        axis.add_patch(Polygon(shapes[str(int(area["area"]))], facecolor=colours(value), edgecolor="white", linewidth=0.5))
    axis.autoscale_view()
    axis.set_aspect("equal")
    axis.set_axis_off()
    axis.set_title(title)
plt.show()
