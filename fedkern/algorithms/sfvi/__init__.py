"""Fits by structured federated variational inference: global and local unknowns, over clients that have rows of their own."""

from .machine import Client as Client
from .machine import Family as Family
from .machine import Fitted as Fitted
from .machine import Global as Global
from .machine import GlobalGradient as GlobalGradient
from .machine import GlobalGradientBound as GlobalGradientBound
from .machine import Reached as Reached
from .machine import Server as Server
from .machine import Settings as Settings
from .machine import Start as Start
from .machine import barycentre as barycentre
from .machine import client as client
from .machine import client_receive as client_receive
from .machine import finished as finished
from .machine import load as load
from .machine import local_posterior as local_posterior
from .machine import posterior_moments as posterior_moments
from .machine import protocol as protocol
from .machine import save as save
from .machine import server_receive as server_receive
from .machine import start as start
