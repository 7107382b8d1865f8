"""Carries a job over NVFlare: the server's part is a `Server` in the engine's job, every site's a `Site`.

Each request is one of the engine's auxiliary messages, and its reply is that message's reply. Both hold one field of bytes. The
engine knows who is who, encrypts, and starts and ends both parts.

A `Site` hands requests to the site's resident, which reads the rows as another user: by the socket `FEDKERN_SOCKET` of its
environment, or that of its name in `FEDKERN_SOCKETS`. For whoever has the server, the certificate authority or another site can
read what NVFlare's client can read, or run code as its user (2.9: its console's commands, the role "super"). The server's folder
is `FEDKERN_FOLDER`, by default `local/fedkern` of its startup kit. No message of the engine chooses a path.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nvflare
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.fuel.f3.cellnet.core_cell import Message, MessageHeaderKey
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.streaming.stream_const import STREAM_CHANNEL, STREAM_DATA_TOPIC, StreamHeaderKey

from ..errors import JobError
from ..transports.signals import Signals
from .engines import check_engine, replayed_folder, run_folder, servers_copy
from .gate import Door
from .saying import say
from .server import AskingWire, run_hub
from .site import Resident

TOPIC, FIELD = "fedkern.relay", "letter"
FOLDER, SOCKET, SOCKETS = "FEDKERN_FOLDER", "FEDKERN_SOCKET", "FEDKERN_SOCKETS"


def own_folder(fl_ctx: Any) -> Path:
    """Returns the party's folder: that of its environment, of several sites on one machine the one of its name in it."""
    kit = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_site_config_dir())
    folder = Path(os.environ.get(FOLDER) or kit / "fedkern")
    named = folder / fl_ctx.get_identity_name()
    return named if named.is_dir() else folder


def drop_of_others(message: Message) -> Message | None:
    """Drops requests that another site has sent: the engine's server would carry them, too.

    The server checks that a site's messages bear the site's own origin.
    """
    ours = message.get_header(StreamHeaderKey.TOPIC) == TOPIC
    from_server = FQCN.split(message.get_header(MessageHeaderKey.ORIGIN) or "")[:1] == [FQCN.ROOT_SERVER]
    return Message() if ours and not from_server else None


def asking(engine: Any, seconds: float = 25.0) -> Callable[[str, bytes], bytes | None]:
    """Returns the call that brings a request to a site: it waits at most so many seconds for the reply.

    A site that computes longer than half of them replies that it does.
    """

    def ask(site: str, data: bytes) -> bytes | None:
        with engine.new_context() as fl_ctx:
            came = engine.send_aux_request([site], TOPIC, Shareable({FIELD: data}), seconds, fl_ctx, optional=True) or {}
        reply = came.get(site, {}).get(FIELD)
        return reply if isinstance(reply, bytes) else None

    return ask


