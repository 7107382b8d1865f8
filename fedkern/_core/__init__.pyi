"""Compiled kernels of fedkern. Arguments are checked for memory safety only; call fedkern.kernels instead."""

from . import augmented as augmented
from . import blas as blas
from . import bound as bound
from . import files as files
from . import glm as glm
from . import mixed as mixed
from . import mlp as mlp
from . import multinomial as multinomial
from . import optim as optim
from . import privacy as privacy
from . import ranges as ranges
from . import rng as rng
from . import sem as sem
from . import shrinkage as shrinkage
from . import signals as signals
from . import spatial as spatial
from . import survival as survival
from . import wire as wire
from . import words as words

def isa() -> str: ...
def levels() -> dict[str, bool]: ...
def limit_isa(name: str) -> None: ...
