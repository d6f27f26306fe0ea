"""Short texts that ask for much, and deep or wide ones: macros, nesting, repetition, sizes and long names; seeded."""

import random
from collections.abc import Callable

from compiler.features import world

import diffsim
from hostile.judge import Case

Rng = random.Random
Made = tuple[str, dict[str, bytes]]

COUNTS = (0, 1, 2, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000, 10**6, 2**31 - 1, -1)
# what a text may repeat literally
LENGTHS = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000)
BODY = '<body name="{0}"><freejoint/><geom size=".1"/></body>'
MOVING = '<body name="b"><joint name="j"/><geom name="g" size=".1"/><site name="s"/></body>'
WIDE = {
    "worldbody": (
        *('<geom size=".1"/>', '<site name="s{0}"/>', BODY, '<camera name="c{0}"/>', "<light/>", "<frame/>"),
        *('<body><joint type="ball"/><geom type="box" size="1 1 1"/></body>', '<body mocap="true"/>'),
    ),
    "asset": (
        '<material name="m{0}"/>',
        '<texture name="t{0}" type="2d" builtin="flat" width="64" height="64"/>',
        '<mesh name="m{0}" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/>',
        '<hfield name="h{0}" nrow="4" ncol="4" size="1 1 1 1"/>',
        '<model name="n{0}" file="a.xml"/>',
    ),
    "contact": ('<exclude body1="b" body2="world"/>', '<pair geom1="g" geom2="f" name="p{0}"/>'),
    "equality": ('<connect body1="b" body2="world" anchor="0 0 0"/>', '<joint joint1="j"/>'),
    "tendon": ('<spatial name="t{0}"><site site="s"/><site site="r"/></spatial>',),
    "actuator": ('<motor joint="j" name="m{0}"/>', '<general joint="j" dyntype="integrator"/>', '<dcmotor joint="j"/>'),
    "sensor": ('<gyro site="s" name="g{0}"/>', '<contact geom1="g" num="9"/>', '<rangefinder camera="c"/>'),
    "keyframe": ('<key name="k{0}"/>', '<key qpos="0"/>'),
    "custom": ('<numeric name="n{0}" data="1 2"/>', '<text name="t{0}" data="a"/>', '<tuple name="u{0}"/>'),
    "default": ('<default class="d{0}"/>',),
}
SIZED = (
    '<size nuserdata="{0}"/>',
    '<size nkey="{0}"/>',
    '<size njmax="{0}" nconmax="{0}"/>',
    '<size memory="{0}"/>',
    '<size nuser_body="{0}" nuser_geom="{0}"/>',
    '<option iterations="{0}" ls_iterations="{0}"/>',
    '<custom><numeric name="max_contact_points" size="{0}" data="{0}"/></custom>',
    '<custom><numeric name="n" size="{0}"/></custom>',
    '<asset><texture name="t" type="2d" builtin="checker" width="{0}" height="{0}"/></asset>',
    '<asset><hfield name="h" nrow="{0}" ncol="{0}" size="1 1 1 1"/></asset>',
    '<asset><mesh name="m" builtin="sphere" params="{0}"/></asset>',
    '<asset><mesh name="m" builtin="torus" params="{0} .3"/></asset>',
    '<asset><mesh name="m" builtin="wedge" params="{0} {0} 30 30 .1"/></asset>',
    '<sensor><user dim="{0}"/></sensor>',
    '<sensor><contact geom1="g" num="{0}"/></sensor>',
    '<sensor><gyro site="s" nsample="{0}" interval="1"/></sensor>',
    '<sensor><rangefinder camera="c"/></sensor>',
    '<actuator><general joint="j" dyntype="user" actdim="{0}"/></actuator>',
    '<actuator><motor joint="j" delay=".1" nsample="{0}"/></actuator>',
    '<visual><quality numslices="{0}"/><global offwidth="{0}" offheight="{0}"/></visual>',
    '<statistic extent="{0}" meansize="{0}"/>',
)


def wide(rng: Rng) -> Made:
    """Many of one kind of element."""
    section = rng.choice(sorted(WIDE))
    row, length = rng.choice(WIDE[section]), rng.choice(LENGTHS)
    inside = "".join(row.format(k if rng.random() < 0.999 else 0) for k in range(length))
    floor = '<geom name="f" size="1"/><site name="r"/><camera name="c" resolution="9 9"/>'
    around = "" if section == "worldbody" else f"<{section}>{inside}</{section}>"
    return world(MOVING + floor + (inside if section == "worldbody" else ""), around), {"a.xml": world(BODY).encode()}


