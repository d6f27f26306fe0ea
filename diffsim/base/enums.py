"""MuJoCo's enumerations and its smallest number.

Values are taken from mjmodel.h and mjdata.h of 3.8.1, so integer arrays compare equal to MuJoCo's.
`Status` is ours: the bits of `data.status`.
"""

from enum import IntEnum, IntFlag

# MuJoCo's lower bound for masses, inertias, lengths and divisors (mjMINVAL)
MINVAL = 1e-15


class DisableBit(IntFlag):
    """Bits of `opt.disableflags`: features that are on unless disabled (mjtDisableBit)."""

    CONSTRAINT = 1
    EQUALITY = 2
    FRICTIONLOSS = 4
    LIMIT = 8
    CONTACT = 16
    SPRING = 32
    DAMPER = 64
    GRAVITY = 128
    CLAMPCTRL = 256
    WARMSTART = 512
    FILTERPARENT = 1024
    ACTUATION = 2048
    REFSAFE = 4096
    SENSOR = 8192
    MIDPHASE = 16384
    EULERDAMP = 32768
    AUTORESET = 65536
    NATIVECCD = 131072
    ISLAND = 262144
    MULTICCD = 524288


class EnableBit(IntFlag):
    """Bits of `opt.enableflags`: features that are off unless enabled (mjtEnableBit)."""

    OVERRIDE = 1
    ENERGY = 2
    FWDINV = 4
    INVDISCRETE = 8
    SLEEP = 16


class JointType(IntEnum):
    """Types of joints (mjtJoint)."""

    FREE = 0
    BALL = 1
    SLIDE = 2
    HINGE = 3


class GeomType(IntEnum):
    """Types of geoms (mjtGeom)."""

    PLANE = 0
    HFIELD = 1
    SPHERE = 2
    CAPSULE = 3
    ELLIPSOID = 4
    CYLINDER = 5
    BOX = 6
    MESH = 7
    SDF = 8
    FLEX = 105
    SKIN = 106
    NONE = 1001


class Projection(IntEnum):
    """Camera projections (mjtProjection)."""

    PERSPECTIVE = 0
    ORTHOGRAPHIC = 1


class CamLightMode(IntEnum):
    """How a camera or light follows its body (mjtCamLight)."""

    FIXED = 0
    TRACK = 1
    TRACKCOM = 2
    TARGETBODY = 3
    TARGETBODYCOM = 4


class LightType(IntEnum):
    """Types of lights (mjtLightType)."""

    SPOT = 0
    DIRECTIONAL = 1
    POINT = 2
    IMAGE = 3


class TextureType(IntEnum):
    """Types of textures (mjtTexture)."""

    TWO_D = 0
    CUBE = 1
    SKYBOX = 2


class TextureRole(IntEnum):
    """What a texture is used for (mjtTextureRole)."""

    USER = 0
    RGB = 1
    OCCLUSION = 2
    ROUGHNESS = 3
    METALLIC = 4
    NORMAL = 5
    OPACITY = 6
    EMISSIVE = 7
    RGBA = 8
    ORM = 9


class ColorSpace(IntEnum):
    """Colour spaces of textures (mjtColorSpace)."""

    AUTO = 0
    LINEAR = 1
    SRGB = 2


class Integrator(IntEnum):
    """Integrators (mjtIntegrator)."""

    EULER = 0
    RK4 = 1
    IMPLICIT = 2
    IMPLICITFAST = 3
    # new in MuJoCo 3.13
    DISCRETE = 4


class Cone(IntEnum):
    """Friction cones (mjtCone)."""

    PYRAMIDAL = 0
    ELLIPTIC = 1


class Jacobian(IntEnum):
    """Layouts of the constraint Jacobian; without effect on physics (mjtJacobian)."""

    DENSE = 0
    SPARSE = 1
    AUTO = 2


class Solver(IntEnum):
    """Constraint solvers (mjtSolver)."""

    PGS = 0
    CG = 1
    NEWTON = 2


