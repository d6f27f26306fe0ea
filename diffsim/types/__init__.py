"""The types that all modules share.

Topology and Model describe the system, State and Inputs go into a step, and Data is computed from them.
"""

from diffsim.types.data import Data as Data
from diffsim.types.model import Model as Model
from diffsim.types.model import Option as Option
from diffsim.types.model import Statistic as Statistic
from diffsim.types.state import Inputs as Inputs
from diffsim.types.state import Rollout as Rollout
from diffsim.types.state import State as State
from diffsim.types.topology import Topology as Topology
