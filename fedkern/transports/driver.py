"""Runs the machines of a protocol for every transport, calls the hooks around them, and takes checkpoints.

A transport moves frames. `ServerSide` turns frames into events of the server's machine and its effects into frames; `ClientSide`
does the same for the clients of one rank. Neither knows the algorithm, and neither opens a file: only `Hooks` touch the world.

A checkpoint is taken when no question is open. The server's frames are held back, every client is told to `Keep` its state under
a number, and last the server keeps its state and the unsent frames. A later run that starts from one number at all parties goes
on as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..algorithms.core.messages import (
    NOTHING,
    SERVER,
    Charge,
    Charged,
    ChargeFailed,
    ClientLost,
    Event,
    Message,
    Protocol,
    Release,
    Released,
    RemoteFault,
    Saved,
    ServerEffects,
    Start,
    Tells,
)
from ..errors import FedkernError, HolderError, LostPeer, describe_no_memory, describe_origin, mark_party
from .codec import Codec, Frame, is_last
from .signals import Signals as Signals
from .signals import Stopped as Stopped

S = TypeVar("S")
C = TypeVar("C")
Offers = Mapping[int, Collection[int]]  # client (or SERVER) -> numbers


@dataclass(frozen=True)
class Received(Message, kind=0xFF01, tells=Tells(NOTHING, private=NOTHING)):
    """Client to server: the question was understood, and there is nothing to answer."""


@dataclass(frozen=True)
class Keep(Message, kind=0xFF02):
    """Server to client: keep your state as it is now, under this number."""

    number: int


@dataclass(frozen=True)
class Kept(Message, kind=0xFF03, tells=Tells(NOTHING, private=NOTHING)):
    """Client to server: it is kept."""

    number: int


@dataclass(frozen=True)
class Timeouts:
    """Holds the seconds of silence after which a transport acts."""

    start: float = 300.0  # not all ranks have come: those that wait for them exit with code 1
    lost: float = 600.0  # a rank that owes an answer counts as dead, and so does a server that says nothing
    grace: float = 5.0  # what the ranks of a failing job get to end by themselves


class Ended(FedkernError):
    """Tells that another rank has ended the job, with this exit code; `text` is empty where it has been printed already."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(text)
        self.exit_code, self.text = code, text


def exit_code(error: BaseException) -> int:
    """Returns the documented exit code of an error; it is 1 for an error that nobody foresaw."""
    if isinstance(error, RemoteFault | MemoryError):
        return 2
    if isinstance(error, KeyboardInterrupt):
        return 3
    return error.exit_code if isinstance(error, FedkernError) else 1


