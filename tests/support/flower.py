"""A Flower federation on the loopback: a SuperLink with TLS, and SuperNodes with registered keys.

The engine stands in an environment of its own. FLOWER_BIN is the folder of its commands; by default that of this interpreter.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

BIN = Path(os.environ.get("FLOWER_BIN", Path(sys.executable).parent))
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",  # seconds between two looks for a process to start; by itself 1
    "OMP_NUM_THREADS": "1",
}
SIMULATED = ("--insecure", "--simulation")


def is_there() -> bool:
    """Tells whether the engine's commands are there."""
    return (BIN / "flower-superlink").exists()


def free_port() -> int:
    """Returns a port on which nobody listens."""
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return int(line.getsockname()[1])


def write_key(path: Path) -> None:
    """Writes a SuperNode's key pair, as `ssh-keygen -t ecdsa -b 384` does."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1())
    kinds = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    path.write_bytes(key.private_bytes(*kinds))
    ssh = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    path.with_suffix(".pub").write_bytes(key.public_key().public_bytes(*ssh))


def write_certificate(folder: Path) -> None:
    """Writes ca.crt, and server.crt and server.key for 127.0.0.1, which it has signed."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    authority, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")]), datetime.datetime.now(datetime.UTC)

    def made(name: x509.Name, key: ec.EllipticCurvePrivateKey, *extensions: tuple[x509.ExtensionType, bool]) -> bytes:
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(issuer).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
        builder = builder.not_valid_after(now + datetime.timedelta(days=30))
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    basic = x509.BasicConstraints(ca=True, path_length=None)
    (folder / "ca.crt").write_bytes(made(issuer, authority, (basic, True), (usage, True)))
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    (folder / "server.crt").write_bytes(made(subject, server, (address, False)))
    kinds = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "server.key").write_bytes(server.private_bytes(*kinds))


class Federation(ExitStack):
    """Runs the engine's processes; leaving it ends them.

    Parameters
    ----------
    folder : of certificates, keys, logs and the engine's own files
    environment : of the ServerApp, beside this process's
    """

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        super().__init__()
        self.folder, self.port = folder, free_port()
        self.server = {**os.environ, **QUIET, **environment, "FLWR_HOME": str(folder / "home-server")}
        self.server["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        self.node_ports: dict[str, int] = {}
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "home-server").mkdir(parents=True)

    def start(self, name: str, command: list[str | Path], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        """Starts a process with its own session, which ends with the federation."""
        log = self.enter_context((self.folder / f"{name}.log").open("ab"))
        process = subprocess.Popen(list(map(str, command)), env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.callback(end, process)
        return process

    def start_link(self, simulated: bool = False) -> subprocess.Popen[bytes]:
        """Starts the SuperLink, and waits until it listens."""
        address = f'[superlink]\ndefault = "link"\n\n[superlink.link]\naddress = "127.0.0.1:{self.port}"\n'
        options: list[str | Path] = list(SIMULATED)
        if simulated:
            address += "insecure = true\n"
        else:
            if not (self.folder / "ca.crt").exists():
                write_certificate(self.folder)
            address += f'root-certificates = "{self.folder / "ca.crt"}"\n'
            pairs = ("--ssl-ca-certfile", "ca.crt"), ("--ssl-certfile", "server.crt"), ("--ssl-keyfile", "server.key")
            options = [part for option, name in pairs for part in (option, self.folder / name)]
            options += ["--enable-supernode-auth", "--database", self.folder / "link.db"]
        (self.folder / "home-server" / "config.toml").write_text(address)
        command = [BIN / "flower-superlink", *options, "--disable-runtime-dependency-installation", "--port", str(self.port)]
        process = self.start("link", command, self.server)
        wait(lambda: listens(self.port), "the SuperLink does not listen")
        return process

    def register(self, name: str, key: Path) -> str:
        """Registers a SuperNode's public key under a site's name; returns what the command says."""
        return self.flwr("supernode", "register", key.with_suffix(".pub"), "link", "--name", name, timeout=120)

    def start_node(self, name: str, key: Path, config: str) -> subprocess.Popen[bytes]:
        """Starts a SuperNode, in an environment that knows nothing of fedkern."""
        home = self.folder / f"home-{name}"
        home.mkdir(exist_ok=True)
        node = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "FEDKERN_FOLDER")}
        node |= QUIET | {"FLWR_HOME": str(home), "PATH": self.server["PATH"]}
        command: list[str | Path] = [BIN / "flower-supernode", "--superlink", f"127.0.0.1:{self.port}"]
        command += ["--root-certificates", self.folder / "ca.crt", "--auth-supernode-private-key", key]
        command += ["--node-config", config, "--port", str(self.node_ports.setdefault(name, free_port()))]
        self.nodes[name] = self.start(f"node-{name}", command, node)
        return self.nodes[name]

    def flwr(self, *arguments: str | Path, timeout: float = 600.0) -> str:
        """Runs `flwr`; returns all that it prints."""
        command = [str(BIN / "flwr"), *map(str, arguments)]
        done = subprocess.run(
            command, env=self.server, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, check=False
        )
        return done.stdout.decode(errors="replace")


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process, gently at first."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(15)
        return
    process.kill()
    process.wait()


def listens(port: int) -> bool:
    """Tells whether somebody listens on a port."""
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


def wait(ready, why: str, seconds: float = 120.0) -> None:
    """Waits until something is so."""
    until = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > until:
            raise TimeoutError(why)
        time.sleep(0.3)
