"""Runs a job over NVFlare with TLS and registered identities on the loopback, and what happens when something goes wrong.

Server and sites run in a network namespace of their own (`unshare`), since the server listens on all addresses. Every party makes
its own key; only requests go to the coordinator, by the commands of docs/start/organisations.md. The engine's environment is
another than this one.

    python benchmarks/nvflare_tls.py --engine /opt/nvflare/bin/python --parties DIR --out DIR [--fault killed-site]

DIR of --parties has a folder for the server and one for each site, with the party's copy of job.toml, site.toml and consent.toml.
Each site has a resident in this environment, to which the engine's client speaks through a socket. Several jobs run one after
another in one federation. With --sign each site signs its keys of secure sums by a key of its own, and accepts the job with the
others' fingerprints. With --client-user NAME (as root) the sites' clients are that user's, who can read their kits alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path

CLASSES = ["fedkern.bridges.nvflare.Server", "fedkern.bridges.nvflare.Site"]
PROJECT = """name: heart
scheme: grpc
connection_security: mtls
server:
  host: localhost
  fed_learn_port: 8002
  admin_port: 8003
"""
PERSON = "eva@coordinator.org"


class Federation:
    """Starts, asks and ends the processes of the engine."""

    def __init__(self, engine: Path, parties: Path, work: Path, user: str = "") -> None:
        self.bin, self.parties, self.work, self.user = engine.parent, parties, work, user
        self.sites = sorted({path.parent.name for file in ("consent.toml", "site.toml") for path in parties.glob(f"*/{file}")})
        self.kits = work / "kits" / "heart" / "prod_00"
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.residents: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = os.environ | {"PATH": f"{self.bin}:{os.environ['PATH']}", "HOME": str(work)}

    def tell(self, *words: str, **options: object) -> subprocess.CompletedProcess[str]:
        """Runs one command of the engine, and returns what it has printed."""
        command = [str(self.bin / "nvflare"), *words]
        return subprocess.run(
            command, env=self.environment, cwd=self.work, text=True, capture_output=True, check=False, **options
        )

    def make(self) -> None:
        """Makes the kits: each party its key, the coordinator the certificates."""
        self.work.mkdir(parents=True)
        (self.work / "project.yaml").write_text(PROJECT)
        self.tell("cert", "init", "--profile", "project.yaml", "-o", "ca")  # with --org 2.9.0 signs as an issuer without it
        root = json.loads((self.work / "ca" / "ca.json").read_text())["rootCA_fingerprint"]
        kinds = {"localhost": "server", PERSON: "admin"} | dict.fromkeys(self.sites, "client")
        for name, kind in kinds.items():
            more = {"server": "    fed_learn_port: 8002\n    admin_port: 8003\n", "admin": "    role: lead\n"}.get(kind, "")
            org = f"hospital_{name}" if kind == "client" else "coordinator"
            text = f"name: heart\nparticipants:\n  - name: {name}\n    type: {kind}\n    org: {org}\n{more}"
            (self.work / f"{name}.yaml").write_text(text)
            self.tell("cert", "request", "-p", f"{name}.yaml", "--out", f"request-{name}")
            request = f"request-{name}/{name}.request.zip"
            self.tell("cert", "approve", request, "-c", "ca", "--profile", "project.yaml", "--out", f"{name}.signed.zip")
            said = self.tell(
                "package", f"{name}.signed.zip", "--request-dir", f"request-{name}", "--fingerprint", root, "-w", "kits"
            )
            if said.returncode:
                raise SystemExit(said.stdout + said.stderr)
        for name in ("localhost", *self.sites):
            self.configure(self.kits / name / "local")

    def configure(self, local: Path) -> None:
        """Writes what a party's IT writes: which classes a job may have, no logs to the server, where the server keeps jobs."""
        known = json.loads((local / "resources.json.default").read_text())
        known["class_allow_list"] = CLASSES
        if "allow_log_streaming" in known:
            known["allow_log_streaming"] = False
        known["components"] = [one for one in known["components"] if one["id"] not in ("site_log_streamer", "log_receiver")]
        text = json.dumps(known, indent=2).replace("/tmp/nvflare/", f"{local.parent}/")
        (local / "resources.json").write_text(text)

    def start(self, name: str, **more: str) -> None:
        """Starts the engine's process of a party, and before it the resident of a site, unless that runs already."""
        environment = self.environment | more
        with (self.work / f"{name}.log").open("ab") as log:
            streams = {"cwd": self.work, "stdout": log, "stderr": log, "start_new_session": True}  # Python looks in cwd first
            if name == "localhost":
                environment |= {"FEDKERN_FOLDER": str(self.parties / "server")}
            else:
                socket = self.work / "sockets" / f"{name}.sock"
                socket.parent.mkdir(mode=0o711 if self.user else 0o700, exist_ok=True)
                environment |= {"FEDKERN_SOCKET": str(socket)}
                if name not in self.residents or self.residents[name].poll() is not None:
                    words = ["site", "run", str(self.parties / name), "--engine", "nvflare", "--socket", str(socket)]
                    words += ["--peer", self.user] if self.user else []
                    command = [sys.executable, "-P", "-m", "fedkern.cli", *words]  # which imports fedkern as others do
                    self.residents[name] = subprocess.Popen(command, env=self.environment | more, **streams)
            command = ["bash", str(self.kits / name / "startup" / "sub_start.sh"), "--once"]
            if self.user and name != "localhost":
                command = ["runuser", "-u", self.user, "--", "env", f"PATH={self.environment['PATH']}", *command]
                self.give(name, socket)
            self.running[name] = subprocess.Popen(command, env=environment, **streams)

    def give(self, name: str, socket: Path) -> None:
        """Gives a site's kit and socket to the client's user, and shuts that user out of the site's own folder."""
        until = time.monotonic() + 60
        while not socket.exists() and time.monotonic() < until:
            time.sleep(0.05)
        socket.parent.chmod(0o711)
        (self.parties / name).chmod(0o700)
        for path in (socket, self.kits / name, *(self.kits / name).rglob("*")):
            shutil.chown(path, self.user)

    def signal(self, name: str, number: int) -> None:
        """Sends a signal to all processes of a party: its resident, and those that name its kit."""
        if name in self.residents:
            self.residents[name].send_signal(number)
            if number == signal.SIGKILL:
                self.residents[name].wait()
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"{self.kits / name}".encode() in (folder / "cmdline").read_bytes() and int(folder.name) != os.getpid():
                    os.kill(int(folder.name), number)

    def submit(self, folder: Path) -> str:
        """Submits a job and returns its number."""
        said = self.tell("--format", "json", "job", "submit", "-j", str(folder), "--startup-kit", str(self.kits / PERSON))
        try:
            return str(json.loads(said.stdout)["data"]["job_id"])
        except (ValueError, KeyError):
            raise SystemExit(said.stdout + said.stderr) from None

    def wait(self, job: str, seconds: float) -> str:
        """Waits for a job's end and returns its status."""
        words = ["job", "wait", job, "--timeout", f"{seconds:.0f}", "--interval", "1", "--startup-kit", str(self.kits / PERSON)]
        said = self.tell("--format", "json", *words)
        try:
            return str(json.loads(said.stdout)["data"].get("status"))
        except (ValueError, KeyError, TypeError):
            return f"{said.stdout}{said.stderr}"

    def finished(self, times: int, seconds: float) -> bool:
        """Waits until the server's part of so many jobs has ended: the engine itself waits longer for a site that is gone."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if (self.work / "localhost.log").read_text(errors="replace").count("Server runner finished") >= times:
                return True
            time.sleep(0.2)
        return False

    def words(self, name: str) -> list[str]:
        """Returns what fedkern has said at a party."""
        lines = (self.work / f"{name}.log").read_text(errors="replace").splitlines()
        said = ("fedkern has ended", "not tried")
        return [line for line in lines if line.startswith(("fedkern: ", "asked ada")) or any(words in line for words in said)]

    def ready(self, seconds: float = 60.0, without: str = "") -> None:
        """Waits until the server answers, and has all sites but one."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            said = self.tell("--format", "json", "system", "status", "--startup-kit", str(self.kits / PERSON))
            if all(f'"{site}"' in said.stdout for site in self.sites if site != without):
                return
            time.sleep(0.5)
        raise SystemExit(f"not all have come: {said.stdout} {said.stderr}")

    def ended(self, name: str, seconds: float = 30.0) -> float | None:
        """Returns the seconds until a party's process has ended, or None."""
        since = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.running[name].wait(seconds)
            return round(time.monotonic() - since, 1)
        return None

    def close(self) -> None:
        """Ends all processes."""
        for name in self.running:
            self.signal(name, signal.SIGKILL)


