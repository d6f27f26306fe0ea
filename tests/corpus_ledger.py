"""Known differences between our compiler and the oracle's on the corpus, each with its reason."""

# files by path below .corpus/files
_FRAGMENT = "a part to be included: its root is <mujoco>, its bodies stand outside of <worldbody>; MuJoCo ignores them"
_ASCII = "has a mesh that is an ASCII STL file; MuJoCo reads only binary ones"
_ROBOTS = "example_robot_data/cmeel.prefix/share/example-robot-data/robots"
_SINGULAR = "four slides of one body in three directions: MuJoCo's accelerations are inf and nan from the first step on"
_HAND = "gymnasium_robotics/gymnasium_robotics/envs/assets"

LEDGER: dict[str, str] = {
    f"{_HAND}/fetch/robot.xml": _FRAGMENT,
    f"{_HAND}/hand/robot.xml": _FRAGMENT,
    f"{_HAND}/hand/robot_touch_sensors_92.xml": _FRAGMENT,
    f"{_ROBOTS}/simple_humanoid_description/urdf/simple_humanoid.urdf": _ASCII,
    "mujoco_mjx/mujoco/mjx/test_data/actuator/general_dyntype.xml": _SINGULAR,
}

# files whose contacts MuJoCo places otherwise, seen by tests/parity_wide.py, by path
OTHER_CONTACTS: dict[str, str] = {
    "robosuite/robosuite/models/assets/grippers/rethink_gripper.xml": (
        "cylinders flat on boxes: depths agree to 1e-12; of the points from tilting both, others count as new"
    ),
    "dm_control/dm_control/third_party/kinova/jaco_arm.xml": (
        "an edge of base on the flat end of link_2: MuJoCo's search ends in a triangle one of whose corners lies in "
        "that end, but is no corner of its polygon; it then sees no flat side, and leaves one point where there are two"
    ),
}

# files that are left out because they take minutes
SLOW: dict[str, str] = {}
