"""What users compute from a model and the Data of one state: the table of contents, `diffsim.support`.

Names are MuJoCo's, without `mj_`. Objects are given by name, view or index. Source: MuJoCo documentation, "API
reference", support functions.
"""

from diffsim.simulate.carry import carry_over as carry_over
from diffsim.simulate.contact_queries import body_force as body_force
from diffsim.simulate.contact_queries import contact_force as contact_force
from diffsim.simulate.contact_queries import contacts as contacts
from diffsim.simulate.contact_queries import efc as efc
from diffsim.simulate.contact_queries import geom_force as geom_force
from diffsim.simulate.contact_queries import in_contact as in_contact
from diffsim.simulate.delay_queries import init_ctrl_history as init_ctrl_history
from diffsim.simulate.delay_queries import init_sensor_history as init_sensor_history
from diffsim.simulate.delay_queries import read_ctrl as read_ctrl
from diffsim.simulate.delay_queries import read_sensor as read_sensor
from diffsim.simulate.describe import print_data as print_data
from diffsim.simulate.describe import print_model as print_model
from diffsim.simulate.dynamics_queries import constraint_cost as constraint_cost
from diffsim.simulate.dynamics_queries import constraint_gradient as constraint_gradient
from diffsim.simulate.dynamics_queries import full_m as full_m
from diffsim.simulate.dynamics_queries import mul_m as mul_m
from diffsim.simulate.dynamics_queries import mul_m2 as mul_m2
from diffsim.simulate.dynamics_queries import rne as rne
from diffsim.simulate.dynamics_queries import set_total_mass as set_total_mass
from diffsim.simulate.dynamics_queries import solve_m as solve_m
from diffsim.simulate.dynamics_queries import solve_m2 as solve_m2
from diffsim.simulate.dynamics_queries import total_mass as total_mass
from diffsim.simulate.motion_queries import Jacobian as Jacobian
from diffsim.simulate.motion_queries import angular_momentum_matrix as angular_momentum_matrix
from diffsim.simulate.motion_queries import apply_ft as apply_ft
from diffsim.simulate.motion_queries import differentiate_pos as differentiate_pos
from diffsim.simulate.motion_queries import integrate_pos as integrate_pos
from diffsim.simulate.motion_queries import jac as jac
from diffsim.simulate.motion_queries import jac_body as jac_body
from diffsim.simulate.motion_queries import jac_body_com as jac_body_com
from diffsim.simulate.motion_queries import jac_dot as jac_dot
from diffsim.simulate.motion_queries import jac_geom as jac_geom
from diffsim.simulate.motion_queries import jac_point_axis as jac_point_axis
from diffsim.simulate.motion_queries import jac_site as jac_site
from diffsim.simulate.motion_queries import jac_subtree_com as jac_subtree_com
from diffsim.simulate.motion_queries import object_acceleration as object_acceleration
from diffsim.simulate.motion_queries import object_velocity as object_velocity
from diffsim.simulate.motion_queries import tendon_paths as tendon_paths
from diffsim.simulate.state_vectors import COMPONENTS as COMPONENTS
from diffsim.simulate.state_vectors import get_state as get_state
from diffsim.simulate.state_vectors import reset as reset
from diffsim.simulate.state_vectors import set_keyframe as set_keyframe
from diffsim.simulate.state_vectors import set_state as set_state
from diffsim.simulate.state_vectors import state_size as state_size