def inside(others: bool) -> None:
    """Goes on in a network namespace of its own, which has only a loopback; with other users only root can make one."""
    if os.environ.get("FEDKERN_LOOPBACK") != "1":
        os.environ["FEDKERN_LOOPBACK"] = "1"
        os.execvp("unshare", ["unshare", "-n" if others else "-rn", sys.executable, *sys.argv])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def progress(federation: Federation, site: str, lines: int, seconds: float = 120.0) -> None:
    """Waits until a site has sent so many messages in its latest run."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for path in sorted((federation.parties / site / "runs").glob(f"*/ledger/{site}.jsonl"), reverse=True):
            if path.read_bytes().count(b"\n") >= lines:
                return
        time.sleep(0.05)
    raise SystemExit(f"{site} has not come so far")


def expire(federation: Federation, site: str) -> None:
    """Signs a site's certificate once more, with an end that has passed."""
    program = """
import sys, datetime
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
ca, at = sys.argv[1:]
old = x509.load_pem_x509_certificate(open(at, "rb").read())
key = serialization.load_pem_private_key(open(ca + "/rootCA.key", "rb").read(), None)
now = datetime.datetime.now(datetime.timezone.utc)
new = x509.CertificateBuilder(old.issuer, old.subject, old.public_key(), x509.random_serial_number())
new = new.not_valid_before(now - datetime.timedelta(9)).not_valid_after(now - datetime.timedelta(1))
for one in old.extensions:
    new = new.add_extension(one.value, one.critical)
open(at, "wb").write(new.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
"""
    path = federation.kits / site / "startup" / "client.crt"
    subprocess.run([str(federation.bin / "python3"), "-c", program, str(federation.work / "ca"), str(path)], check=True)


