"""Runs the machines of a protocol for every transport, calls `Hooks` before and after their steps, and takes checkpoints.

A transport moves frames. `ServerSide` turns frames into events of the server's machine and its effects into frames; `ClientSide`
does the same for the clients of one rank. Neither knows the algorithm, and neither opens a file: only `Hooks` touch the world.

A checkpoint is taken when no question is open. The server's frames are held back, every client is told to `Keep` its state under
a number, and last the server keeps its state and the unsent frames. A later run in which all parties load the checkpoint of the
same number goes on as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from ..algorithms.core import tells
from ..algorithms.core.messages import (
    SERVER,
    Charge,
    Charged,
    ChargeFailed,
    ClientBack,
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
)
from ..errors import FedkernError, HolderError, LostPeer, NumericalError, describe_no_memory, describe_origin, mark_party
from .codec import Codec, Frame, is_last

# Other modules import these two from here.
from .signals import Signals as Signals
from .signals import Stopped as Stopped

S = TypeVar("S")
C = TypeVar("C")
Offers = Mapping[int, Collection[int]]  # client (or SERVER) -> numbers of the checkpoints that it has


# Neither tells anything of a client's rows, in an open job or in a private one.
@dataclass(frozen=True)
class Received(Message, kind=0xFF01, tells=tells.Nothing(private=tells.NOTHING)):
    """Client to server: the question was understood, and there is nothing to answer."""


@dataclass(frozen=True)
class Keep(Message, kind=0xFF02):
    """Server to client: keep your state as it is now, under this number."""

    number: int


@dataclass(frozen=True)
class Kept(Message, kind=0xFF03, tells=tells.Nothing(private=tells.NOTHING)):
    """Client to server: it is kept."""

    number: int


@dataclass(frozen=True)
class Timeouts:
    """Holds the seconds after which a transport acts."""

    start: float = 300.0  # until all ranks have connected; after it those that have exit with code 1
    lost: float = 600.0  # a rank that owes an answer counts as dead, and so does a server that says nothing
    grace: float = 5.0  # what the ranks of a failing job get to end by themselves


class Ended(FedkernError):
    """Tells that another rank has ended the job, with this exit code; `text` is empty where it has been printed already."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(text)
        self.exit_code, self.text = code, text


def exit_code(error: BaseException) -> int:
    """Returns the exit code of an error, as `fedkern --help` lists them; it is 1 for an error that nobody foresaw."""
    # RemoteFault comes from the algorithms, and is no FedkernError.
    if isinstance(error, RemoteFault | MemoryError):
        return 2
    if isinstance(error, KeyboardInterrupt):
        return 3
    return error.exit_code if isinstance(error, FedkernError) else 1


def _unsolved(party: int, who: str, message: object, error: Exception) -> NumericalError:
    """Returns the error for a message whose numbers leave a machine without a solution: they are well formed, and a peer's."""
    fault = NumericalError(f"{who}: {type(message).__name__} leads to a matrix without a solution ({error})")
    mark_party(fault, party)
    return fault


