"""The resident behind a Unix socket: this user's alone, sizes limited, and a clean end by SIGTERM."""

import contextlib
import errno
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedkern.algorithms.core.messages import RemoteFault
from fedkern.bridges import gate
from fedkern.bridges.digest import digest_of
from fedkern.bridges.gate import LENGTH, ask, listening, one_resident
from fedkern.bridges.saying import tell_manager
from fedkern.cli.__main__ import main, parser
from fedkern.cli.site import run_resident
from fedkern.errors import JobError
from fedkern.methods import load
from fedkern.transports import tags
from fedkern.transports.driver import Signals
from fedkern.transports.relay import Letter
from fedkern.transports.relay_letters import MOST_ITEMS, REFUSED, WAITING
from support.organisations import audit, found, residents


@pytest.fixture
def path(tmp_path):
    return tmp_path / "socket" / "site.sock"


def test_requests_get_their_replies_and_the_socket_is_its_owners_alone(path):
    with listening(path, lambda request, user: request[::-1]):
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert ask(path, b"abc") == b"cba"
        assert ask(path, b"") == b""
        assert ask(path, bytes(3_000_000)) == bytes(3_000_000)
        with socket.socket(socket.AF_UNIX) as line:  # a connection may stay
            line.connect(str(path))
            for text in (b"one", b"two"):
                line.sendall(LENGTH.pack(3) + text)
                assert line.recv(100) == LENGTH.pack(3) + text[::-1]
    assert not path.exists()
    with pytest.raises(OSError, match="No such file"):
        ask(path, b"abc")


