"""Times a frame of a job over NVFlare beside the engine's own message, empty and of the same bytes, by turns in one process.

A frame goes the whole way of a job's: hub, wire, engine, site, the socket of a resident, which is another process, and back. "no
socket" is the same with a resident in the engine's process. Nothing is computed. Medians of the wall clock, since a frame waits
for other processes. Call it with the Python of the engine's environment:

    PYTHONPATH=. /opt/nvflare/bin/python benchmarks/nvflare_frames.py
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import nvflare
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply

from fedkern.bridges.gate import Door, heeding, listening
from fedkern.bridges.nvflare import FIELD, TOPIC, asking
from fedkern.bridges.server import AskingWire
from fedkern.transports import tags
from fedkern.transports.relay_hub import HubLink
from fedkern.transports.relay_spoke import SpokeLink

EMPTY, HERE, SITE, TURNS, EACH = "empty", "here", "site", 20, 20
SIZES = (64, 10_000, 1_000_000)  # bytes


class Frames(Controller):  # type: ignore[misc]
    """Sends empty messages and frames by turns."""

    def start_controller(self, fl_ctx: Any) -> None:
        """Does nothing."""

    def stop_controller(self, fl_ctx: Any) -> None:
        """Does nothing."""

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        """Writes the medians where FRAMES says."""
        engine = fl_ctx.get_engine()

        def ask_here(site: str, data: bytes) -> bytes | None:
            with engine.new_context() as context:
                came = engine.send_aux_request([site], HERE, Shareable({FIELD: data}), 25.0, context, optional=True) or {}
            return came.get(site, {}).get(FIELD)

        wires = {"no socket": AskingWire(ask_here, [SITE]), "frame": AskingWire(asking(engine), [SITE])}
        links = {name: HubLink(wire, [SITE]) for name, wire in wires.items()}

        def empty() -> None:
            with engine.new_context() as context:
                engine.send_aux_request([SITE], EMPTY, Shareable(), 5.0, context)

        def same(data: bytes) -> None:
            with engine.new_context() as context:
                engine.send_aux_request([SITE], EMPTY, Shareable({FIELD: data}), 5.0, context)

        def frame(link: HubLink, data: bytes) -> None:
            link.send(1, tags.FRAME, data)
            while link.receive(1 << 24) is None:
                link.take(1.0)

        frames = {name: partial(frame, link) for name, link in links.items()}
        for call in frames.values():
            call(b"")  # until the site is there
        results = {}
        for size in SIZES:
            data, calls = bytes(size), {"empty": lambda _: empty(), "same": same, **frames}
            seconds: dict[str, list[float]] = {name: [] for name in calls}
            for _ in range(TURNS):
                for name, call in calls.items():
                    for _ in range(EACH):
                        since = time.perf_counter()
                        call(data)
                        seconds[name].append(time.perf_counter() - since)
            results[size] = {name: statistics.median(times) * 1e3 for name, times in seconds.items()}
        Path(os.environ["FRAMES"]).write_text(json.dumps(results))
        for name, link in links.items():
            link.abort(0)
            wires[name].close()


class Job:
    """Sends frames back from a thread, in the place of a resident."""

    def __init__(self) -> None:
        self.link = SpokeLink(1, 2)
        threading.Thread(target=self._echo, daemon=True).start()

    def answer(self, request: bytes, who: str = "") -> bytes:
        """Returns the reply to a request."""
        return self.link.answer(request)

    def end(self, why: str, run: bytes) -> None:
        """Does nothing: the process is ended."""

    def _echo(self) -> None:
        link = self.link
        link.begin()
        while True:
            if (item := link.receive(1 << 24)) is None:
                link.wait(0.1)
            elif item[1] == tags.EXIT:
                link.abort(0)
                return
            else:
                link.send(0, tags.FRAME, item[2])


def reside(path: Path) -> None:
    """Answers at a socket, until the process is ended."""
    with listening(path, heeding(Job())):
        threading.Event().wait()


class Echo(Executor):  # type: ignore[misc]
    """Answers empty messages, and sends frames back from the thread of a job."""

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: Any, abort_signal: Any) -> Shareable:
        """Refuses tasks."""
        return make_reply(ReturnCode.TASK_UNSUPPORTED)

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Begins with the engine's job."""
        if event_type != EventType.START_RUN:
            return
        engine = fl_ctx.get_engine()

        def answering(resident: Door | Job) -> Callable[[str, Shareable, Any], Shareable]:
            def answer(topic: str, request: Shareable, fl_ctx: Any) -> Shareable:
                reply = make_reply(ReturnCode.OK)
                reply[FIELD] = resident.answer(request[FIELD])
                return reply

            return answer

        def echo(topic: str, request: Shareable, fl_ctx: Any) -> Shareable:
            reply = make_reply(ReturnCode.OK)
            if FIELD in request:
                reply[FIELD] = request[FIELD]
            return reply

        engine.register_aux_message_handler(EMPTY, echo)
        engine.register_aux_message_handler(TOPIC, answering(Door(os.environ["RESIDENT"], "eva@coordinator.org")))
        engine.register_aux_message_handler(HERE, answering(Job()))


