"""Random models as XML: trees of any shape with stacked joints, springs, dampers, tendons, actuators, a medium."""

import numpy as np

Rng = np.random.Generator


def numbers(rng: Rng, count: int, low: float = -1.0, high: float = 1.0) -> str:
    """`count` random numbers as an attribute's text."""
    return " ".join(f"{x:.4f}" for x in rng.uniform(low, high, size=count))


def chance(rng: Rng, share: float, text: str) -> str:
    """The text, in a share of all cases."""
    return text if rng.uniform() < share else ""


def joint(rng: Rng, name: str, kind: str) -> str:
    """A joint with random springs and dampers; free joints have none of an axis."""
    poly = numbers(rng, 3, 0, 2) if rng.uniform() < 0.3 else numbers(rng, 1, 0, 2)
    scalar = kind in ("hinge", "slide")
    parts = [f'<joint name="{name}" type="{kind}"']
    parts.append("" if kind == "free" else f'pos="{numbers(rng, 3, -0.1, 0.1)}"')
    parts.append(f'axis="{numbers(rng, 3)}" ref="{rng.uniform(-9, 9):.3f}"' if scalar else "")
    parts.append(chance(rng, 0.5, f'stiffness="{poly}"'))
    parts.append(chance(rng, 0.5, f'damping="{poly}"'))
    parts.append(chance(rng, 0.4, f'armature="{rng.uniform(0, 0.1):.3f}"'))
    parts.append(chance(rng, 0.3, f'springref="{rng.uniform(-9, 9):.3f}"') if scalar else "")
    parts.append(chance(rng, 0.2, 'actuatorgravcomp="true"'))
    parts.append(chance(rng, 0.2, 'actuatorfrcrange="-0.5 0.4"') if scalar else "")
    return " ".join(parts) + "/>"


def geom(rng: Rng) -> str:
    """A geom of a random shape, some in the medium as ellipsoids."""
    kind = rng.choice(["sphere", "capsule", "ellipsoid", "cylinder", "box"])
    fluid = chance(rng, 0.2, f'fluidshape="ellipsoid" fluidcoef="{numbers(rng, 5, 0.1, 1)}"')
    place = f'pos="{numbers(rng, 3, -0.2, 0.2)}" euler="{numbers(rng, 3, -90, 90)}"'
    density = f'density="{rng.uniform(100, 900):.1f}"'
    return f'<geom type="{kind}" size="{numbers(rng, 3, 0.1, 0.3)}" {place} {density} {fluid}/>'


def body(rng: Rng, index: int, root: bool, children: str, scalars: list[str]) -> str:
    """A body with up to three joints, or a free one, around its children."""
    kinds = list(rng.choice(["hinge", "slide", "ball", "hinge"], size=rng.integers(0, 4)))
    # a ball comes last: no rotation may follow it
    kinds = [kind for kind in kinds if kind != "ball"] + ["ball"] * ("ball" in kinds)
    kinds = ["free"] if root and rng.uniform() < 0.4 else kinds
    joints = []
    for k, kind in enumerate(kinds):
        joints.append(joint(rng, f"j{index}_{k}", str(kind)))
        if kind in ("hinge", "slide"):
            scalars.append(f"j{index}_{k}")
    frame = f'pos="{numbers(rng, 3, -0.5, 0.5)}" euler="{numbers(rng, 3, -180, 180)}"'
    gravcomp = chance(rng, 0.3, f'gravcomp="{rng.uniform(0, 1.5):.3f}"')
    site = f'<site name="s{index}" pos="{numbers(rng, 3, -0.2, 0.2)}" euler="{numbers(rng, 3, -90, 90)}"/>'
    inside = "".join([*joints, geom(rng), site, children])
    return f'<body name="b{index}" {frame} {gravcomp}>{inside}</body>'


def tendons(rng: Rng, count: int, scalars: list[str]) -> tuple[str, list[str]]:
    """Fixed and spatial tendons, and their names."""
    found, names = [], []
    for k in range(int(rng.integers(0, 4))):
        name = f"t{k}"
        extra = chance(rng, 0.5, 'stiffness="3 1"') + chance(rng, 0.5, ' damping="0.3 0.1 0.1"')
        if scalars and rng.uniform() < 0.5:
            wraps = "".join(
                f'<joint joint="{j}" coef="{rng.uniform(-1, 1):.3f}"/>' for j in sorted({*rng.choice(scalars, 2)})
            )
            found.append(f'<fixed name="{name}" {extra}>{wraps}</fixed>')
        else:
            first, second = rng.choice(count, size=2, replace=False)
            armature = chance(rng, 0.4, 'armature="0.05"')
            found.append(
                f'<spatial name="{name}" {extra} {armature}><site site="s{first}"/><site site="s{second}"/></spatial>'
            )
        names.append(name)
    return "".join(found), names


