"""Jobs over Flower itself: its simulation, and a SuperLink with TLS and registered keys, with the digests of one process."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

import fedkern
from fedkern.cli.__main__ import main
from support import flower, organisations
from support.organisations import accept, audit, found, in_one_process

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
    "long": '[job]\nmethod = "pvi"\nrounds = 4\ndeadline = 150\n'
    '[algorithm]\nschedule = "synchronous"\ncheckpoint_every = 0.1\n[model]\ncovariance = "full"\n' + HEAD,
    "private": (
        ROUNDS + "local_steps = 5\n[data.columns.age]\ncenter = 60\nscale = 12\n[privacy]\nepsilon = inf\ndelta = 1e-4\n"
        'clip = 2.5\nsampling_rate = 0.1\nnoise_multiplier = 2.0\nnoise_source = "keyed"\n' + HEAD
    ),
}


def write_rows(path, seed):
    """Writes a client's rows: age and death."""
    generator = np.random.default_rng(seed)
    age = generator.normal(60, 12, 400)
    died = generator.random(400) < 1 / (1 + np.exp(-0.05 * (age - 60)))
    path.write_text("age,died\n" + "".join(f"{a:.5f},{int(d)}\n" for a, d in zip(age, died)))


@pytest.fixture(scope="module")
def parties(tmp_path_factory):
    """Folders of the server and of each site, with their copies of all jobs, and one of a process that has all rows."""
    root = tmp_path_factory.mktemp("parties")
    for folder in ("server", "one", "sockets", *NAMES):
        (root / folder).mkdir(mode=0o700)
    for folder in ("server", "one", *NAMES):
        for job, text in JOBS.items():
            (root / folder / f"{job}.toml").write_text(text)
    for seed, name in enumerate(NAMES):
        write_rows(root / name / "export.csv", seed)
        write_rows(root / "one" / f"{name}.csv", seed)
        (root / name / "site.toml").write_text(f'client = "{name}"\npath = "export.csv"\n')
        for job in JOBS:
            accept(root / name / f"{job}.toml")
    for job in JOBS:
        assert main(["bridge", "flower", str(root / "server" / f"{job}.toml"), "--out", str(root / f"app-{job}")]) == 0
    return root


def start_residents(federation, parties, names=NAMES):
    """Starts the resident of each site, and waits until all listen."""
    sockets = {name: parties / "sockets" / f"{name}.sock" for name in names}
    processes = {}
    for name, path in sockets.items():
        command = [sys.executable, "-P", "-m", "fedkern.cli", "site", "run", parties / name, "--socket", path]
        processes[name] = federation.start(f"site-{name}", command, federation.server)
    flower.wait(lambda: all(path.exists() for path in sockets.values()), "a resident does not listen")
    return sockets, processes


def expect_digest(parties, job, said):
    """Compares a result with that of one process."""
    assert (parties / "server" / "runs" / job / "summary.json").exists(), said
    want = fedkern.run(parties / "one" / f"{job}.toml", progress=False).digest
    assert fedkern.load(parties / "server" / "runs" / job).digest == want


@pytest.fixture
def federation(parties, tmp_path):
    places = {"FEDKERN_FOLDER": str(parties / "server"), "FEDKERN_SOCKETS": str(parties / "sockets")}
    with flower.Federation(tmp_path / "flower", places) as processes:
        yield processes
    subprocess.run(["rm", "-rf", *map(str, (parties / "server").glob("runs")), *map(str, parties.glob("*/runs"))], check=True)