class Server(Controller):  # type: ignore[misc]
    """Runs the server's part of a job in the engine's job process.

    Parameters
    ----------
    names : of the sites, in the order of the job's clients
    digest : of the job, in hexadecimal digits
    resume : go on from the last checkpoint that a run of the job has left
    job : the name of the file that was submitted, without .toml; empty where it is not known
    replay : compute the answers of the last asynchronous run of the job again
    """

    def __init__(self, names: list[str], digest: str, resume: bool = False, job: str = "", replay: bool = False) -> None:
        super().__init__()
        self.names, self.digest, self.resume, self.job, self.replay = names, digest, resume, job, replay
        self.wire: AskingWire | None = None

    def start_controller(self, fl_ctx: Any) -> None:
        """Refuses an engine of another version."""
        check_engine("nvflare", nvflare.__version__)

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        """Runs the job; the engine's job fails where it ends with another code than 0 or 4."""
        app, folder = Path(fl_ctx.get_prop(FLContextKey.APP_ROOT)), own_folder(fl_ctx)
        job = servers_copy(folder, app / "config" / "job.toml", self.digest, self.job)
        self.log_info(fl_ctx, f"the server's job file is {job}")
        runs, name = folder / "runs", self.digest[:12]
        out = run_folder(runs, name, resume=self.resume)
        replays = replayed_folder(runs, name) if self.replay else None
        self.wire, signals, ended = AskingWire(asking(fl_ctx.get_engine()), self.names), Signals(), threading.Event()
        threading.Thread(target=_watch, args=[abort_signal, signals, ended], daemon=True).start()
        try:
            code = run_hub(
                job, self.wire, out, resume=self.resume, replays=replays, quiet=True, sites=self.names, signals=signals
            )
        finally:
            ended.set()
            self.wire.close()
        self.log_info(fl_ctx, f"requests with a reply: {self.wire.counts}")
        if code in (0, 4):  # `nvflare job download` brings these to whoever has submitted the job
            shutil.copytree(out, app / "results", ignore=shutil.ignore_patterns("checkpoint*", "secret*", ".*"))
        else:
            self.system_panic(f"fedkern has ended with code {code}", fl_ctx)

    def stop_controller(self, fl_ctx: Any) -> None:
        """Does nothing: the job has ended."""

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Tells the job of a site that the engine has given up."""
        if event_type == EventType.CLIENT_DISCONNECTED and self.wire is not None:
            self.wire.lose(fl_ctx.get_prop(FLContextKey.DISCONNECTED_CLIENT_NAME), "the engine has lost it")


def _watch(abort_signal: Any, signals: Signals, ended: threading.Event) -> None:
    """Asks the job to end when the engine wants it to."""
    while not ended.wait(0.2):
        if abort_signal.triggered:
            signals.pending = "the engine"


def own_resident(fl_ctx: Any, who: str) -> Door | Resident:
    """Returns a site's resident: behind its socket, or, where the site's environment asks for a trial, in this process. Raises
    JobError: the environment names neither."""
    if path := os.environ.get(SOCKET):
        return Door(path, who)
    if folder := os.environ.get(SOCKETS):
        return Door(Path(folder) / f"{fl_ctx.get_identity_name()}.sock", who)
    if os.environ.get(FOLDER):
        say(
            "a trial: this process reads the rows, and others may reach into it; docs/start/organisations.md says how they cannot"
        )
        return Resident(own_folder(fl_ctx), engine=f"nvflare {nvflare.__version__}", identity=who)
    raise JobError(f"{SOCKET} names no socket: start the resident of this site (fedkern site run) and name its socket")


class Site(Executor):  # type: ignore[misc]
    """Answers requests with the bytes of this site's resident, for as long as the engine's job runs here."""

    def __init__(self) -> None:
        super().__init__()
        self.resident: Door | Resident | None = None
        self._unheard = ""  # why the resident has not answered the latest request

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: Any, abort_signal: Any) -> Shareable:
        """Refuses the engine's tasks: all that passes are requests."""
        return make_reply(ReturnCode.TASK_UNSUPPORTED)

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Begins with the engine's job, and ends with it."""
        if event_type == EventType.START_RUN:
            meta = fl_ctx.get_prop(FLContextKey.JOB_META) or {}
            who = f"{meta.get('submitter_name', 'unknown')} ({meta.get('submitter_org', 'unknown')})"
            try:
                check_engine("nvflare", nvflare.__version__)
                self.resident = own_resident(fl_ctx, who)
            except JobError as error:
                self.system_panic(str(error), fl_ctx)
                return
            engine = fl_ctx.get_engine()
            engine.get_cell().core_cell.add_incoming_request_filter(STREAM_CHANNEL, STREAM_DATA_TOPIC, drop_of_others)
            engine.register_aux_message_handler(TOPIC, self._answer)
        elif event_type == EventType.END_RUN and self.resident is not None:
            self.resident.end("the engine has ended its run")

    def _answer(self, topic: str, request: Shareable, fl_ctx: Any) -> Shareable:
        data = request.get(FIELD)
        if self.resident is None or not isinstance(data, bytes):
            return make_reply(ReturnCode.BAD_REQUEST_DATA)
        try:
            answer = self.resident.answer(data)
        except OSError as error:  # the server asks again, until job.deadline
            why = f"({error.strerror or error})"
            if self._unheard != why and isinstance(error, PermissionError):
                say(f"the resident's socket is not this user's {why}: chown it to this user after each start (--peer)")
            elif self._unheard != why:
                say(f"nobody answers at the resident's socket {why}: start it (fedkern site run)")
            self._unheard = why
            return make_reply(ReturnCode.EXECUTION_EXCEPTION)
        self._unheard = ""
        reply = make_reply(ReturnCode.OK)
        reply[FIELD] = answer
        return reply