def client_of_flower(monkeypatch):
    """The ClientApp's module, without Flower: it has a frame of its own, as it must not import fedkern."""
    app = SimpleNamespace(query=lambda *names: lambda answer: answer)
    names = ("ConfigRecord", "Context", "Message", "RecordDict")
    monkeypatch.setitem(sys.modules, "flwr", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "flwr.app", SimpleNamespace(**dict.fromkeys(names)))
    monkeypatch.setitem(sys.modules, "flwr.clientapp", SimpleNamespace(ClientApp=lambda: app))
    spec = importlib.util.spec_from_file_location("client_of_flower", Path(gate.__file__).with_name("flower_client.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_frame_of_flowers_client_is_the_residents(path, monkeypatch):
    client = client_of_flower(monkeypatch)
    assert (client.LENGTH.format, client.LENGTH.size) == (LENGTH.format, LENGTH.size)
    with listening(path, lambda request, user: request[::-1]):
        for request in (b"", b"abc", bytes(range(256)) * 8000):
            assert client.ask(path, request) == ask(path, request) == request[::-1]
    # And byte by byte what it sends.
    sent = []
    for one in (client.ask, ask):
        with socket.socket(socket.AF_UNIX) as gate_of_both:
            path.unlink(missing_ok=True)
            gate_of_both.bind(str(path))
            gate_of_both.listen(1)
            asking = threading.Thread(target=one, args=(path, b"abc"), daemon=True)
            asking.start()
            line, _ = gate_of_both.accept()
            with line:
                line.settimeout(10.0)
                sent.append(line.recv(11, socket.MSG_WAITALL))
                line.sendall(LENGTH.pack(0))
            asking.join(10.0)
    assert sent == [LENGTH.pack(3) + b"abc"] * 2


def test_what_is_too_long_or_cut_short_reaches_nobody(path):
    asked = []
    with listening(path, lambda request, user: asked.append(request) or b""):
        for data in (LENGTH.pack(1 << 60) + b"x", LENGTH.pack(10) + b"x", b"x", b""):
            with socket.socket(socket.AF_UNIX) as line:
                line.settimeout(10.0)
                line.connect(str(path))
                line.sendall(data)
                line.shutdown(socket.SHUT_WR)
                with contextlib.suppress(ConnectionResetError):  # it was closed before all was read
                    assert line.recv(100) == b""
        assert ask(path, b"fine") == b""
    assert asked == [b"fine"]


def test_a_frame_that_does_not_end_is_given_up(path, monkeypatch):
    monkeypatch.setattr(gate, "PATIENCE", 0.1)
    with listening(path, lambda request, user: b""), socket.socket(socket.AF_UNIX) as line:
        line.settimeout(10.0)
        line.connect(str(path))
        line.sendall(LENGTH.pack(10) + b"x")
        assert line.recv(100) == b""


def test_more_connections_than_places_are_closed(path, monkeypatch):
    monkeypatch.setattr(gate, "MOST", 2)
    goes_on = threading.Event()
    with listening(path, lambda request, user: goes_on.wait(10.0) and b"late"):
        waiting = [threading.Thread(target=ask, args=(path, b"x")) for _ in range(2)]
        for thread in waiting:
            thread.start()
        time.sleep(0.2)
        with pytest.raises(OSError, match=r"without a reply|reset|Broken pipe"):
            ask(path, b"x")
        goes_on.set()
        for thread in waiting:
            thread.join(10.0)


def test_another_user_is_not_heard(path, monkeypatch):
    monkeypatch.setattr(gate, "_is_ours", lambda line: False)
    with listening(path, lambda request, user: b"told"), pytest.raises(OSError, match=r"without a reply|reset|Broken pipe"):
        ask(path, b"x")


def test_a_place_that_is_not_its_owners_alone_or_taken_is_refused(path, tmp_path):
    tmp_path.chmod(0o755)
    with pytest.raises(JobError, match=r"other users may enter it \(mode 755\); chmod 700"), listening(tmp_path / "s", bytes):
        pass
    with listening(path, bytes), pytest.raises(JobError, match="listens there already"), listening(path, bytes):
        pass
    path.write_text("")
    with pytest.raises(JobError, match="no socket"), listening(path, bytes):
        pass
    with pytest.raises(JobError, match="at most 100 bytes"), listening(path.parent / ("x" * 100), bytes):
        pass


@pytest.mark.parametrize("said", [errno.EACCES, errno.EAGAIN])
def test_a_resident_whose_socket_cannot_be_asked_is_not_replaced(path, monkeypatch, said):
    # EACCES: root has given its socket to the engine's user. EAGAIN: more wait there than it takes in.
    with listening(path, lambda request, user: b"the first"):
        with monkeypatch.context() as other:
            other.setattr(gate.socket.socket, "connect_ex", lambda self, where: said)
            with pytest.raises(JobError, match="listens there already; end it first"), listening(path, bytes):
                pass
        assert ask(path, b"") == b"the first"
        assert Path(f"{path}.lock").stat().st_mode & 0o777 == 0o600
    with listening(path, lambda request, user: b"the next"):
        assert ask(path, b"") == b"the next"


def test_a_socket_that_a_crash_has_left_is_taken(path):
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with listening(path, lambda request, user: b"anew"):
        assert ask(path, b"") == b"anew"


def test_the_resident_process_answers_and_ends_cleanly(tmp_path):
    found(tmp_path)
    site = tmp_path / "ada"
    path = site / "socket" / "site.sock"
    command = [sys.executable, "-P", "-m", "fedkern", "site", "run", str(site), "--identity", "hub", "--grace", "0.5"]
    resident = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 60.0
        while not (site / "audit.jsonl").exists() and time.monotonic() < until and resident.poll() is None:
            time.sleep(0.05)
        assert Letter.unpack(ask(path, Letter(WAITING, b"j" * 16, 1, [], b"x" * 32).pack())).state == REFUSED
        begun = Letter.unpack(ask(path, Letter(WAITING, b"k" * 16, 1, [], digest_of(load(site / "job.toml")[0])).pack()))
        assert [tag for tag, _ in begun.items] == [tags.GATHER]
        # It is told to end while a job runs that waits for its server, which never comes again.
        resident.send_signal(signal.SIGTERM)
        said = resident.communicate(timeout=60.0)[1]
    finally:
        resident.kill()
        resident.wait()
    assert resident.returncode == 0, said
    assert "SIGTERM: the resident ends" in said
    assert "Traceback" not in said
    assert not os.path.lexists(path)
    log = audit(tmp_path, "ada")
    assert [line["event"] for line in log] == ["opened", "refused", "started", "ended", "closed"]
    assert log[2]["identity"] == "hub"


def test_a_folder_has_one_resident_whatever_its_socket(tmp_path, capsys):
    found(tmp_path)
    site = tmp_path / "ada"
    command = [sys.executable, "-P", "-m", "fedkern", "site", "run", str(site), "--grace", "0.5"]
    first = subprocess.Popen([*command, "--socket", str(tmp_path / "one" / "s")], stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 60.0
        while not (site / "audit.jsonl").exists() and time.monotonic() < until and first.poll() is None:
            time.sleep(0.05)
        assert main(["site", "run", str(site), "--socket", str(tmp_path / "two" / "s")]) == JobError.exit_code
        said = capsys.readouterr().err
        assert (
            f"{site}: a resident runs here already (process {first.pid}, socket {tmp_path / 'one' / 's'}); end it first" in said
        )
        assert not (tmp_path / "two" / "s").exists()
        first.kill()  # which leaves the file, and no lock
        first.wait()
        with one_resident(site, tmp_path / "two" / "s"):
            assert (site / ".resident.lock").stat().st_mode & 0o777 == 0o600
    finally:
        first.kill()
        first.communicate()
    assert [line["event"] for line in audit(tmp_path, "ada")] == ["opened"]


@pytest.mark.parametrize("abstract", [False, True])
def test_the_resident_tells_its_manager_when_it_listens_and_when_it_ends(tmp_path, monkeypatch, abstract):
    """systemd's Type=notify: who has started the unit finds the socket."""
    found(tmp_path)
    site, name = tmp_path / "ada", f"@fedkern-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name[1:] if abstract else name)
        manager.settimeout(30.0)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        signals, told = Signals(), []

        def wait():
            told.append((manager.recv(100), (site / "socket" / "site.sock").exists()))
            signals.pending = "SIGTERM"

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        options = parser().parse_args(["site", "run", str(site)])
        options.signals = signals
        assert run_resident(options) == 0
        waiting.join(30.0)
        assert told == [(b"READY=1", True)]
        assert manager.recv(100) == b"STOPPING=1"
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    tell_manager("READY=1")  # nobody hears it


UNIT = Path(__file__).parents[2] / "packaging" / "systemd" / "fedkern-site.service"
PEERS = {name: UNIT.with_name(f"{name}-peer.conf") for name in ("flower", "nvflare")}


def command_of(path):
    """The options of the last command that a unit starts."""
    *_, line = [line for line in path.read_text().splitlines() if line.startswith("ExecStart=")]
    return parser().parse_args(line.split()[1:])


def test_the_examples_of_units_start_commands_that_there_are():
    options = command_of(UNIT)
    assert (options.command, options.step, options.folder) == ("site", "run", "/var/lib/fedkern-site")
    assert options.peer is None
    assert {"TimeoutStopSec=60", "MemoryMax=4G"} <= {*UNIT.read_text().splitlines()}
    assert options.grace < 60
    # A list of commands is replaced, after which the peer gets the socket; in a user namespace its number would not be seen.
    for name, path in PEERS.items():
        assert vars(command_of(path)) == {**vars(options), "peer": name, "engine": name}
        assert "ExecStart=\nExecStart=/" in path.read_text()
        gives = f"ExecStartPost=+/bin/chown -h {name} /run/fedkern-site/site.sock"
        assert {gives, "PrivateUsers=no", "RuntimeDirectoryMode=0711"} <= {*path.read_text().splitlines()}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
@pytest.mark.parametrize("peer", [None, *PEERS])
def test_systemd_takes_the_examples_of_units(tmp_path, peer):
    for path, to in (
        (UNIT, tmp_path / UNIT.name),
        *([(PEERS[peer], tmp_path / f"{UNIT.name}.d" / PEERS[peer].name)] if peer else []),
    ):
        to.parent.mkdir(exist_ok=True)
        text = path.read_text().replace("/opt/fedkern/bin/fedkern", "/bin/true").replace("User=fedkern", "User=root")
        to.write_text(text.replace("Group=fedkern", "Group=root"))
    command = ["systemd-analyze", "verify", str(tmp_path / UNIT.name)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"}
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_one_other_user_is_heard_where_the_resident_names_it(path, monkeypatch):
    peer = 65534
    path.parent.mkdir(mode=0o755)
    with pytest.raises(JobError, match="chmod 711"), listening(path, bytes, peer):
        pass
    path.parent.chmod(0o711)  # others find the socket, and root gives it to one of them
    with listening(path, lambda request, user: request[::-1], peer):
        assert path.stat().st_mode & 0o777 == 0o600
        monkeypatch.setattr(gate, "_user", lambda line: peer)
        assert ask(path, b"abc") == b"cba"
        monkeypatch.setattr(gate, "_user", lambda line: 65533)
        with pytest.raises(OSError, match=r"without a reply|reset|Broken pipe"):
            ask(path, b"abc")
    monkeypatch.setattr(gate, "_user", lambda line: peer)
    path.parent.chmod(0o700)
    with listening(path, bytes), pytest.raises(OSError, match=r"without a reply|reset|Broken pipe"):
        ask(path, b"abc")


def test_a_peer_that_is_no_user_is_refused(tmp_path):
    assert main(["site", "run", str(tmp_path), "--peer", "nobody-of-this-name"]) == JobError.exit_code


class Heard:
    """A resident that notes what it is told."""

    def __init__(self):
        self.told = []

    def answer(self, request, who):
        self.told.append((who, request))
        return b"the reply"

    def end(self, why, run):
        self.told.append((why, run))


def test_a_door_says_who_asks_and_which_run_the_engine_has_ended(path):
    resident = Heard()
    letter = Letter(WAITING, b"r" * 16, 1, []).pack()
    with listening(path, gate.heeding(resident)):
        door = gate.Door(path, "eva\0@coordinator.org\x1b[2J" + "x" * 500)
        assert door.answer(letter) == b"the reply"
        assert ask(path, letter) == b"the reply"  # Flower's client does not say it
        door.end("the engine has ended its run")
    (who, request), usual, ended = resident.told
    assert request == letter
    assert who.startswith('"eva @coordinator.org')
    assert who.endswith(f"\", as the engine's client says (user {os.geteuid()})")
    assert "\x1b" not in who
    assert len(who) < 300
    assert usual == (f"user {os.geteuid()}", letter)
    assert ended == ("the engine has ended its run", b"r" * 16)
    with pytest.raises(OSError, match="No such file"):
        door.answer(letter)
    door.end("")  # nobody listens, and nobody needs to know


def test_the_longest_letter_passes_with_a_name_before_it(path, monkeypatch):
    monkeypatch.setattr(gate, "LONGEST", 1000)
    resident = Heard()
    with listening(path, gate.heeding(resident)):
        assert gate.Door(path, "å" * 500).answer(b"f" * 1000) == b"the reply"
        assert ask(path, b"f" * 3000) == b""  # and not a broken line: then it would be asked again


@pytest.mark.parametrize("length", [1 << 60, 3000])
def test_what_is_too_long_is_in_the_audit_log_and_the_job_ends_at_once(length, tmp_path, path, monkeypatch):
    monkeypatch.setattr(gate, "LONGEST", 1000)
    found(tmp_path)
    resident = residents(tmp_path)["ada"]
    with listening(path, gate.heeding(resident), None, resident.refuse), socket.socket(socket.AF_UNIX) as line:
        line.settimeout(10.0)
        line.connect(str(path))
        line.sendall(LENGTH.pack(length) + bytes(3000))
        with contextlib.suppress(ConnectionResetError):  # of what is not even taken off the line
            assert line.recv(100) == (LENGTH.pack(0) if length == 3000 else b"")
    refused = audit(tmp_path, "ada")[-1]
    assert refused["why"] == f"a message of {length} bytes, at most {gate._most()} expected"
    assert refused["identity"] == f"user {os.geteuid()}"


def test_a_reply_that_is_too_long_stays_here_and_is_in_the_audit_log(tmp_path, path, monkeypatch):
    monkeypatch.setattr(gate, "LONGEST", 1000)
    found(tmp_path)
    resident = residents(tmp_path)["ada"]
    with listening(path, lambda request, user: bytes(int(request)), None, resident.refuse):
        assert len(ask(path, b"1000")) == 1000
        assert ask(path, b"3000") == b""
    assert audit(tmp_path, "ada")[-1]["why"] == f"a reply of 3000 bytes, at most {gate._most()} expected"


def test_who_asks_hears_of_a_reply_that_announces_too_much(path):
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer():
            line, _ = listener.accept()
            with line:
                line.recv(100)
                line.sendall(LENGTH.pack(1 << 60))

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(gate.TooLong, match=f"a message of {1 << 60} bytes, at most"):
            ask(path, b"x")
        thread.join()


def test_an_ended_run_of_the_engine_ends_its_job_alone(tmp_path):
    found(tmp_path)
    resident = residents(tmp_path)["ada"]
    request = Letter(WAITING, b"k" * 16, 1, [], digest_of(load(tmp_path / "ada" / "job.toml")[0])).pack()
    resident.answer(request)
    resident.end("another", b"x" * 16, grace=0.1)
    assert not resident.join(0.0)
    resident.end("the engine has ended its run", b"k" * 16, grace=0.1)
    assert resident.join(5.0)
    assert audit(tmp_path, "ada")[-1]["exit"] == 3


def test_the_audit_log_has_the_user_of_the_socket_whoever_asks_at_the_same_time(tmp_path, path):
    """A name in one request is not the name of another."""
    found(tmp_path, accepted=())
    resident = residents(tmp_path)["ada"]
    over = threading.Event()

    def other():
        while not over.is_set():
            gate.Door(path, "mallory").answer(Letter(WAITING, b"m" * 16, 1, [], b"y" * 32).pack())

    with listening(path, gate.heeding(resident)):
        thread = threading.Thread(target=other)
        thread.start()
        for k in range(5):
            ask(path, Letter(WAITING, bytes([k]) * 16, 1, [], b"x" * 32).pack())
        over.set()
        thread.join()
    told = {line["run"]: line["identity"] for line in audit(tmp_path, "ada")}
    mallory = f'"mallory", as the engine\'s client says (user {os.geteuid()})'
    assert told.pop((b"m" * 16).hex()) == mallory
    assert len(told) == 5
    assert set(told.values()) == {f"user {os.geteuid()}"}


def test_a_frame_that_trickles_in_is_cut_off_in_time(path, monkeypatch):
    monkeypatch.setattr(gate, "PATIENCE", 0.5)
    with listening(path, lambda request, user: b""), socket.socket(socket.AF_UNIX) as line:
        line.connect(str(path))
        line.sendall(LENGTH.pack(100))
        began = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() < began + 20:
                line.sendall(b"x")
                time.sleep(0.1)
        assert time.monotonic() < began + 15


def test_a_letter_of_very_many_items_is_refused_before_they_are_read():
    letter = Letter(WAITING, b"r" * 16, 1, [(0, b"")] * (MOST_ITEMS + 1)).pack()
    with pytest.raises(RemoteFault, match="65537 items, at most 65536"):
        Letter.unpack(letter)


def test_until_a_job_has_begun_a_long_frame_is_refused_unread(tmp_path, path):
    """The engine's account may open several connections: it must not fill this machine's memory before anything is accepted."""
    found(tmp_path)
    ada = residents(tmp_path)["ada"]
    assert ada.longest == gate.LONGEST_FIRST
    asked = []
    refuse, heard = ada.refuse, lambda request, user: asked.append(request) or b""
    with listening(path, heard, refuse=refuse, longest=lambda: ada.longest):
        assert ask(path, bytes(gate._frame_of(gate.LONGEST_FIRST) + 1)) == b""
        assert not asked
        assert "bytes, at most" in audit(tmp_path, "ada")[-1]["why"]
        ask(path, bytes(gate.LONGEST_FIRST))
        assert len(asked) == 1
        ada._running = object()
        ask(path, bytes(gate.LONGEST_FIRST + 10_000))
        assert len(asked) == 2


def test_one_long_frame_is_in_memory_at_a_time(path, monkeypatch):
    monkeypatch.setattr(gate, "LONGEST_FIRST", 100)
    here, most, lock = [0], [0], threading.Lock()

    def answer(request, user):
        with lock:
            here[0] += 1
            most[0] = max(most[0], here[0])
        time.sleep(0.05)
        with lock:
            here[0] -= 1
        return b"told"

    long, told = bytes(gate._frame_of(100) + 1), []
    with listening(path, answer):
        threads = [threading.Thread(target=lambda: told.append(ask(path, long))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20.0)
    assert told == [b"told"] * 4
    assert most == [1]