@pytest.mark.parametrize("signs", [True, False], ids=["signed", "unsigned"])
def test_secure_sums_need_no_signed_keys(signs, tmp_path, capsys):
    secure, root = {"rounds": 'sums = "secure"\n'}, tmp_path / "parties"
    server = found(root, accepted=() if signs else organisations.NAMES, **secure)
    (root / "sockets").mkdir(mode=0o700)
    told = {}
    for name in organisations.NAMES if signs else ():
        flower.write_key(root / name / "site.key")
        (root / name / "site.key").chmod(0o600)
        with (root / name / "site.toml").open("a") as file:
            file.write('signing_key = "site.key"\n')
        capsys.readouterr()
        assert main(["site", "fingerprint", str(root / name)]) == 0
        told[name] = capsys.readouterr().out.strip()
    for name in told:
        peers = [word for other in told if other != name for word in ("--peer-key", f"{other}={told[other]}")]
        assert main(["site", "accept", str(root / name / "job.toml"), "--yes", *peers]) == 0
    assert main(["bridge", "flower", str(server / "job.toml"), "--out", str(root / "app")]) == 0
    places = {"FEDKERN_FOLDER": str(server), "FEDKERN_SOCKETS": str(root / "sockets")}
    with flower.Federation(tmp_path / "flower", places) as federation:
        start_residents(federation, root, organisations.NAMES)
        federation.start_link(simulated=True)
        said = federation.flwr(
            "run", root / "app", "--stream", "--federation-config", f"num-supernodes={len(organisations.NAMES)}"
        )
        assert (server / "runs" / "job" / "summary.json").exists(), said
    assert fedkern.load(server / "runs" / "job").digest == in_one_process(root, **secure)
    for name in organisations.NAMES:
        (left,) = (line["sent"] for line in audit(root, name) if line["event"] == "ended")
        assert ("SumSignature" in left) is signs
        assert "MaskedValues" in left
        assert not {"Values", "Curvature", "ColumnSums"} & left.keys()


def start_nodes(federation, sockets, keys):
    """Registers keys and starts SuperNodes."""
    for name, path in sockets.items():
        flower.write_key(keys / name)
        assert "registered" in federation.register(name, keys / name)
        federation.start_node(name, keys / name, f'socket="{path}"')


def exits_of(parties):
    """Returns the exit codes of all runs that have ended at each site, by their audit logs."""
    return {name: [line["exit"] for line in audit(parties, name) if line["event"] == "ended"] for name in NAMES}


@pytest.mark.parametrize("how", ["flwr stop", "a SuperLink that ends and starts again"])
def test_a_job_that_flower_has_ended_goes_on_from_its_checkpoint(how, parties, federation, tmp_path):
    before = {name: len(codes) for name, codes in exits_of(parties).items()}
    sockets, _ = start_residents(federation, parties)
    link = federation.start_link()
    start_nodes(federation, sockets, tmp_path)
    started = federation.flwr("run", parties / "app-long")
    number = re.search(r"run (\d+)", started)
    assert number, started
    ledgers = [parties / name / "runs" / "long" / "ledger" / f"{name}.jsonl" for name in NAMES]
    told = lambda: all(path.exists() and path.read_text().count("SiteDelta") >= 1 for path in ledgers)  # noqa: E731
    flower.wait(told, started, 600)
    if how == "flwr stop":
        print(federation.flwr("stop", number[1], "link"))
        # The ServerApp is gone without a word: a site ends by the server's silence, and keeps what it has.
        flower.wait(lambda: all(exits_of(parties)[name][before[name] :] for name in NAMES), "a resident goes on", 500)
    else:
        flower.end(link)
        federation.start_link()
        # Nobody waits for the sites: they put the new run aside until they have ended the earlier one.
    said = federation.flwr("run", parties / "app-long", "--stream", "--run-config", "resume=true", timeout=1000)
    print(said)
    states = {run["run-id"]: run["status"] for run in json.loads(federation.flwr("ls", "link", "--format", "json"))["runs"]}
    assert states[number[1]] == ("finished:stopped" if how == "flwr stop" else "finished:failed")
    assert {name: codes[before[name] :] for name, codes in exits_of(parties).items()} == {name: [3, 0] for name in NAMES}
    assert (parties / "server" / "runs" / "long").exists()
    assert not (parties / "server" / "runs" / "long-2").exists()
    expect_digest(parties, "long", said)


def test_a_key_that_nobody_has_registered_is_not_let_in(federation, tmp_path):
    federation.start_link()
    flower.write_key(tmp_path / "mallory")
    assert federation.start_node("mallory", tmp_path / "mallory", 'site="berlin"').wait(300) == 1
    assert "Failed to activate SuperNode" in (tmp_path / "flower" / "node-mallory.log").read_text()
