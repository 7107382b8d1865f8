"""Places of a job, for packages that carry its messages: what a transport is, and the parts to build one from.

There are two ways. Over a wire that brings a request to a site and its reply back, write a `Wire`: a `Hub` and `Spoke`s do the
rest, also where replies are lost or come twice. For anything else write a `Place` of your own: `ServerSide` and `ClientSide` run
the machines of a protocol, and you move the frames. What each of its methods must promise stands in `Place`.

`fedkern.testing.places.check_place` runs jobs over it, and compares their bits with those of one process.
"""

from __future__ import annotations

from .algorithms.core.messages import SERVER as SERVER
from .algorithms.core.messages import RemoteFault as RemoteFault
from .errors import LostPeer as LostPeer
from .transports.codec import Codec as Codec
from .transports.codec import Frame as Frame
from .transports.driver import ClientSide as ClientSide
from .transports.driver import Ended as Ended
from .transports.driver import Hooks as Hooks
from .transports.driver import Offers as Offers
from .transports.driver import ServerSide as ServerSide
from .transports.driver import Signals as Signals
from .transports.driver import Timeouts as Timeouts
from .transports.driver import at_server as at_server
from .transports.driver import exit_code as exit_code
from .transports.inprocess import InProcess as InProcess
from .transports.levels import agree_on_level as agree_on_level
from .transports.levels import usable_levels as usable_levels
from .transports.levels import use_level as use_level
from .transports.place import Place as Place
from .transports.place import Transport as Transport
from .transports.relay import Hub as Hub
from .transports.relay import Lost as Lost
from .transports.relay import Spoke as Spoke
from .transports.relay import Wire as Wire

__all__ = [
    "SERVER",
    "ClientSide",
    "Codec",
    "Ended",
    "Frame",
    "Hooks",
    "Hub",
    "InProcess",
    "Lost",
    "LostPeer",
    "Offers",
    "Place",
    "RemoteFault",
    "ServerSide",
    "Signals",
    "Spoke",
    "Timeouts",
    "Transport",
    "Wire",
    "agree_on_level",
    "at_server",
    "exit_code",
    "usable_levels",
    "use_level",
]
