"""The generated models of the benchmark: `made:chain`, a chain of 100 bodies, and `made:hand`, 44 wrapping tendons."""

# number of fingers of `made:hand`
FINGERS = 5

# number of links of a finger of `made:hand`; each has a hinge
LINKS = 4


def chain(count: int = 100) -> str:
    """MJCF of a chain of bodies on hinges about alternating axes, every tenth with a motor."""
    bodies = ""
    for k in reversed(range(count)):
        axis = ("1 0 0", "0 1 0")[k % 2]
        bodies = (
            f'<body pos="0 0 -0.1"><joint name="j{k}" axis="{axis}" damping="0.01" stiffness="0.1"/>'
            f'<geom type="capsule" size="0.02 0.04" pos="0 0 -0.05"/>{bodies}</body>'
        )
    return _model(bodies, "", "".join(f'<motor joint="j{k}" gear="0.01"/>' for k in range(0, count, 10)))


def hand() -> str:
    """MJCF of a wrist with five fingers; each of the 22 joints has a flexor and an extensor that wrap around it."""
    tendons = []
    fingers = ""
    for finger in range(FINGERS):
        links = ""
        for link in reversed(range(LINKS)):
            links = _link(f"f{finger}{link}", f"{0.02 * (finger - 2) if link == 0 else 0} 0 0.04", "1 0 0", links)
            tendons.append((f"f{finger}{link - 1}" if link else "w1", f"f{finger}{link}"))
        fingers += links
    wrist = _link("w0", "0 0 0.04", "1 0 0", _link("w1", "0 0 0.04", "0 1 0", fingers))
    bodies = f'{_sites("arm")}<body pos="0 0 0">{wrist}</body>'
    tendons += [("arm", "w0"), ("w0", "w1")]
    # two tendons from each link to the next wrap around the joint between them; each tendon has a muscle
    paths = muscles = ""
    for below, above in tendons:
        for side in "ab":
            name = f"{above}{side}"
            path = f'<site site="{below}{side}"/><geom geom="{above}"/><site site="{name}"/>'
            paths += f'<spatial name="{name}" stiffness="1" damping="0.1">{path}</spatial>'
            muscles += f'<muscle tendon="{name}" force="1" lengthrange="0.01 0.1"/>'
    return _model(bodies, paths, muscles)


def _link(name: str, pos: str, axis: str, inside: str) -> str:
    """A body on a hinge, with a cylinder that tendons wrap around and sites where they end."""
    turned = 'euler="0 90 0"' if axis == "1 0 0" else 'euler="90 0 0"'
    return (
        f'<body pos="{pos}"><joint name="{name}" axis="{axis}" damping="0.01" stiffness="0.1" range="-90 90"/>'
        f'<geom name="{name}" type="cylinder" size="0.006 0.01" {turned} mass="0.001"/>'
        f'<geom type="capsule" size="0.005 0.012" pos="0 0 0.02"/>{_sites(name)}{inside}</body>'
    )


def _sites(name: str) -> str:
    """Ends of tendons on both sides of a link, just before the next joint, for either axis of the joint."""
    return "".join(f'<site name="{name}{side}" pos="{x} {x} 0.025"/>' for side, x in (("a", 0.008), ("b", -0.008)))


def _model(bodies: str, tendons: str, actuators: str) -> str:
    """A model without contacts."""
    return (
        '<mujoco><option><flag contact="disable"/></option>'
        f"<worldbody>{bodies}</worldbody><tendon>{tendons}</tendon><actuator>{actuators}</actuator></mujoco>"
    )


MADE = {"made:chain": chain, "made:hand": hand}
