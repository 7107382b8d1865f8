"""Jobs over Flower itself: its simulation, and a SuperLink with TLS and registered keys, with the digests of one process."""

import pytest

from support import flower

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not flower.is_there(), reason="Flower is not installed here: pip install 'flwr[simulation]'"),
    pytest.mark.timeout(1800),
]
NAMES = ("berlin", "lyon")
HEAD = '[data]\nclients = ["berlin.csv", "lyon.csv"]\nresponse = "died"\n'
ROUNDS = '[job]\nmethod = "pvi"\nrounds = 2\n[algorithm]\nschedule = "synchronous"\n'
JOBS = {
    "likelihood": '[job]\nmethod = "likelihood"\n' + HEAD,
    "pvi": ROUNDS + '[model]\ncovariance = "full"\n' + HEAD,
    "private": (
        ROUNDS
        + "local_steps = 5\n[data.columns.age]\ncenter = 60\nscale = 12\n[privacy]\nepsilon = inf\ndelta = 1e-4\n"
        "clip = 2.5\n"
        'sampling_rate = 0.1\nnoise_multiplier = 2.0\nnoise_source = "keyed"\n' + HEAD
    ),
}


def write_rows(path, seed):
    """Writes a client's rows: age and death."""
    import numpy as np

    generator = np.random.default_rng(seed)
    age = generator.normal(60, 12, 400)
    died = generator.random(400) < 1 / (1 + np.exp(-0.05 * (age - 60)))
    path.write_text("age,died\n" + "".join(f"{a:.5f},{int(d)}\n" for a, d in zip(age, died)))


@pytest.fixture(scope="module")
def parties(tmp_path_factory):
    """Folders of the server and of each site, with their copies of all jobs, and one of a process that has all rows."""
    root = tmp_path_factory.mktemp("parties")
    for folder in ("server", "one", *NAMES):
        (root / folder).mkdir()
        for job, text in JOBS.items():
            (root / folder / f"{job}.toml").write_text(text)
    for seed, name in enumerate(NAMES):
        write_rows(root / name / "export.csv", seed)
        write_rows(root / "one" / f"{name}.csv", seed)
        (root / name / "site.toml").write_text(f'client = "{name}"\npath = "export.csv"\n')
    return root