class EqType(IntEnum):
    """Types of equality constraints (mjtEq)."""

    CONNECT = 0
    WELD = 1
    JOINT = 2
    TENDON = 3
    FLEX = 4
    FLEXVERT = 5
    FLEXSTRAIN = 6
    DISTANCE = 7


class WrapType(IntEnum):
    """Elements of a tendon's path (mjtWrap)."""

    NONE = 0
    JOINT = 1
    PULLEY = 2
    SITE = 3
    SPHERE = 4
    CYLINDER = 5


class TrnType(IntEnum):
    """What an actuator acts on (mjtTrn)."""

    JOINT = 0
    JOINTINPARENT = 1
    SLIDERCRANK = 2
    TENDON = 3
    SITE = 4
    BODY = 5
    UNDEFINED = 1000


class DynType(IntEnum):
    """Activation dynamics (mjtDyn)."""

    NONE = 0
    INTEGRATOR = 1
    FILTER = 2
    FILTEREXACT = 3
    MUSCLE = 4
    DCMOTOR = 5
    USER = 6


class GainType(IntEnum):
    """Actuator gains (mjtGain)."""

    FIXED = 0
    AFFINE = 1
    MUSCLE = 2
    DCMOTOR = 3
    USER = 4


class BiasType(IntEnum):
    """Actuator biases (mjtBias)."""

    NONE = 0
    AFFINE = 1
    MUSCLE = 2
    DCMOTOR = 3
    USER = 4


class ObjType(IntEnum):
    """Kinds of objects (mjtObj)."""

    UNKNOWN = 0
    BODY = 1
    XBODY = 2
    JOINT = 3
    DOF = 4
    GEOM = 5
    SITE = 6
    CAMERA = 7
    LIGHT = 8
    FLEX = 9
    MESH = 10
    SKIN = 11
    HFIELD = 12
    TEXTURE = 13
    MATERIAL = 14
    PAIR = 15
    EXCLUDE = 16
    EQUALITY = 17
    TENDON = 18
    ACTUATOR = 19
    SENSOR = 20
    NUMERIC = 21
    TEXT = 22
    TUPLE = 23
    KEY = 24
    PLUGIN = 25
    FRAME = 100
    DEFAULT = 101
    MODEL = 102


class FlexSelf(IntEnum):
    """How a flex finds collisions with itself (mjtFlexSelf)."""

    NONE = 0
    NARROW = 1
    BVH = 2
    SAP = 3
    AUTO = 4


class Elastic2D(IntFlag):
    """Which deformations of a flex of dimension 2 are elastic: the values of `flex_elastic2d`."""

    NONE = 0
    BEND = 1
    STRETCH = 2


class SensorType(IntEnum):
    """Types of sensors (mjtSensor)."""

    TOUCH = 0
    ACCELEROMETER = 1
    VELOCIMETER = 2
    GYRO = 3
    FORCE = 4
    TORQUE = 5
    MAGNETOMETER = 6
    RANGEFINDER = 7
    CAMPROJECTION = 8
    JOINTPOS = 9
    JOINTVEL = 10
    TENDONPOS = 11
    TENDONVEL = 12
    ACTUATORPOS = 13
    ACTUATORVEL = 14
    ACTUATORFRC = 15
    JOINTACTFRC = 16
    TENDONACTFRC = 17
    BALLQUAT = 18
    BALLANGVEL = 19
    JOINTLIMITPOS = 20
    JOINTLIMITVEL = 21
    JOINTLIMITFRC = 22
    TENDONLIMITPOS = 23
    TENDONLIMITVEL = 24
    TENDONLIMITFRC = 25
    FRAMEPOS = 26
    FRAMEQUAT = 27
    FRAMEXAXIS = 28
    FRAMEYAXIS = 29
    FRAMEZAXIS = 30
    FRAMELINVEL = 31
    FRAMEANGVEL = 32
    FRAMELINACC = 33
    FRAMEANGACC = 34
    SUBTREECOM = 35
    SUBTREELINVEL = 36
    SUBTREEANGMOM = 37
    INSIDESITE = 38
    GEOMDIST = 39
    GEOMNORMAL = 40
    GEOMFROMTO = 41
    CONTACT = 42
    E_POTENTIAL = 43
    E_KINETIC = 44
    CLOCK = 45
    TACTILE = 46
    PLUGIN = 47
    USER = 48


