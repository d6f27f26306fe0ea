"""Mathematics for all modules: small vectors, rotations, spatial algebra, safe functions, linear algebra.

All functions act on the last axis (the last two for matrices) and broadcast over the leading ones. Sums over 3, 4 or 6
elements are written out: XLA turns a reduction over a short axis into code that is 15 to 40 times slower.

Public for users: functions of quaternions (w, x, y, z) and poses, such as `diffsim.math.quat_mul`. Their derivatives
are finite everywhere.
"""

from diffsim.math.rotation import axis_angle_to_quat as axis_angle_to_quat
from diffsim.math.rotation import euler_to_quat as euler_to_quat
from diffsim.math.rotation import mat_to_quat as mat_to_quat
from diffsim.math.rotation import pose_apply as pose_apply
from diffsim.math.rotation import pose_apply_inv as pose_apply_inv
from diffsim.math.rotation import pose_inv as pose_inv
from diffsim.math.rotation import pose_mul as pose_mul
from diffsim.math.rotation import quat_conj as quat_conj
from diffsim.math.rotation import quat_derivative as quat_derivative
from diffsim.math.rotation import quat_exp as quat_exp
from diffsim.math.rotation import quat_integrate as quat_integrate
from diffsim.math.rotation import quat_log as quat_log
from diffsim.math.rotation import quat_mul as quat_mul
from diffsim.math.rotation import quat_normalize as quat_normalize
from diffsim.math.rotation import quat_sub as quat_sub
from diffsim.math.rotation import quat_to_mat as quat_to_mat
from diffsim.math.rotation import quat_to_vel as quat_to_vel
from diffsim.math.rotation import quat_z_to_vec as quat_z_to_vec
from diffsim.math.rotation import rotate as rotate
from diffsim.math.rotation import rotate_inv as rotate_inv
from diffsim.math.vector import cross as cross
from diffsim.math.vector import dot as dot
