"""Functions of a model and the Data of one state: `diffsim.support`.

Functions have MuJoCo's names without `mj_`. Objects are given by name, view or index. Source: MuJoCo documentation,
"API reference", support functions.
"""

from diffsim.support.contacts import body_force as body_force
from diffsim.support.contacts import contact_force as contact_force
from diffsim.support.contacts import contacts as contacts
from diffsim.support.contacts import efc as efc
from diffsim.support.contacts import geom_force as geom_force
from diffsim.support.contacts import in_contact as in_contact
from diffsim.support.contacts import islands as islands
from diffsim.support.delay_buffers import init_ctrl_history as init_ctrl_history
from diffsim.support.delay_buffers import init_sensor_history as init_sensor_history
from diffsim.support.delay_buffers import read_ctrl as read_ctrl
from diffsim.support.delay_buffers import read_sensor as read_sensor
from diffsim.support.describe import print_data as print_data
from diffsim.support.describe import print_model as print_model
from diffsim.support.edited_model import carry_over as carry_over
from diffsim.support.motion import Jacobian as Jacobian
from diffsim.support.motion import angular_momentum_matrix as angular_momentum_matrix
from diffsim.support.motion import apply_ft as apply_ft
from diffsim.support.motion import constraint_cost as constraint_cost
from diffsim.support.motion import constraint_gradient as constraint_gradient
from diffsim.support.motion import differentiate_pos as differentiate_pos
from diffsim.support.motion import full_m as full_m
from diffsim.support.motion import integrate_pos as integrate_pos
from diffsim.support.motion import jac as jac
from diffsim.support.motion import jac_body as jac_body
from diffsim.support.motion import jac_body_com as jac_body_com
from diffsim.support.motion import jac_dot as jac_dot
from diffsim.support.motion import jac_geom as jac_geom
from diffsim.support.motion import jac_point_axis as jac_point_axis
from diffsim.support.motion import jac_site as jac_site
from diffsim.support.motion import jac_subtree_com as jac_subtree_com
from diffsim.support.motion import mul_m as mul_m
from diffsim.support.motion import mul_m2 as mul_m2
from diffsim.support.motion import object_acceleration as object_acceleration
from diffsim.support.motion import object_velocity as object_velocity
from diffsim.support.motion import rne as rne
from diffsim.support.motion import set_total_mass as set_total_mass
from diffsim.support.motion import solve_m as solve_m
from diffsim.support.motion import solve_m2 as solve_m2
from diffsim.support.motion import tendon_paths as tendon_paths
from diffsim.support.motion import total_mass as total_mass
from diffsim.support.state_vectors import COMPONENTS as COMPONENTS
from diffsim.support.state_vectors import checkpoint_leaves as checkpoint_leaves
from diffsim.support.state_vectors import from_checkpoint as from_checkpoint
from diffsim.support.state_vectors import get_state as get_state
from diffsim.support.state_vectors import reset as reset
from diffsim.support.state_vectors import set_keyframe as set_keyframe
from diffsim.support.state_vectors import set_state as set_state
from diffsim.support.state_vectors import state_size as state_size