def deep(rng: Rng) -> Made:
    """Elements within elements."""
    tags = rng.choices(["body", "frame", 'replicate count="1"', 'replicate count="2"', "default", "worldbody"], k=2)
    depth = rng.choice(LENGTHS)
    names = [tags[0] if k % 3 else tags[1] for k in range(depth)]
    opening = "".join(f"<{name}>" + rng.choice(("", '<geom size=".1"/>')) for name in names)
    closing = "".join(f"</{name.split()[0]}>" for name in reversed(names))
    return world(opening + closing), {}


def repeated(rng: Rng) -> Made:
    """Replicates within replicates."""
    inside = rng.choice(['<geom size=".1"/>', BODY.format(""), "<site/>", MOVING, "<body/>", "<camera/>"])
    for _ in range(rng.randint(1, 4)):
        inside = (
            f'<replicate count="{rng.choice(COUNTS)}" offset=".3 0 0" sep="{rng.choice("_ab")}">{inside}</replicate>'
        )
    return world(inside), {}


def attached(rng: Rng) -> Made:
    """Models that attach models, doubling, in circles or in chains."""
    levels = rng.choice((1, 2, 5, 12, 40, 150, 400))
    times = rng.choice((1, 2, 3))

    def level(k: int) -> str:
        target = k + 1 if k < levels else rng.choice((0, k, levels + 1))
        calls = "".join(f'<frame><attach model="m" body="b" prefix="p{i}"/></frame>' for i in range(times))
        asset = f'<asset><model name="m" file="{target}.xml"/></asset>' if k < levels or rng.random() < 0.5 else ""
        body = f'<body name="b">{calls if asset else ""}</body>'
        return f'<mujoco model="m{k}">{asset}<worldbody>{body}</worldbody></mujoco>'

    return level(0), {f"{k}.xml": level(k).encode() for k in range(levels + 1)}


def included(rng: Rng) -> Made:
    """Files that include files."""
    levels = rng.choice((1, 2, 5, 20, 300))
    times = rng.choice((1, 2))

    def level(k: int) -> str:
        target = k + 1 if k < levels else rng.choice((0, k, levels + 1))
        return "<mujoco><worldbody>" + f'<include file="{target}.xml"/>' * times + "<body/></worldbody></mujoco>"

    return level(0), {f"{k}.xml": level(k).encode() for k in range(levels + 1)}


def sized(rng: Rng) -> Made:
    """Numbers that say how much of something there is."""
    size = rng.choice(COUNTS)
    camera = f'<camera name="c" resolution="{size} {size}"/>'
    return world(MOVING + camera, rng.choice(SIZED).format(size)), {}


def long(rng: Rng) -> Made:
    """Long names, long lists of numbers, many attributes."""
    length = rng.choice((10, 255, 256, 257, 5000, 10**5, 10**6))
    word, numbers = "a" * length, "1 " * length
    some = " ".join(f'a{k}="1"' for k in range(min(length, 10**5)))
    rows = (
        f'<worldbody><body name="{word}"/></worldbody>',
        f'<asset><mesh name="m" file="{word}"/></asset>',
        f'<include file="{word}.xml"/>',
        f'<asset><mesh name="m" vertex="{numbers}"/></asset>',
        f'<asset><hfield name="m" nrow="3" ncol="3" size="1 1 1 1" elevation="{numbers}"/></asset>',
        f'<worldbody><geom size="{numbers}"/></worldbody>',
        f'<custom><numeric name="n" data="{numbers}"/></custom>',
        f'<custom><text name="n" data="{word}"/></custom>',
        f"<worldbody><geom {some}/></worldbody>",
        f'<keyframe><key qpos="{numbers}"/></keyframe>',
        f'<worldbody><geom class="{word}"/></worldbody>',
        f'<compiler meshdir="{word}" eulerseq="{word}"/>',
        f"<{word}/>",
    )
    return f"<mujoco>{rng.choice(rows)}</mujoco>", {}


REFERRING = (
    *('<contact><pair geom1="g" geom2="f"/></contact>', '<contact><exclude body1="b" body2="world"/></contact>'),
    *('<sensor><jointpos joint="j"/></sensor>', '<sensor><distance geom1="g" geom2="f" cutoff="1"/></sensor>'),
    *('<actuator><motor joint="j"/></actuator>', '<equality><joint joint1="j"/></equality>'),
    '<tendon><spatial name="t" range="0 1"><site site="s"/><site site="r"/></spatial></tendon>',
    '<custom><tuple name="u"><element objtype="geom" objname="g"/></tuple></custom>',
    '<deformable><skin vertex="0 0 0" face="0 0 0"><bone body="b" bindpos="0 0 0" bindquat="1 0 0 0" vertid="0" '
    'vertweight="1"/></skin></deformable>',
)


