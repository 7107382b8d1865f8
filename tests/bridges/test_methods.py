"""The golden jobs between residents: every method and schedule has the digest of one process, each site with its own files."""

import json
import shutil

import pytest
from threadpoolctl import threadpool_limits

from fedkern.api import perform
from fedkern.bridges.site import Resident
from fedkern.jobs.keys import OWN_PATHS
from fedkern.jobs.load import merged, overridden, tables_of
from fedkern.jobs.run import Output
from fedkern.methods import load
from fedkern.transports.inprocess import InProcess
from support.golden_jobs import golden_jobs
from support.organisations import BRIEF, accept, digest_of_run, run

GOLDEN = golden_jobs()
ON_PUSH = ("sparse-sums", "vertical-mean-field")
AS_THEY_COME = ("pvi-asynchronous-adam", "pvi-private-poisson")  # schedules that take answers as they come
LEFT_OUT = ("sigma-hmc", "sigma-nested", "sigma-private", "sigma-resumed", "sigma-sfvi")


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    path = tmp_path_factory.mktemp("golden")
    GOLDEN.write(path)
    return path


def written(tables, before=""):
    """Returns tables as lines of TOML: a dotted key and a value each."""
    lines = []
    for key, value in tables.items():
        name = f"{before}{json.dumps(key)}"
        lines += written(value, f"{name}.") if isinstance(value, dict) else [f"{name} = {json.dumps(value)}"]
    return lines


@pytest.mark.parametrize(
    "job", [job if job in ON_PUSH else pytest.param(job, marks=pytest.mark.nightly) for job in GOLDEN.JOBS if job not in LEFT_OUT]
)
def test_golden_jobs_have_the_digest_of_one_process(job, golden, tmp_path):
    base, *sets = GOLDEN.JOBS[job]
    home = (golden / base).parent
    tables = overridden(tables_of(golden / f"{base}.toml", "job"), sets)
    if "builtin" in tables["data"]:
        pytest.skip("rows of a dependency have no file")
    files = sorted(path for pattern in tables["data"]["clients"] for path in home.glob(pattern))
    names = [path.name.removesuffix(".csv") for path in files]
    # The server's copy has the server's files, and no file of a client is there.
    own = {name: str(home / tables["data"][name]) for name in ("test", "server") if name in tables["data"]}
    server = merged(tables, {"data": {**own, "clients": [f"nowhere/{name}.csv" for name in names]}})
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "job.toml").write_text("\n".join(written(server)))
    sites = {}
    for path, name in zip(files, names):
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(path, folder / "mine.csv")
        (folder / "site.toml").write_text(f'client = "{name}"\npath = "mine.csv"\n')
        theirs = {"data": {"clients": [f"{other}.csv" for other in names], **dict.fromkeys(own, "at-the-server.csv")}}
        (folder / "job.toml").write_text("\n".join(written(merged(tables, theirs))))
        accept(folder / "job.toml")
        sites[name] = Resident(folder, engine="threads", identity="server", say=lambda text: None, timeouts=BRIEF)
    assert {f"data.{name}" for name in own} <= {*OWN_PATHS}
    with threadpool_limits(1, user_api="blas"):
        config, folder = load(str(golden / f"{base}.toml"), sets)
        want = perform(InProcess(), config, folder, Output(tmp_path / "one", quiet=True))
        code, said, _ = run(tmp_path, sites)
    assert (code, said) == (0, [])
    if job not in AS_THEY_COME:
        assert digest_of_run(tmp_path) == want.digest
