"""A server and three holders, each with a folder, a copy of the job and paths of its own, that run a job over threads."""

from __future__ import annotations

import numpy as np

from fedkern.bridges.consent import AcceptedSection, Consent
from fedkern.bridges.digest import digest_of
from fedkern.bridges.server import run_hub
from fedkern.bridges.site import Resident
from fedkern.methods import load
from fedkern.transports.driver import Timeouts
from support.relayed import Threads

NAMES = ("ada", "bo", "cy")
BRIEF = Timeouts(lost=20.0, grace=3.0)
JOB = """
[job]
method = "{method}"
seed = 5
{rounds}[data]
clients = [{clients}]
response = "died"
{test}[output]
draws = 20
chains = 2
"""
POLICY = """
open = true
places = ["fedkern.places:Spoke"]
[data.{name}]
paths = ["private/{name}.csv"]
"""


def write_rows(path, seed, n=200):
    """Writes the rows of one holder."""
    random = np.random.default_rng(seed)
    age, dose = random.normal(60, 12, n), random.normal(1, 1, n)
    died = (random.random(n) < 1 / (1 + np.exp(0.5 - 0.05 * (age - 60) + 0.4 * dose))).astype(int)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["age,dose,died", *(f"{a},{d},{y}" for a, d, y in zip(age, dose, died))]) + "\n")


def write_job(path, clients, method="likelihood", rounds="", test="", more=""):
    """Writes one party's copy of the job."""
    path.parent.mkdir(parents=True, exist_ok=True)
    quoted = ", ".join(f'"{client}"' for client in clients)
    path.write_text(JOB.format(method=method, clients=quoted, rounds=rounds, test=test) + more)
    return path


def found(folder, policy=POLICY, accepted=NAMES, **job):
    """Makes the folders of all parties; returns that of the server. Data lie in private/, and copies of the job say otherwise."""
    for seed, name in enumerate(NAMES):
        write_rows(folder / name / "private" / f"{name}.csv", seed)
        own = write_job(folder / name / "job.toml", [f"of-{name}/{other}.csv" for other in NAMES], **job)
        (folder / name / "site.toml").write_text(f'client = "{name}"\npath = "private/{name}.csv"\npolicy = "policy.toml"\n')
        (folder / name / "policy.toml").write_text(policy.format(name=name))
        if name in accepted:
            accept(own)
    write_job(folder / "server" / "job.toml", [f"{name}.csv" for name in NAMES], **job)
    return folder / "server"


def accept(job):
    """Accepts a job at the site in whose folder it lies."""
    digest = digest_of(load(job)[0]).hex()
    Consent(job.parent).add(AcceptedSection(digest=digest, file=job.name, name="a trial", who="ada", date="2026-11-27T18:20:00Z"))


def residents(folder, said=None, busy=10.0, timeouts=BRIEF):
    """Begins the resident of each site."""
    return {
        name: Resident(
            folder / name,
            engine="threads",
            identity="server@example",
            say=lambda text, name=name: None if said is None else said.append((name, text)),
            timeouts=timeouts,
            busy=busy,
        )
        for name in NAMES
    }


def run(folder, sites, faults=None, resume=False, wire=Threads, out="out", job="job.toml", **more):
    """Runs the job over threads; returns the server's exit code, what it said, and the wire."""
    said, wire = [], wire(sites, faults)
    server = folder / "server"
    more = {"timeouts": BRIEF, "again": 0.2, "quiet": True, "say": said.append, **more}
    code = run_hub(server / job, wire, server / out, resume=resume, **more)
    for site in sites.values():
        assert site.join(30.0)
    return code, said, wire


def in_one_process(folder, **job):
    """Returns the digest of the same rows and job in one process."""
    from fedkern import api

    paths = [str(folder / name / "private" / f"{name}.csv") for name in NAMES]
    return api.run(write_job(folder / "one" / "job.toml", paths, **job), out=folder / "one" / "out", progress=False).digest


def digest_of_run(folder, out="out"):
    """Returns the digest of the server's result."""
    from fedkern import api

    return api.load(folder / "server" / out).digest


def audit(folder, name):
    """Returns the content of a site's audit log."""
    from fedkern.bridges.audit import Audit

    return [line.content for line in Audit(folder / name).lines()]


class Recorded(Threads):
    """A wire that keeps all requests."""

    def __init__(self, spokes, faults=None):
        self.requests = {name: [] for name in spokes}
        super().__init__(spokes, faults)

    def send(self, site, data):
        self.requests[site].append(data)
        super().send(site, data)


PRIVATE_JOB = {
    "method": "pvi",
    "rounds": "rounds = 3\n",
    "more": """
[data.columns.age]
kind = "numeric"
center = 60.0
scale = 12.0
[data.columns.dose]
kind = "numeric"
center = 1.0
scale = 1.0
[algorithm]
local_steps = 3
[privacy]
epsilon = 50.0
delta = 1e-3
clip = 2.0
noise_multiplier = 3.0
sampling_rate = 0.5
noise_source = "keyed"
accountant = "rdp"
""",
}
PRIVATE_POLICY = """
noise_source = ["keyed", "secure"]
places = ["fedkern.places:Spoke"]
[data.{name}]
paths = ["private/{name}.csv"]
epsilon = 100.0
delta = 1e-3
"""