def by_another_authority(federation: Federation, name: str) -> Path:
    """Lets another authority sign the key that a party has; returns the folder with the certificate."""
    federation.tell("cert", "init", "--profile", "project.yaml", "-o", "other")
    request = f"request-{name}/{name}.request.zip"
    federation.tell("cert", "approve", request, "-c", "other", "--profile", "project.yaml", "--out", "other.signed.zip")
    federation.tell("package", "other.signed.zip", "--request-dir", f"request-{name}", "-w", "others", "--force", "--fingerprint",
                    json.loads((federation.work / "other" / "ca.json").read_text())["rootCA_fingerprint"])  # fmt: skip
    return federation.work / "others" / "heart" / "prod_00" / name / "startup"


def stranger(federation: Federation, site: str) -> None:
    """Gives a site a certificate of its name that another authority has signed."""
    shutil.copy(by_another_authority(federation, site) / "client.crt", federation.kits / site / "startup" / "client.crt")


class Between:
    """Stands between a site and the server, in whose place the site finds it: a proxy, which ends the site's TLS, begins its own
    with the server, and reads what passes.

    Parameters
    ----------
    federation : whose site goes to the proxy, as if its names were answered by somebody else
    site : that site
    shown : the folder of the certificate and key that the proxy shows to it; their names begin with "server" or "client"

    Attributes
    ----------
    calls, believed : how often the site has called, and how often it has taken the proxy for the server
    heard : bytes that it has said then
    """

    PORT = 8014

    def __init__(self, federation: Federation, site: str, shown: Path) -> None:
        self.calls = self.believed = self.heard = 0
        path = federation.kits / site / "startup" / "fed_client.json"
        path.write_text(path.read_text().replace("localhost:8002", f"localhost:{self.PORT}"))
        kind = "server" if (shown / "server.crt").exists() else "client"
        self.shows = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.shows.load_cert_chain(shown / f"{kind}.crt", shown / f"{kind}.key")
        self.shows.set_alpn_protocols(["h2"])
        own = federation.kits / "cy" / "startup"  # one that the server lets in
        self.calling = ssl.create_default_context(cafile=str(own / "rootCA.pem"))
        self.calling.load_cert_chain(own / "client.crt", own / "client.key")
        self.calling.set_alpn_protocols(["h2"])
        gate = socket.create_server(("", self.PORT))
        threading.Thread(target=self._listen, args=[gate], daemon=True).start()

    def _listen(self, gate: socket.socket) -> None:
        while True:
            line, _ = gate.accept()
            self.calls += 1
            threading.Thread(target=self._pass_on, args=[line], daemon=True).start()

    def _pass_on(self, line: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the site has closed the line, as it should
            line.settimeout(30.0)
            site = self.shows.wrap_socket(line, server_side=True)
            # This end is content before the other has looked at the certificate, and at the name in it.
            if not (first := site.recv(1 << 16)):
                return
            self.believed += 1
            server = self.calling.wrap_socket(socket.create_connection(("localhost", 8002)), server_hostname="localhost")
            threading.Thread(target=self._copy, args=[server, site], daemon=True).start()
            self.heard += len(first)
            server.sendall(first)
            self._copy(site, server, count=True)

    def _copy(self, source: ssl.SSLSocket, to: ssl.SSLSocket, count: bool = False) -> None:
        with contextlib.suppress(OSError):
            while part := source.recv(1 << 16):
                self.heard += len(part) if count else 0
                to.sendall(part)


def borrow(federation: Federation, site: str, of: str) -> None:
    """Lets a site say that it is another one, with its own certificate."""
    path = federation.kits / site / "startup" / "sub_start.sh"
    path.write_text(path.read_text().replace(f"uid={site} ", f"uid={of} "))


def patched(federation: Federation, module: str, line: str) -> str:
    """Returns a PYTHONPATH with which a module has one more line, as another version of it would."""
    folder = federation.work / f"patched-{module.replace('.', '-')}"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(f"""
import sys, importlib.abc, importlib.util
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != {module!r}:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module
        def patched(module):
            run(module)
            exec({line!r}, module.__dict__)
        spec.loader.exec_module = patched
        return spec
sys.meta_path.insert(0, Finder())
""")
    return f"{folder}:{os.environ['PYTHONPATH']}"


# Another site asks in the server's name: what it gets back is printed.
ASKS = """
def also(self, event_type, fl_ctx, before=Site.handle_event):
    before(self, event_type, fl_ctx)
    if event_type == EventType.START_RUN:
        engine = fl_ctx.get_engine()
        def ask():
            import time
            from fedkern.transports.relay import Letter
            for _ in range(8):
                time.sleep(0.5)
                with engine.new_context() as context:
                    request = Shareable({FIELD: Letter(0, b"j" * 16, 1, []).pack()})
                    came = engine.send_aux_request(["ada"], TOPIC, request, 2.0, context) or {}
                print("asked ada:", came.get("ada", {}).get_return_code(), came.get("ada", {}).get(FIELD), flush=True)
        threading.Thread(target=ask, daemon=True).start()
Site.handle_event = also
"""
# A question, or an answer, of more bytes than the job's schema has; more than a request may have at all.
LONG = """
def long(self, rank, tag, data=b"", before=HubLink.send):
    before(self, rank, tag, bytes(data) + bytes({bytes}) if tag == tags.FRAME and self.run >= 2 and rank == 2 else data)
HubLink.send = long
"""
LONG_REPLY = """
def long(self, rank, tag, data=b"", before=SpokeLink.send):
    before(self, rank, tag, bytes(data) + bytes({bytes}) if tag == tags.FRAME and self.run >= 2 else data)
SpokeLink.send = long
"""
FAULTS = {
    "none": "",
    "killed-site": "all processes of a site are killed; it starts again, and the job is submitted with --resume",
    "stopped-site": "all processes of a site stand still for 10 s, less than job.deadline",
    "silent-site": "all processes of a site stand still for longer than job.deadline; then the job goes on with --resume",
    "server-restart": "all processes of the server are killed; it starts again, and the job is submitted with --resume",
    "stranger": "a site's certificate is another authority's",
    "borrowed-name": "a site says that it is another one, with its own certificate",
    "expired-certificate": "a site's certificate has ended yesterday",
    "other-job": "a site has accepted another job",
    "other-version": "a site has another version of fedkern",
    "other-engine": "a site has an engine of a version that was not tried",
    "other-site-asks": "a site asks another one in the server's name",
    "other-key": "a site was told another fingerprint of another site's key, and the job has secure sums (--sign)",
    "impostor": "between a site and the server stands a proxy with a certificate of the server's name from another authority",
    "impostor-site": "between a site and the server stands a proxy with another site's certificate",
    "impostor-server": "between a site and the server stands a proxy with the server's own key: what a thief of it would see",
    "long-question": "the server asks a site with 4 MB more than the job's questions have",
    "long-reply": "a site answers with 4 MB more than the job's answers have",
    "huge-question": "the server asks a site with 300 MB, more than any request may have",
    "huge-reply": "a site answers with 300 MB, more than any reply may have",
    "aborted": "the coordinator aborts the job, and later goes on with --resume",
}
SITE = "bo"
BY_SERVER = ("long-question", "huge-question")  # faults of the server's, and not of a site


def sign(federation: Federation, fault: str) -> None:
    """Lets each site sign by a key of its own, as docs/how-to/site.md says."""

    def fedkern(*words: str) -> str:
        command = [sys.executable, "-P", "-m", "fedkern", "site", *words]
        return subprocess.run(command, text=True, check=True, capture_output=True).stdout

    told = {}
    for site in federation.sites:
        folder = federation.parties / site
        with (folder / "site.toml").open("a") as file:
            file.write('signing_key = "site.key"\n')
        subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", str(folder / "site.key")], check=True)
        told[site] = fedkern("fingerprint", str(folder)).strip()
    for site in federation.sites:
        known = {name: own for name, own in told.items() if name != site}
        if fault == "other-key" and site == SITE:
            known["ada"] = "SHA256:" + ":".join(reversed(known["ada"].removeprefix("SHA256:").split(":")))
        peers = [word for name, own in known.items() for word in ("--peer-key", f"{name}={own}")]
        fedkern("accept", str(federation.parties / site / "job.toml"), "--yes", *peers)


def prepare(federation: Federation, fault: str) -> dict[str, str]:
    """Makes what is wrong before anything starts; returns what is other in that site's environment."""
    if fault == "stranger":
        stranger(federation, SITE)
    if fault == "borrowed-name":
        borrow(federation, SITE, "ada")
    if fault == "expired-certificate":
        expire(federation, SITE)
    if fault == "other-job":
        path = federation.parties / SITE / "consent.toml"
        path.write_text(re.sub('digest = "[0-9a-f]{8}', 'digest = "00000000', path.read_text()))
    lines = {
        "other-version": ("fedkern", "__version__ = '0.0.9'"),
        "other-engine": ("nvflare", "__version__ = '2.10.0'"),
        "other-site-asks": ("fedkern.bridges.nvflare", ASKS),
        "long-question": ("fedkern.transports.relay_hub", LONG.format(bytes=4 << 20)),
        "huge-question": ("fedkern.transports.relay_hub", LONG.format(bytes=300 << 20)),
        "long-reply": ("fedkern.transports.relay_spoke", LONG_REPLY.format(bytes=4 << 20)),
        "huge-reply": ("fedkern.transports.relay_spoke", LONG_REPLY.format(bytes=300 << 20)),
    }
    return {"PYTHONPATH": patched(federation, *lines[fault])} if fault in lines else {}


def run(federation: Federation, folder: Path, fault: str) -> dict[str, object]:
    """Runs one job with one thing that goes wrong; returns what came of it."""
    more, said = prepare(federation, fault), dict[str, object](fault=fault)
    shown = {
        "impostor": lambda: by_another_authority(federation, "localhost"),
        "impostor-site": lambda: federation.kits / "cy" / "startup",
        "impostor-server": lambda: federation.kits / "localhost" / "startup",
    }
    between = Between(federation, SITE, shown[fault]()) if fault in shown else None
    since = time.monotonic()
    for name in ("localhost", *federation.sites):
        federation.start(name, **(more if name == ("localhost" if fault in BY_SERVER else SITE) else {}))
    absent = between is not None or fault in ("stranger", "borrowed-name", "expired-certificate")
    federation.ready(without=SITE if absent else "", seconds=60.0)
    said["start"] = round(time.monotonic() - since, 1)
    since = time.monotonic()
    job = federation.submit(folder)
    if fault in ("killed-site", "stopped-site", "silent-site", "server-restart", "aborted"):
        progress(federation, SITE, 20)
    if fault == "killed-site":
        federation.signal(SITE, signal.SIGKILL)
    if fault == "server-restart":
        federation.signal("localhost", signal.SIGKILL)
    if fault in ("stopped-site", "silent-site"):
        federation.signal(SITE, signal.SIGSTOP)
    if fault == "stopped-site":
        time.sleep(10)
        federation.signal(SITE, signal.SIGCONT)
    if fault == "aborted":
        federation.tell("job", "abort", job, "--force", "--startup-kit", str(federation.kits / PERSON))
    if fault == "server-restart":
        time.sleep(1)
        federation.start("localhost")
        federation.ready()
    said["ended"] = fault != "server-restart" and federation.finished(1, 20 if absent else 150)
    said["seconds"] = round(time.monotonic() - since, 1)
    if fault == "silent-site":
        federation.signal(SITE, signal.SIGCONT)
    if fault == "killed-site":
        federation.start(SITE)
    said["status"] = federation.wait(job, 5 if absent or fault == "server-restart" else 60)
    if fault in ("killed-site", "silent-site", "server-restart", "aborted"):
        time.sleep(5)
        federation.ready()
        again = federation.work / "again"
        shutil.copytree(folder, again)
        path = again / "app" / "config" / "config_fed_server.json"
        path.write_text(path.read_text().replace('"resume": false', '"resume": true'))
        said["again"] = federation.wait(federation.submit(again), 150)
    if fault == "none":
        federation.tell("job", "download", job, "-o", "download", "--startup-kit", str(federation.kits / PERSON))
        said["downloaded"] = sorted({path.name for path in (federation.work / "download").rglob("results/*")})
        federation.running[SITE].terminate()  # as systemd does
        said["ended by TERM after"] = federation.ended(SITE)
    runs = sorted((federation.parties / "server" / "runs").glob("*/summary.json"))
    said["server"], said[SITE] = (federation.words(name)[-4:] for name in ("localhost", SITE))
    said["digests"] = [json.loads(path.read_text())["digest"] for path in runs]
    said |= figures((federation.work / "localhost.log").read_text(errors="replace"))
    if between is not None:
        said["calls"], said["believed"], said["heard"] = between.calls, between.believed, between.heard
    return said


def figures(log: str) -> dict[str, object]:
    """Returns, of the server's log, the requests to each site of each job, and the seconds from fedkern's start to its result."""
    at = re.compile(r"^([\d-]+ [\d:]+),(\d+) .*(the server's job file is|requests with a reply: (\{.*?\}))", re.MULTILINE)
    counts, seconds, since = list[str](), list[float](), 0.0
    for day, thousandths, _, count in at.findall(log):
        now = datetime.fromisoformat(day).timestamp() + int(thousandths) / 1e3
        if count:
            counts, seconds = [*counts, count], [*seconds, round(now - since, 1)]
        since = now
    return {"requests": counts, "seconds of fedkern": seconds}


def run_in_turn(federation: Federation, folders: list[Path], seconds: float = 300.0) -> list[dict[str, object]]:
    """Runs jobs one after another; returns what came of each, and what its server has said."""
    for name in ("localhost", *federation.sites):
        federation.start(name)
    federation.ready()
    ended = list[dict[str, object]]()
    log = federation.work / "localhost.log"
    for number, folder in enumerate(folders, 1):
        since, before = time.monotonic(), log.stat().st_size
        job = federation.submit(folder)
        ends = federation.finished(number, seconds)
        seconds_of = round(time.monotonic() - since, 1)
        status = federation.wait(job, 60)
        words = [line for line in log.read_text(errors="replace")[before:].splitlines() if line.startswith("fedkern: ")]
        seen = {"job": folder.name, "ended": ends, "status": status, "seconds": seconds_of}
        ended.append({**seen, "server": words[-4:], **figures(log.read_text(errors="replace")[before:])})
    return ended


def main() -> None:
    """Runs jobs, and prints what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", type=Path, required=True, help="the Python of the engine's environment")
    parser.add_argument("--parties", type=Path, required=True)
    parser.add_argument("--job", type=Path, nargs="+", required=True, help="what `fedkern bridge nvflare` has written")
    parser.add_argument("--out", type=Path, required=True, help="a new folder, for kits and logs")
    parser.add_argument("--fault", choices=FAULTS, default="none", help="; ".join(f"{k}: {v}" for k, v in FAULTS.items() if v))
    parser.add_argument("--sign", action="store_true", help="sites sign their keys of secure sums")
    parser.add_argument("--in-turn", action="store_true", help="a list of what came of the jobs, of one job, too")
    parser.add_argument("--client-user", default="", metavar="NAME", help="another user, whose the sites' clients are")
    options = parser.parse_args()
    inside(bool(options.client_user))
    federation = Federation(options.engine, options.parties.absolute(), options.out.absolute(), options.client_user)
    federation.make()
    if options.sign:
        sign(federation, options.fault)
    try:
        folders = [path.absolute() for path in options.job]
        alone = len(folders) == 1 and not options.in_turn
        print(json.dumps(run(federation, folders[0], options.fault) if alone else run_in_turn(federation, folders)))
    finally:
        federation.close()


if __name__ == "__main__":
    main()