class Hooks:
    """Lets machines and transports reach their surroundings: budget, ledger, disk, signals.

    This base class agrees to everything and stores nothing; override the methods that you need.

    On a rank with clients: `charge`, `recall`, `remember`, `sending`, `keep_client`. At the server: `charge` (client SERVER),
    `release`, `observe`, `waiting`, `delivered`, `checkpoint_due`, `keep_server`, `lost`. On every rank: `control`,
    `should_stop`, `who`, `public`.
    """

    keeps = False  # whether there are checkpoints
    remembers = False  # whether answers are kept until a checkpoint has passed them
    checkpoint_number = 0  # of the last checkpoint; a resumed run sets the one it starts from

    def charge(self, client: int, charge: Charge) -> Charged | ChargeFailed:
        """Asks the holder's budget for steps, before any row is read."""
        return Charged(charge.steps)

    def release(self, asked: Release) -> Released:
        """Writes the content that the server is about to release to the disk.

        After a crash it returns the stored one, which is sent again.
        """
        return Released(asked.round, asked.content)

    def recall(self, client: int, question: Frame) -> tuple[list[Frame], Saved] | None:
        """Returns the answers to this question from before a crash, and the client's state after it; None to ask the machine."""
        return None

    def remember(self, client: int, question: Frame, answers: list[Frame], saved: Saved) -> None:
        """Stores answers before they leave, if `remembers`; `recall` returns them after a crash."""

    def sending(self, client: int, message: Message, n_bytes: int, charged: int) -> None:
        """Writes a message to the ledger where the client lives, before its bytes leave.

        `charged`: local steps paid for this message.
        """

    def control(self, rank: int, what: str, n_bytes: int) -> None:
        """Writes to a rank's ledger the bytes that leave it and belong to no client's message."""

    def delivered(self, direction: str, client: int, n_bytes: int) -> None:
        """Counts the bytes of a frame at the server; direction is "to_client" or "to_server"."""

    def observe(self, state: object, event: Event) -> None:
        """Sees the server's state after every event (a message, ClientLost, Charged or ChargeFailed)."""

    def waiting(self, clients: Sequence[int]) -> None:
        """Tells which clients owe the server an answer while nothing comes.

        In one process it names the client that begins to answer.
        """

    def checkpoint_due(self) -> bool:
        """Tells whether a checkpoint is due; called after every event of the server."""
        return False

    def keep_client(self, client: int, number: int, saved: Saved) -> None:
        """Stores a client's part of a checkpoint."""

    def keep_server(self, number: int, saved: Saved, frames: list[tuple[int, Frame]], lost: frozenset[int]) -> None:
        """Stores the server's part of a checkpoint, with its unsent frames, after all clients but the lost have stored theirs."""

    def should_stop(self) -> str | None:
        """Returns the name of the signal that asks the run to stop, or None."""
        return None

    def who(self, client: int) -> str:
        """Returns the name by which messages call a client."""
        return f"client {client}"

    def lost(self, client: int, why: str) -> None:
        """Records that a client is gone for good while the job goes on; `why` names its rank."""

    def public(self, error: BaseException) -> str:
        """Returns the text that other parties may read about a fault on this rank.

        The text of an error that nobody foresaw is left out, since it may quote a cell. An error of a holder has a text for
        others.
        """
        if isinstance(error, HolderError):
            return error.told
        if isinstance(error, (FedkernError, RemoteFault, KeyboardInterrupt)):
            return str(error) or type(error).__name__
        if isinstance(error, MemoryError):
            return describe_no_memory(error)
        return "internal error\n" + describe_origin(error)


class ClientSide(Generic[S, C]):
    """Runs the machines of the clients that live in one place."""

    def __init__(self, protocol: Protocol[S, C], clients: Mapping[int, C], codec: Codec, hooks: Hooks) -> None:
        self.protocol, self.clients, self.codec, self.hooks = protocol, dict(clients), codec, hooks
        self.expected = (*protocol.to_client, Keep)

    def receive(self, frame: Frame) -> tuple[int, list[Frame]]:
        """Returns the client that a frame is for, and the frames of its answer: at least one, and the last one is marked."""
        client, question = self.codec.decode(frame, self.expected)
        if client not in self.clients:
            raise RemoteFault(f"client {client}: {type(question).__name__} came to a rank where it does not live")
        try:
            return client, self._answers(client, question, frame)
        except Exception as error:
            mark_party(error, client)
            raise

    def _answers(self, client: int, question: Message, frame: Frame) -> list[Frame]:
        """Returns the frames of a client's answer, after the ledger and the store of answers have them."""
        # A checkpoint: the ledger gets its line first, since the kept state knows how the ledger ends.
        if isinstance(question, Keep):
            kept: list[Message] = [Kept(question.number)]
            frames = self._logged(client, kept, self._encoded(client, kept), 0)
            self.hooks.keep_client(client, question.number, self.protocol.save(self.clients[client]))
            return frames
        # Asked before a crash: the same bytes leave again, and neither is a row read nor a step charged twice.
        if self.hooks.remembers and (before := self.hooks.recall(client, frame)):
            frames, saved = before
            self.clients[client] = self.protocol.load(self.clients[client], saved)
            for old in frames:
                self.hooks.sending(client, self.codec.decode(old, (*self.protocol.to_server, Received))[1], len(old), 0)
            return frames
        messages, charged = self._ask(client, question)
        frames = self._logged(client, messages, self._encoded(client, messages), charged)
        if self.hooks.remembers:
            self.hooks.remember(client, frame, frames, self.protocol.save(self.clients[client]))
        return frames

    def _ask(self, client: int, question: Message) -> tuple[list[Message], int]:
        """Returns the machine's messages and the steps that were charged; each charge is answered before the machine goes on."""
        state, effects = self.protocol.client_receive(self.clients[client], question)
        messages = [effect for effect in effects if not isinstance(effect, Charge)]
        # The usual case, without a charge.
        if len(messages) == len(effects):
            self.clients[client] = state
            return messages or [Received()], 0
        messages, todo, charged = [], list(reversed(effects)), 0
        while todo:
            effect = todo.pop()
            if isinstance(effect, Charge):
                reply = self.hooks.charge(client, effect)
                charged += reply.steps if isinstance(reply, Charged) else 0
                state, effects = self.protocol.client_receive(state, reply)
                # The answer to a charge has effects of its own, which come before the effects that still wait.
                todo += reversed(effects)
            else:
                messages.append(effect)
        self.clients[client] = state
        return messages or [Received()], charged

    def _encoded(self, client: int, messages: list[Message]) -> list[Frame]:
        last = len(messages) - 1
        return [self.codec.encode(client, message, i == last) for i, message in enumerate(messages)]

    def _logged(self, client: int, messages: list[Message], frames: list[Frame], charged: int) -> list[Frame]:
        """Writes the frames to the ledger before anything is stored, so that the stored state knows how the ledger ends."""
        for message, frame in zip(messages, frames):
            self.hooks.sending(client, message, len(frame), charged)
            charged = 0  # it was for all of them
        return frames