def main() -> None:
    """Runs the engine's simulator with one site, and prints the medians."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job/app/config").mkdir(parents=True)
        (folder / "space/local").mkdir(parents=True)
        classes = ["nvflare_frames.Frames", "nvflare_frames.Echo"]
        (folder / "space/local/resources.json").write_text(json.dumps({"class_allow_list": classes}))
        (folder / "job/meta.json").write_text(
            json.dumps({"name": "frames", "resource_spec": {}, "min_clients": 1, "deploy_map": {"app": ["@ALL"]}})
        )
        more: dict[str, list[object]] = {"components": [], "task_data_filters": [], "task_result_filters": []}
        server = {"format_version": 2, "workflows": [{"id": "frames", "path": classes[0]}], **more}
        site = {"format_version": 2, "executors": [{"tasks": ["none"], "executor": {"path": classes[1]}}], **more}
        for end, content in (("server", server), ("client", site)):
            (folder / f"job/app/config/config_fed_{end}.json").write_text(json.dumps(content))
        out = folder / "frames.json"
        here = Path(__file__).resolve().parent  # the simulator has a folder of its own, where PYTHONPATH=. is another
        path = os.pathsep.join([str(here), str(here.parent), os.environ.get("PYTHONPATH", "")])
        gate = folder / "gate" / "site.sock"
        resident = subprocess.Popen([sys.executable, __file__, str(gate)], env=os.environ | {"PYTHONPATH": path})
        said = subprocess.run(
            [str(Path(sys.executable).parent / "nvflare"), "simulator", str(folder / "job"), "-w", str(folder / "space"),
             "-c", SITE, "-t", "1"],
            env=os.environ | {"PYTHONPATH": path, "FRAMES": str(out), "RESIDENT": str(gate)},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
        )  # fmt: skip
        resident.kill()
        resident.wait()
        if not out.exists():
            raise SystemExit(said.stdout + said.stderr)
        load = os.getloadavg()[0]
        print(f"nvflare {nvflare.__version__}, its simulator; medians of {TURNS * EACH}, milliseconds; load {load:.1f}")
        print(f"{'bytes':>10}{'empty':>9}{'as long':>9}{'no socket':>11}{'frame':>8}{'frame / empty':>15}{'/ as long':>11}")
        for size, ms in json.loads(out.read_text()).items():
            empty, same, here, frame = ms.values()
            print(f"{size:>10}{empty:>9.2f}{same:>9.2f}{here:>11.2f}{frame:>8.2f}{frame / empty:>15.2f}{frame / same:>11.2f}")


if __name__ == "__main__":
    reside(Path(sys.argv[1])) if sys.argv[1:] else main()