def copied(rng: Rng) -> Made:
    """Copies of what is referred to, among others by keyframes of right and wrong lengths, of default classes of one
    name, and of trees that sleep.
    """
    count, sleep = rng.choice((0, 1, 2, 3, 10)), rng.choice(("", "never", "allowed", "init", "auto", "often"))
    body = MOVING.replace('<body name="b"', f'<body name="b" childclass="c" sleep="{sleep}"' if sleep else "<body")
    default = f'<default><default class="c"><geom size="{rng.choice((".1", ".2", "0", "-1"))}"/></default></default>'
    lengths = [max(0, rng.choice((1, count, 2 * count)) + rng.choice((0, 0, 0, 1, -1))) for _ in range(3)]
    keys = "".join(f'<key name="k{rng.choice((k, 0))}" qpos="{"0 " * n}"/>' for k, n in enumerate(lengths))
    more = "".join(rng.sample(REFERRING, k=rng.randint(0, 4))) + f"<keyframe>{keys}</keyframe>"
    flag = '<option><flag sleep="enable"/></option>' if rng.random() < 0.5 else ""
    child = world(body, default + more)
    if rng.random() < 0.5:
        inside = f'<attach model="m" body="{rng.choice(("b", "b", "a"))}" prefix="{rng.choice(("", "p", "a/"))}"/>'
        default, more = rng.choice((default, "")), '<asset><model name="m" file="m.xml"/></asset>'
    else:
        inside = body
    around = f'<replicate count="{count}" offset=".3 0 0">{inside}</replicate>' if rng.random() < 0.8 else inside
    floor = '<geom name="f" size="1"/><site name="r"/>'
    return world(floor + around, flag + default + more), {"m.xml": child.encode()}


def soft(rng: Rng) -> Made:
    """Soft bodies of odd types, sizes and materials."""
    kind = rng.choice(("grid", "box", "cylinder", "ellipsoid", "disc", "circle", "square", "mesh", "direct", "gmsh"))
    count = " ".join(str(rng.choice((0, 1, 2, 3, 5, -1, 300, 10**6))) for _ in range(3))
    number = lambda: rng.choice(("0", "1", "-1", ".3", "1e9", "nan", ""))  # noqa: E731
    elasticity = f'<elasticity young="{number()}" poisson="{number()}" thickness="{number()}" damping="{number()}"/>'
    edge = f'<edge equality="{rng.choice(("true", "false", "vert", "strain"))}" stiffness="{number()}"/>'
    contact = f'<contact selfcollide="{rng.choice(("none", "auto", "bvh", "sap", "narrow"))}" internal="true"/>'
    inside = "".join(rng.sample((elasticity, edge, contact, '<pin id="0"/>', f'<pin gridrange="{count} 1 1 1"/>'), k=3))
    settings = f'dof="{rng.choice(("full", "radial", "trilinear", "quadratic"))}" dim="{rng.choice((1, 2, 3, 4))}"'
    point = rng.choice(("", 'point="0 0 0 1 0 0 0 1 0 0 0 1" element="0 1 2 3"', 'point="0 0" element="0 9"'))
    return world(f'<flexcomp name="x" type="{kind}" count="{count}" spacing=".1 .1 .1" {settings} {point}>{inside}'
                 "</flexcomp>"), {}  # fmt: skip


def plugged(rng: Rng) -> Made:
    """Plugins, known and unknown, with odd settings and in odd places."""
    names = ("mujoco.pid", "mujoco.sensor.touch_grid", "mujoco.elasticity.cable", "mujoco.sdf.torus", "mujoco.nothing")
    name, keys = (
        rng.choice(names),
        ("kp", "ki", "imax", "slewmax", "size", "gamma", "fov", "nchannel", "twist", "radius1"),
    )
    configs = "".join(
        f'<config key="{rng.choice(keys)}" value="{rng.choice(COUNTS)}"/>' for _ in range(rng.randint(0, 4))
    )
    instance = f'<extension><plugin plugin="{name}"><instance name="i">{configs}</instance></plugin></extension>'
    used = rng.choice(('instance="i"', f'plugin="{name}"', 'plugin="mujoco.pid"', 'instance="o"', ""))
    places = (f'<actuator><plugin joint="j" {used}>{configs}</plugin></actuator>',
              f'<sensor><plugin objtype="site" objname="s" {used}>{configs}</plugin></sensor>',
              f'<asset><mesh name="m"><plugin {used}>{configs}</plugin></mesh></asset>')  # fmt: skip
    return world(MOVING, rng.choice((instance, "")) + "".join(rng.sample(places, k=rng.randint(0, 2)))), {}


SHAPES: tuple[Callable[[Rng], Made], ...] = (
    *(wide, deep, repeated, attached, included, sized, long),
    *(copied, soft, plugged),
)


def case(seed: int) -> Case:
    """A model of an odd structure, loaded."""
    xml, assets = SHAPES[seed % len(SHAPES)](random.Random(seed))
    return lambda: diffsim.load(xml, assets=assets)