class ServerSide(Generic[S, C]):
    """Runs the server's machine, and keeps account of the questions that are open."""

    def __init__(self, protocol: Protocol[S, C], start: Start[S], codec: Codec, hooks: Hooks) -> None:
        self.protocol, self.codec, self.hooks = protocol, codec, hooks
        self.expected = (*protocol.to_server, Received, Kept)
        self.open = [0] * codec.n_clients  # questions that each client has not answered to the end
        self.n_open = 0  # the sum of these
        self.lost: dict[int, str] = {}  # why
        self.unsent: list[tuple[int, Frame]] = []
        self.keeping: set[int] | None = None  # clients that have yet to keep their state
        self.stopping: str | None = None  # the signal that asks the run to stop
        self._last: tuple[Message | None, Frame] = None, b""  # encoded last: the same message often goes to all clients
        self.state, effects = start
        self.finished = protocol.finished(self.state)
        self._perform(effects)

    @property
    def waiting(self) -> list[int]:
        """The clients with an open question."""
        return [client for client, count in enumerate(self.open) if count]

    @property
    def done(self) -> bool:
        """Whether the machine has finished and no client has to be waited for."""
        return self.finished and not self.n_open and not self.unsent and self.keeping is None

    def outgoing(self) -> list[tuple[int, Frame]]:
        """Returns the frames to send now: none while a checkpoint waits for open questions."""
        if self.n_open and not self.unsent:
            return []
        self.stopping = self.stopping or self.hooks.should_stop()
        # A checkpoint begins when nothing is open; until then the frames stay here.
        if self.keeping is None and not self.finished and (self.stopping or self.hooks.checkpoint_due()):
            return [] if self.n_open else self._begin_checkpoint()
        if self.keeping is not None:
            if self.n_open:
                return []
            self._end_checkpoint()
        # Nothing stands in the way: all unsent frames leave, but for those of lost clients.
        out, self.unsent = [item for item in self.unsent if item[0] not in self.lost], []
        for client, frame in out:
            self._ask(client, frame)
        if not out and not self.n_open and not self.finished:
            if self.lost:
                raise self._gone(self.lost, f"{self.protocol.name} cannot go on without them")
            raise FedkernError(f"{self.protocol.name}: the server has not finished and waits for nobody")
        return out

    def arrive(self, frame: Frame, here: Container[int]) -> None:
        """Takes one frame from the rank where the clients `here` live."""
        client, message = self.codec.decode(frame, self.expected)
        if client not in here:
            raise RemoteFault(f"client {client}: {type(message).__name__} came from a rank where it does not live")
        # The machine was told of the loss; a late frame of that client must not reach it.
        if client in self.lost:
            return
        if not self.open[client]:
            raise RemoteFault(f"client {client}: {type(message).__name__} answers no question")
        self.hooks.delivered("to_server", client, len(frame))
        if is_last(frame):
            self.open[client] -= 1
            self.n_open -= 1
        if not isinstance(message, (Kept, Received)):
            self.feed(client, message)
        elif isinstance(message, Kept):
            if self.keeping is None or client not in self.keeping or message.number != self.hooks.checkpoint_number:
                raise RemoteFault(f"client {client}: Kept.number is {message.number}, asked for {self.hooks.checkpoint_number}")
            self.keeping.discard(client)

    def feed(self, sender: int, event: Event) -> None:
        """Gives an event to the server's machine and performs its effects."""
        try:
            self.state, effects = self.protocol.server_receive(self.state, sender, event)
        except Exception as error:
            mark_party(error, SERVER)
            raise
        self.finished = self.protocol.finished(self.state)
        self.hooks.observe(self.state, event)
        self._perform(effects)

    def lose(self, why: Mapping[int, str]) -> None:
        """Tells the machine, unless it has finished, of each client that is gone for good.

        Raises LostPeer if it cannot do without.
        """
        new = {client: why[client] for client in sorted(why) if client not in self.lost}
        for client in new:
            self.lost[client] = why[client]
            self.n_open -= self.open[client]
            self.open[client] = 0
            if self.keeping is not None:
                self.keeping.discard(client)
            if not self.finished:
                try:
                    self.feed(client, ClientLost(client))
                except LostPeer as error:
                    raise self._gone(new, str(error)) from None
            self.hooks.lost(client, why[client])

    def _gone(self, why: Mapping[int, str], so: str) -> LostPeer:
        """Returns an error that names every client that is gone, and its rank."""
        names = [self.hooks.who(client) for client in why]
        what = ", ".join(dict.fromkeys(why.values()))
        if not all(name in so for name in names):
            what = f"{what}, and with it {', '.join(names)}"
        return LostPeer(f"{what}: {so}")

    def _begin_checkpoint(self) -> list[tuple[int, Frame]]:
        if not self.hooks.keeps:
            raise LostPeer(f"stopped by {self.stopping}; this run keeps no checkpoints")
        self.keeping = set(range(self.codec.n_clients)) - self.lost.keys()
        self.hooks.checkpoint_number += 1
        keep = Keep(self.hooks.checkpoint_number)
        return [self._ask(client, self.codec.encode(client, keep)) for client in sorted(self.keeping)]

    def _end_checkpoint(self) -> None:
        if self.keeping:
            raise RemoteFault(f"{_names(self.keeping)} answered Keep without Kept")
        self.keeping = None
        self.hooks.keep_server(self.hooks.checkpoint_number, self.protocol.save(self.state), self.unsent, frozenset(self.lost))
        if self.stopping:
            raise LostPeer(f"stopped by {self.stopping}; --resume goes on from checkpoint {self.hooks.checkpoint_number}")

    def _perform(self, effects: ServerEffects) -> None:
        for target, effect in effects:
            if isinstance(effect, Charge):
                self.feed(SERVER, self.hooks.charge(SERVER, effect))
                continue
            if isinstance(effect, Release):
                self.feed(SERVER, self.hooks.release(effect))
                continue
            message, frame = self._last
            # One message to many clients is encoded once: for each further client only the address changes.
            same = effect is message
            frame = self.codec.readdress(frame, target) if same else self.codec.encode(target, effect)
            self._last = effect, frame
            self.unsent.append((target, frame))

    def _ask(self, client: int, frame: Frame) -> tuple[int, Frame]:
        self.open[client] += 1
        self.n_open += 1
        self.hooks.delivered("to_client", client, len(frame))
        return client, frame


def at_server(start: Start[S] | None) -> Start[S]:
    """Returns the server's first state and questions; raises ValueError if they were not given."""
    if start is None:
        raise ValueError("the server lives here, and its first state was not given")
    return start


def restart(protocol: Protocol[S, C], state: S, saved: Saved, frames: Iterable[Frame], codec: Codec) -> Start[S]:
    """Returns the `start` of a resumed run: the server's fresh state with the saved values, and its unsent messages."""
    return protocol.load(state, saved), [codec.decode(frame, protocol.to_client) for frame in frames]


def _names(clients: Iterable[int]) -> str:
    listed = ", ".join(str(client) for client in sorted(clients))
    return f"client {listed}" if "," not in listed else f"clients {listed}"