class Hooks:
    """Lets machines and transports reach their surroundings: budget, ledger, disk, signals.

    This base class agrees to everything and stores nothing; override the methods that you need. They are called:

    - on a rank with clients, for each question: `recall`, `readmitted`, `charge`, `sending`, `remember`; in a checkpoint
      `sending`, `keep_client`;
    - at the server: `checkpoint_due` and `delivered` when it sends, `delivered`, `heard`, `turns`, `observe` when a frame comes,
      `charge` (client SERVER) and `release` where its machine asks, `waiting` while it waits, `keep_server`, `lost` and `back`;
    - on every rank: `control`, `should_stop`, `who`, `public`.
    """

    keeps = False  # whether there are checkpoints
    remembers = False  # whether answers are kept until a later checkpoint makes them unnecessary
    checkpoint_number = 0  # of the last checkpoint that has begun; a resumed run sets the one it starts from

    def charge(self, client: int, charge: Charge) -> Charged | ChargeFailed:
        """Asks the holder's budget for steps, before any row is read for them."""
        return Charged(charge.steps)

    def release(self, asked: Release) -> Released:
        """Writes to the disk the content that the server is about to release.

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

        `charged`: local steps paid for the whole answer, on its first message; 0 on the others.
        """

    def control(self, rank: int, what: str, n_bytes: int) -> None:
        """Writes to the rank's ledger, beside those of clients, the bytes that leave it and belong to no client's message."""

    def delivered(self, direction: str, client: int, n_bytes: int) -> None:
        """Counts at the server the bytes of a frame: "to_client" when it is about to leave, "to_server" when it has come."""

    def heard(self, client: int, frame: Frame) -> None:
        """Sees at the server every answer before its machine takes it."""

    def turns(self, client: int, frame: Frame, message: Message) -> Iterable[tuple[int, Event | None]]:
        """Yields the events that the server's machine takes now that an answer has come; None: it is loaded as it was saved."""
        return ((client, message),)

    def observe(self, state: object, event: Event) -> None:
        """Sees the server's state after every event (a message, ClientLost, Charged, ChargeFailed or Released)."""

    def waiting(self, clients: Sequence[int]) -> None:
        """Shows to the user which clients owe the server an answer while nothing comes.

        In one process it is called with the one client that begins to answer.
        """

    def checkpoint_due(self) -> bool:
        """Tells whether a checkpoint is due.

        The server asks each time when frames could leave, also several times for one checkpoint: the answer must stay True until
        the checkpoint has begun. It must be False where `keeps` is False. A run that stops, keeps or has finished does not ask.
        """
        return False

    def keep_client(self, client: int, number: int, saved: Saved) -> None:
        """Stores a client's part of a checkpoint."""

    def keep_server(self, number: int, saved: Saved, frames: list[tuple[int, Frame]], lost: frozenset[int]) -> None:
        """Stores the server's part of a checkpoint, with its unsent frames, after the clients that are not lost have theirs."""

    def should_stop(self) -> str | None:
        """Returns the name of the signal that asks the run to stop, or None."""
        return None

    def who(self, client: int) -> str:
        """Returns the name by which messages call a client."""
        return f"client {client}"

    def lost(self, client: int, why: str) -> None:
        """Records that a client is gone while the job goes on; `why` names its rank and tells what happened."""

    def back(self, client: int) -> None:
        """Records that a lost client takes part again."""

    def readmitted(self, client: int) -> None:
        """Asks the client's holder whether it may take part again."""

    def public(self, error: BaseException) -> str:
        """Returns the text that other parties may read about a fault on this rank.

        The text of an error that nobody foresaw is left out, since it may quote a cell. A HolderError carries a text
        for others (`told`).
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
        """Answers a frame: returns the client that it is for, and the frames of the answer (at least one; the last is marked)."""
        client, question = self.codec.decode(frame, self.expected)
        if client not in self.clients:
            raise RemoteFault(f"{type(question).__name__} came to a rank where it does not live", client)
        try:
            return client, self._answers(client, question, frame)
        except np.linalg.LinAlgError as error:
            raise _unsolved(client, self.hooks.who(client), question, error) from error
        except Exception as error:
            mark_party(error, client)
            raise

    def _answers(self, client: int, question: Message, frame: Frame) -> list[Frame]:
        """Returns the frames of a client's answer, after the ledger and the store of answers have them."""
        # A checkpoint: the ledger gets its line first, since `keep_client` stores the ledger's mark (length and hash) beside the
        # state, by which a resumed run finds that the ledger was altered.
        if isinstance(question, Keep):
            kept: list[Message] = [Kept(question.number)]
            frames = self._logged(client, kept, self._encoded(client, kept), 0)
            self.hooks.keep_client(client, question.number, self.protocol.save(self.clients[client]))
            return frames
        # Asked before a crash: the same bytes leave again, and neither is a row read nor a step charged twice. The ledger gets
        # their lines a second time, without a charge, since the bytes leave a second time.
        if self.hooks.remembers and (before := self.hooks.recall(client, frame)):
            frames, saved = before
            self.clients[client] = self.protocol.load(self.clients[client], saved)
            for old in frames:
                self.hooks.sending(client, self.codec.decode(old, (*self.protocol.to_server, Received))[1], len(old), 0)
            return frames
        if self.protocol.readmits is not None and isinstance(question, self.protocol.readmits):
            self.hooks.readmitted(client)
        messages, charged = self._ask(client, question)
        frames = self._logged(client, messages, self._encoded(client, messages), charged)
        if self.hooks.remembers:
            self.hooks.remember(client, frame, frames, self.protocol.save(self.clients[client]))
        return frames

    def _ask(self, client: int, question: Message) -> tuple[list[Message], int]:
        """Gives the question to the machine; returns its messages and the steps that were charged.

        Each charge is answered before the machine goes on.
        """
        state, effects = self.protocol.client_receive(self.clients[client], question)
        messages = [effect for effect in effects if not isinstance(effect, Charge)]
        # The usual case, without a charge; a shortcut, since the loop below would give the same.
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
        """Writes messages to the ledger, with the lengths of their frames, before anything is stored: see `_answers`."""
        for message, frame in zip(messages, frames):
            self.hooks.sending(client, message, len(frame), charged)
            charged = 0  # the first message carries the steps of the whole answer
        return frames