class Stage(IntEnum):
    """The stage of the pipeline after which a sensor can be computed (mjtStage)."""

    NONE = 0
    POS = 1
    VEL = 2
    ACC = 3


class DataType(IntEnum):
    """The type of a sensor's readings, which decides how `cutoff` clamps them (mjtDataType)."""

    REAL = 0
    POSITIVE = 1
    AXIS = 2
    QUATERNION = 3


class ConDataField(IntEnum):
    """Fields of contact sensors (mjtConDataField)."""

    FOUND = 0
    FORCE = 1
    TORQUE = 2
    DIST = 3
    POS = 4
    NORMAL = 5
    TANGENT = 6


class RayDataField(IntEnum):
    """Fields of range finders (mjtRayDataField)."""

    DIST = 0
    DIR = 1
    ORIGIN = 2
    POINT = 3
    NORMAL = 4
    DEPTH = 5


class CamOutBit(IntFlag):
    """Bits of camera outputs (mjtCamOutBit)."""

    RGB = 1
    DEPTH = 2
    DIST = 4
    NORMAL = 8
    SEG = 16


class SameFrame(IntEnum):
    """Which frames of a body coincide (mjtSameFrame)."""

    NONE = 0
    BODY = 1
    INERTIA = 2
    BODYROT = 3
    INERTIAROT = 4


class SleepPolicy(IntEnum):
    """Whether a tree may sleep (mjtSleepPolicy)."""

    AUTO = 0
    AUTO_NEVER = 1
    AUTO_ALLOWED = 2
    NEVER = 3
    ALLOWED = 4
    INIT = 5


class LRMode(IntEnum):
    """The actuators for which the compiler computes length ranges (mjtLRMode)."""

    NONE = 0
    MUSCLE = 1
    MUSCLEUSER = 2
    ALL = 3


class ConstraintType(IntEnum):
    """Families of constraint rows (mjtConstraint)."""

    EQUALITY = 0
    FRICTION_DOF = 1
    FRICTION_TENDON = 2
    LIMIT_JOINT = 3
    LIMIT_TENDON = 4
    CONTACT_FRICTIONLESS = 5
    CONTACT_PYRAMIDAL = 6
    CONTACT_ELLIPTIC = 7


class ConstraintState(IntEnum):
    """The zone of its law in which a constraint row is (mjtConstraintState)."""

    SATISFIED = 0
    QUADRATIC = 1
    LINEARNEG = 2
    LINEARPOS = 3
    CONE = 4


class StateBit(IntFlag):
    """Components of a state vector (mjtState)."""

    TIME = 1
    QPOS = 2
    QVEL = 4
    ACT = 8
    HISTORY = 16
    WARMSTART = 32
    CTRL = 64
    QFRC_APPLIED = 128
    XFRC_APPLIED = 256
    EQ_ACTIVE = 512
    MOCAP_POS = 1024
    MOCAP_QUAT = 2048
    USERDATA = 4096
    PLUGIN = 8192
    PHYSICS = QPOS | QVEL | ACT | HISTORY
    FULLPHYSICS = TIME | PHYSICS | PLUGIN
    USER = CTRL | QFRC_APPLIED | XFRC_APPLIED | EQ_ACTIVE | MOCAP_POS | MOCAP_QUAT | USERDATA
    INTEGRATION = FULLPHYSICS | USER | WARMSTART


class Status(IntFlag):
    """Bits of `data.status`; zero means that nothing went wrong. `diffsim.check(data)` explains them."""

    BAD_QPOS = 1
    BAD_QVEL = 2
    BAD_QACC = 4
    BAD_CTRL = 8
    CONTACTS_DROPPED = 16
    NOT_CONVERGED = 32
    BAD_INPUT = 64
    BAD_TIME = 128
    ILL_CONDITIONED = 256
