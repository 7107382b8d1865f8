"""Measures a frame of fedkern over Flower, with TLS and registered keys, beside Flower's own empty message.

    FLOWER_BIN=.. PYTHONPATH=. python benchmarks/flower_frames.py [--sites 2] [--each 5] [--bytes 10000]

FLOWER_BIN is the folder of the engine's commands. Both kinds are sent to all sites by one ServerApp, in turns, and replies are
looked for in the same way, every half second; the third row is Flower's own `send_and_receive`. A frame goes through the app of
`fedkern bridge flower` to the Unix socket of a resident's process, which returns the bytes. CPU is of the SuperNodes' processes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fedkern.bridges.gate import listening
from fedkern.cli.__main__ import main as fedkern
from support.flower import Federation, write_key

APP = """
import json, os, time
from pathlib import Path
from flwr.app import Message, RecordDict
from flwr.serverapp import ServerApp
from fedkern.bridges.flower import FlowerWire

app = ServerApp()
ask = json.loads((Path(os.environ["FEDKERN_FOLDER"]) / "ask.json").read_text())

def cpu():
    ticks, parents = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)], ticks[int(path.parent.name)] = int(text[1]), sum(map(int, text[11:15]))
    total = 0
    for pid in ticks:
        above = pid
        while above > 1 and above not in ask["pids"]:
            above = parents.get(above, 0)
        total += ticks[pid] if above > 1 else 0
    return total / os.sysconf("SC_CLK_TCK")

@app.main()
def main(grid, context):
    wire, data = FlowerWire(grid), os.urandom(ask["bytes"])

    def frames():
        for site in ask["sites"]:
            wire.send(site, data)
        missing = set(ask["sites"])
        while missing:
            came = wire.receive(1.0)
            if came:
                assert came[1] == data
                missing.discard(came[0])

    def empty(own):
        messages = [Message(RecordDict(), dst_node_id=node, message_type="query.empty") for node in wire._nodes.values()]
        if own:
            return grid.send_and_receive(messages)
        asked = set(grid.push_messages(messages))
        while asked:
            time.sleep(wire.pause)
            asked -= {reply.metadata.reply_to_message_id for reply in grid.pull_messages(list(asked))}

    frames()
    ways = {"frame": frames, "empty": lambda: empty(False), "send_and_receive": lambda: empty(True)}
    took = {name: [] for name in ways}
    for _ in range(ask["each"]):
        for name, way in ways.items():
            before, start = cpu(), time.monotonic()
            way()
            took[name].append((time.monotonic() - start, cpu() - before))
    Path(os.environ["FEDKERN_FOLDER"], "took.json").write_text(json.dumps(took))
"""
EMPTY = """

@app.query("empty")
def empty(message, context):
    return Message(RecordDict(), reply_to=message)
"""


def reside(path: Path) -> None:
    """Returns every request's bytes behind a socket, until the process is ended."""
    with listening(path, lambda request, user: request):
        threading.Event().wait()


def main() -> None:
    """Starts the engine, measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, default=2)
    parser.add_argument("--each", type=int, default=5, help="of each kind")
    parser.add_argument("--bytes", type=int, default=10_000, help="of a frame")
    parser.add_argument("--resident", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.resident:
        reside(options.resident)
    sites = [f"site-{k}" for k in range(options.sites)]
    with tempfile.TemporaryDirectory() as name, Federation(Path(name) / "flower", {"FEDKERN_FOLDER": name}) as federation:
        folder, app = Path(name), Path(name) / "app"
        (folder / "job.toml").write_text('[job]\nmethod = "likelihood"\n[data]\nclients = ["a.csv", "b.csv"]\nresponse = "y"\n')
        fedkern(["bridge", "flower", str(folder / "job.toml"), "--out", str(app)])
        (app / "server_app.py").write_text(APP)
        (app / "client_app.py").write_text((app / "client_app.py").read_text() + EMPTY)
        federation.start_link()
        for site in sites:
            gate = folder / f"gate-{site}" / "site.sock"
            federation.start(f"resident-{site}", [sys.executable, __file__, "--resident", gate], dict(os.environ))
            write_key(folder / site)
            federation.register(site, folder / site)
            federation.start_node(site, folder / site, f'socket="{gate}"')
        ask = {
            "sites": sites,
            "each": options.each,
            "bytes": options.bytes,
            "pids": [node.pid for node in federation.nodes.values()],
        }
        (folder / "ask.json").write_text(json.dumps(ask))
        said = federation.flwr("run", app, "link", "--stream", timeout=3600)
        if not (folder / "took.json").exists():
            sys.exit(said)
        took = json.loads((folder / "took.json").read_text())
    print(f"{options.sites} sites, {options.bytes} bytes, medians of {options.each}; load {os.getloadavg()[0]:.1f}")
    print(f"{'':18} {'seconds':>8} {'CPU of a site':>14}")
    for way, pairs in took.items():
        seconds, cpu = (statistics.median(column) for column in zip(*pairs))
        print(f"{way:18} {seconds:8.1f} {cpu / options.sites:14.2f}")


if __name__ == "__main__":
    main()