def actuators(rng: Rng, count: int, scalars: list[str], cords: list[str]) -> str:
    """Actuators on random targets."""
    found = []
    for _ in range(int(rng.integers(0, 6))):
        targets = [f'site="s{rng.integers(count)}" gear="{numbers(rng, 6)}"']
        targets += [f'joint="{rng.choice(scalars)}" gear="{rng.uniform(-2, 2):.3f}"'] * 2 if scalars else []
        targets += [f'tendon="{rng.choice(cords)}"'] if cords else []
        target = rng.choice(targets)
        law = rng.choice(
            [
                "<motor {} forcelimited='true' forcerange='-0.5 0.6'/>",
                "<position {} kp='3' kv='0.4'/>",
                "<velocity {} kv='0.7'/>",
                "<general {} dyntype='filterexact' dynprm='0.1' gaintype='affine' gainprm='1 0.3 0.2' "
                "biastype='affine' biasprm='0.1 -1 -0.2'/>",
                "<general {} dyntype='integrator' actlimited='true' actrange='-0.5 0.5' actearly='true'/>",
                "<general {} dyntype='muscle' gaintype='muscle' biastype='muscle' lengthrange='0.1 1.3' "
                "dynprm='0.01 0.04 0' gainprm='0.75 1.05 3 200 0.5 1.6 1.5 1.3 1.2' "
                "biasprm='0.75 1.05 3 200 0.5 1.6 1.5 1.3 1.2'/>",
            ]
        )
        found.append(str(law).format(target))
    return "".join(found)


def random_model(seed: int) -> str:
    """The model of a seed."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 13))
    parent = [-1 if k == 0 else int(rng.integers(-1, k)) for k in range(count)]
    scalars: list[str] = []
    inside = [""] * count
    world = ""
    for k in reversed(range(count)):
        text = body(rng, k, parent[k] < 0, inside[k], scalars)
        if parent[k] < 0:
            world += text
        else:
            inside[parent[k]] += text
    cords, names = tendons(rng, count, scalars)
    medium = chance(rng, 0.4, f'density="{rng.uniform(0, 3):.3f}" viscosity="{rng.uniform(0, 0.5):.3f}"')
    wind = chance(rng, 0.3, f'wind="{numbers(rng, 3)}"')
    return (
        f'<mujoco><option {medium} {wind}><flag contact="disable"/></option><worldbody>{world}</worldbody>'
        f"<tendon>{cords}</tendon><actuator>{actuators(rng, count, scalars, names)}</actuator></mujoco>"
    )


def chain(count: int) -> str:
    """A chain of bodies, hinges about changing axes, with a ball and a slide now and then."""
    kinds = ("hinge", "hinge", "slide", "ball")
    text = ""
    for k in reversed(range(count)):
        axis = ("1 0 0", "0 1 0", "0 0 1")[k % 3]
        text = (
            f'<body pos="0 0 -0.1"><joint type="{kinds[k % 4]}" axis="{axis}" damping="0.01"/>'
            f'<geom type="capsule" size="0.02 0.04"/>{text}</body>'
        )
    return f"<mujoco><worldbody>{text}</worldbody></mujoco>"


def star(count: int) -> str:
    """A free body with many arms."""
    arms = "".join(
        f'<body pos="{np.cos(k):.4f} {np.sin(k):.4f} 0"><joint axis="0 {k % 2} 1"/>'
        '<geom size="0.1 0.1" type="capsule"/></body>'
        for k in range(count - 1)
    )
    return f'<mujoco><worldbody><body><freejoint/><geom size="0.3"/>{arms}</body></worldbody></mujoco>'


def swarm(count: int) -> str:
    """Free bodies, each a tree of its own."""
    bodies = "".join(
        f'<body pos="{k} 0 1"><freejoint/><geom type="box" size="0.1 0.2 0.3" pos="0.1 0 0.05"/></body>'
        for k in range(count)
    )
    return f"<mujoco><worldbody>{bodies}</worldbody></mujoco>"