class ServerSide(Generic[S, C]):
    """Runs the server's machine, and keeps account of the questions that are open."""

    def __init__(self, protocol: Protocol[S, C], start: Start[S], codec: Codec, hooks: Hooks) -> None:
        self.protocol, self.codec, self.hooks = protocol, codec, hooks
        self.expected = (*protocol.to_server, Received, Kept)
        self.open = [0] * codec.n_clients  # for each client the number of questions that it has not answered to the end
        self.n_open = 0  # the sum of these
        self.lost: dict[int, str] = {}  # client -> why
        self.owed: dict[int, int] = {}  # lost client -> questions that it had not answered, less those that it has since
        self.back: set[int] = set()  # lost clients that were heard again and owe nothing: they take part when frames can leave
        self.unsent: list[tuple[int, Frame]] = []
        self.keeping: set[int] | None = None  # clients that have yet to keep their state
        self.stopping: str | None = None  # the signal that asks the run to stop
        self.told_last = False  # whether all open questions are the last words of a machine that has finished
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

    def leave_last(self) -> bool:
        """Tells whether the server can go on while clients still take its last words, which they answer by `Received` alone.

        Their answers are counted here; the transport drops them when they come.
        """
        if not (self.told_last and not self.unsent and self.keeping is None):
            return False
        for client in self.waiting:
            size = len(self.codec.encode(client, Received(), True))
            for _ in range(self.open[client]):
                self.hooks.delivered("to_server", client, size)
        return True

    def outgoing(self) -> list[tuple[int, Frame]]:
        """Returns the frames to send now.

        None leave while a checkpoint waits for open questions, nor while clients have yet to answer and nothing is unsent. In the
        second case signals are not looked at: they are when frames could leave.
        """
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
        for client in sorted(self.back) if not self.finished else ():
            del self.lost[client]
            self.hooks.back(client)
            self.feed(client, ClientBack(client))
        self.back.clear()
        # Nothing stands in the way: all unsent frames leave.
        self.told_last = self.finished and (self.told_last or not self.n_open)
        out, self.unsent = self.unsent, []
        for client, frame in out:
            self._ask(client, frame)
        if not out and not self.n_open and not self.finished:
            if self.lost:
                raise self._gone(self.lost, f"{self.protocol.name} cannot go on without them")
            # A fault of the algorithm: it has asked nothing, or a client said Received where an answer was needed.
            raise FedkernError(f"{self.protocol.name}: the server has not finished and waits for nobody")
        return out

    def arrive(self, frame: Frame, here: Container[int]) -> None:
        """Takes one frame from a rank; `here` are the clients that live on that rank."""
        client, message = self.codec.decode(frame, self.expected)
        if client not in here:
            raise RemoteFault(f"{type(message).__name__} came from a rank where it does not live", client)
        # The machine was told of the loss: a late answer of that client must not reach it. After the last it may come back.
        if client in self.lost:
            self.owed[client] -= is_last(frame)
            if self.protocol.readmits is not None:
                self.back |= {k for k, owed in self.owed.items() if k in self.lost and k in here and not owed}
            return
        if not self.open[client]:
            raise RemoteFault(f"{type(message).__name__} answers no question", client)
        self.hooks.delivered("to_server", client, len(frame))
        if is_last(frame):
            self.open[client] -= 1
            self.n_open -= 1
        if not isinstance(message, (Kept, Received)):
            self.hooks.heard(client, frame)
            if self.keeping is not None:  # all that is open then is whether the clients have kept their states
                raise RemoteFault(f"{type(message).__name__} came, asked to keep its state", client)
            if self.told_last:  # a transport need not wait for this answer
                raise FedkernError(f"{self.protocol.name}: the server has finished, and {type(message).__name__} answers it")
            for sender, event in self.hooks.turns(client, frame, message):
                if event is None:
                    self.state = self.protocol.load(self.state, self.protocol.save(self.state))
                else:
                    self.feed(sender, event)
        elif isinstance(message, Kept):
            if self.keeping is None or client not in self.keeping or message.number != self.hooks.checkpoint_number:
                raise RemoteFault(f"Kept.number is {message.number}, asked for {self.hooks.checkpoint_number}", client)
            self.keeping.discard(client)

    def feed(self, sender: int, event: Event) -> None:
        """Gives an event to the server's machine and performs its effects."""
        try:
            self.state, effects = self.protocol.server_receive(self.state, sender, event)
        except np.linalg.LinAlgError as error:
            raise _unsolved(SERVER, "the server", event, error) from error
        except Exception as error:
            mark_party(error, SERVER)
            raise
        self.finished = self.protocol.finished(self.state)
        self.hooks.observe(self.state, event)
        self._perform(effects)

    def lose(self, why: Mapping[int, str]) -> None:
        """Tells the machine, unless it has finished, of each client that is gone.

        Raises LostPeer if the machine cannot go on without them; `hooks.lost` is not called for the client by which the job ends.
        """
        new = {client: why[client] for client in sorted(why) if client not in self.lost}
        self.back -= why.keys()
        # A machine may go on without some; without any, what it has would be no posterior of this job.
        if not self.finished and new and len(self.lost) + len(new) == self.codec.n_clients:
            self.lost.update(new)
            raise self._gone(new, "no client is left; --resume goes on where a checkpoint was kept")
        for client in new:
            self.lost[client] = why[client]
            # What has not left never does: once it is back, here or in a resumed run, it is told where the machine is then.
            self.unsent = [item for item in self.unsent if item[0] != client]
            self.owed[client] = self.open[client]
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
        """Returns an error that names every client of `why`, and its rank; `so` is the consequence."""
        names = [self.hooks.who(client) for client in why]
        what = ", ".join(dict.fromkeys(why.values()))
        if not all(name in so for name in names):
            what = f"{what}, and with it {', '.join(names)}"
        return LostPeer(f"{what}: {so}")

    def _begin_checkpoint(self) -> list[tuple[int, Frame]]:
        # A stop by a signal is a LostPeer, here and in `_end_checkpoint`, for its exit code (3).
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
            if target in self.lost:
                continue
            message, frame = self._last
            # One message to many clients is encoded once: for each further client only the address changes.
            same = effect is message
            frame = self.codec.readdress(frame, target) if same else self.codec.encode(target, effect)
            self._last = effect, frame
            self.unsent.append((target, frame))

    def _ask(self, client: int, frame: Frame) -> tuple[int, Frame]:
        """Counts a question as open; the transport sends it."""
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
    """Returns the `start` of a resumed run: the first state with the saved values put into it, and the unsent messages."""
    return protocol.load(state, saved), [codec.decode(frame, protocol.to_client) for frame in frames]


def _names(clients: Iterable[int]) -> str:
    """Returns "client 1", or "clients 1, 2"."""
    listed = ", ".join(str(client) for client in sorted(clients))
    return f"client {listed}" if "," not in listed else f"clients {listed}"
