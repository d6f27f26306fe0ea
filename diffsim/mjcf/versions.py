"""Words of MJCF that MuJoCo 3.8.1 does not have: removed ones with a remedy, newer ones with their version.

A word is an element, an attribute or a value. Words that 3.8.1 has, but whose meaning changed later, are in
base/changes.py. Source: MuJoCo changelog.
"""

from collections.abc import Iterator

# removed attributes, by element and attribute, with what to do instead
ATTRIBUTES: dict[str, dict[str, str]] = {
    "option": {
        "collision": "MuJoCo removed it; select pairs with contype, conaffinity and <exclude>",
        "apirate": "MuJoCo removed it, because nothing used it; delete it",
        "mpr_iterations": "it is now called ccd_iterations",
        "mpr_tolerance": "it is now called ccd_tolerance",
    },
    "flag": {
        "passive": "it is now two flags, spring and damper",
        "sensornoise": "MuJoCo removed it; add noise to the readings yourself",
    },
    "compiler": {
        "exactmeshinertia": 'it is now inertia="exact" of a <mesh>',
        "convexhull": "MuJoCo removed it; delete it",
    },
}

# removed elements, by parent and element, with what to do instead
ELEMENTS: dict[str, dict[str, str]] = {
    "equality": {"distance": "MuJoCo removed it; constrain the length of a spatial tendon with <tendon>"},
}

# attributes that came after 3.8.1, by element and attribute, with the version
NEWER_ATTRIBUTES: dict[str, dict[str, str]] = {
    "flag": {"diagexact": "3.9", "ipc": "3.14", "speculative": "4.0"},
    "compiler": {"conflict": "3.10", "savecanonical": "3.16", "savecompiled": "3.16", "passthrough": "3.17"},
    "body": {"simple": "3.11", "fuse": "3.16"},
    "joint": {"springyield": "4.0"},
    "geom": {"adhesion": "3.11", "castshadow": "4.0"},
    "pair": {"adhesion": "3.11"},
    "light": {"softness": "3.12"},
    "site": {"mesh": "3.13"},
    "texture": {"class": "3.17", "embed": "3.17"},
    "general": {"velrange": "3.12", "ffrange": "3.12", "inheritrange": "3.16"},
    "intvelocity": {"actlimited": "3.11"},
    "fixed": {"springyield": "4.0"},
    "spatial": {"springyield": "4.0"},
    "tendon": {"springyield": "4.0"},
    "tactile": {"cutoff": "3.13"},
    "insidesite": {"enclosed": "3.15"},
    "flex": {"nodecoord": "3.12"},
    "flexcomp": {"mesh": "3.16"},
    "elasticity": {"section": "3.17", "sectionsize": "3.17", "shear": "4.0", "yield": "4.0"},
    "key": {"plastic": "4.0"},
}

# elements that came after 3.8.1, by parent and element, with the version
NEWER_ELEMENTS: dict[str, dict[str, str]] = {
    "actuator": {"orientation": "3.11", "pid": "3.12"},
    "default": {"orientation": "3.11", "pid": "3.12", "texture": "3.17"},
}

# values of attribute 'input' of all actuators that have it
_SIGNATURE = frozenset({"pos", "vel", "ff", "voltage", "none"})
# values that came after 3.8.1, by element and attribute: the values, of which a file may give several, and the version
NEWER_WORDS: dict[tuple[str, str], tuple[frozenset[str], str]] = {
    ("dcmotor", "input"): (_SIGNATURE, "3.12"),
    ("general", "input"): (_SIGNATURE | {"quat", "expmap"}, "3.12"),
}

# required attributes that became optional, with the version (an <attach> without a model copies a part of its own
# model)
NEWER_WITHOUT: dict[tuple[str, str], str] = {("attach", "model"): "3.11"}

# newer attributes that can be ignored with any value, because they concern pictures, saving or speed
SILENT = {
    "body": ("simple",),
    "geom": ("castshadow",),
    "light": ("softness",),
    "texture": ("embed",),
    "compiler": ("savecanonical", "savecompiled", "passthrough"),
}
# newer attributes that can be ignored if their value switches them off
NOTHING = {
    "compiler": ("conflict",),
    "flag": ("diagexact", "ipc", "speculative"),
    "geom": ("adhesion",),
    "pair": ("adhesion",),
    "elasticity": ("shear", "yield"),
    "joint": ("springyield",),
    "fixed": ("springyield",),
    "spatial": ("springyield",),
}


def _refused(word: str) -> str:
    """What diffsim does with a newer word that it refuses, for the documentation."""
    return f"{REFUSED}: {INSTEAD[word]}".replace("<", "`<").replace(">", ">`") if word in INSTEAD else REFUSED


def says_nothing(tag: str, name: str, text: str) -> bool:
    """Whether a newer attribute can be ignored, because the model means the same without it."""
    words = text.split()
    # values that switch an attribute off: "warning" for `conflict`, "disable", and zeros
    none = words == ["warning" if name == "conflict" else "disable"] or all(word.strip("+-.0") == "" for word in words)
    return name in SILENT.get(tag, ()) or (none and name in NOTHING.get(tag, ()))


# newer words that diffsim supports in every model, as no file that 3.8.1 loads can contain them
BUILT = {
    ("geom", "surfacevel"): "3.11",
    ("attach", "frame"): "3.11",
    ("tendon", "armature"): "4.0",
    ("tendon", "actuatorfrcrange"): "4.0",
    ("tendon", "actuatorfrclimited"): "4.0",
}

# newer words that diffsim supports only if the model follows a MuJoCo that has them, `load(..., mujoco="4.0")`
BY_WORD: dict[tuple[str, str], str] = {}
# the same for values: element, attribute and value
BY_VALUE: dict[tuple[str, str, str], str] = {
    ("option", "integrator", "discrete"): "3.13",
    ("dcmotor", "input", "pos"): "3.12",
    ("dcmotor", "input", "vel"): "3.12",
    ("dcmotor", "input", "ff"): "3.12",
}
# values that MuJoCo removed later: element, attribute and value, with the version and what to do instead
REMOVED: dict[tuple[str, str, str], tuple[str, str]] = {
    ("dcmotor", "input", "position"): ("3.12", "input=pos, with gains in torques: multiply them by K / R"),
    ("dcmotor", "input", "velocity"): ("3.12", "input=vel, with gains in torques: multiply them by K / R"),
}

# what diffsim does with a word that it does not support, in the table of the documentation
REFUSED = "refused"

# what to do instead of newer words that are refused, and why they are
INSTEAD = {
    "pid": "it has several controls; use <position>, or the plugin mujoco.pid for an integral term",
    "orientation": "it has several forces; use three <position> on the ball joint, gear 1 0 0, 0 1 0 and 0 0 1",
    "adhesion": "contacts that pull have another cone of forces; use an <adhesion> actuator",
    "springyield": "plastic deformation would be a new part of the state",
    "yield": "plastic deformation would be a new part of the state",
    "plastic": "plastic deformation would be a new part of the state",
    "shear": "rods would be a new kind of flex; use <composite type=cable>, without mujoco=4.0 or later",
    "section": "rods would be a new kind of flex; use <composite type=cable>, without mujoco=4.0 or later",
    "sectionsize": "rods would be a new kind of flex; use <composite type=cable>, without mujoco=4.0 or later",
    "speculative": "contacts are searched for at one pose per step; use a smaller timestep",
    "ipc": "it is a mode of the integrator discrete",
    "diagexact": "constraints are regularized with the inertia at qpos0",
    "input": "an actuator has one control in diffsim; choose one input",
    "velrange": "it belongs to controls that only pid and dcmotor of 3.12 have",
    "ffrange": "it belongs to controls that only pid and dcmotor of 3.12 have",
}


def words() -> Iterator[tuple[str, str, str]]:
    """The rows of the documentation's table: version, the new element, attribute or value, and what diffsim does."""
    yield from ((since, f"`{name}` of `{tag}`", "supported") for (tag, name), since in BUILT.items())
    for (tag, name), since in BY_WORD.items():
        yield since, f"`{name}` of `{tag}`", f'supported with `mujoco="{since}"` or later'
    for (tag, name, value), since in BY_VALUE.items():
        yield since, f'`{name}="{value}"` of `{tag}`', f'supported with `mujoco="{since}"` or later'
    for tag, names in NEWER_ATTRIBUTES.items():
        for name, since in names.items():
            if name in SILENT.get(tag, ()):
                does = "ignored: it does not change the motion"
            else:
                does = "ignored if its value has no effect, else " * (name in NOTHING.get(tag, ())) + _refused(name)
            yield since, f"`{name}` of `{tag}`", does
    for section, tags in NEWER_ELEMENTS.items():
        yield from ((since, f"`{tag}` in `{section}`", _refused(tag)) for tag, since in tags.items())
    for (tag, name), (said, since) in NEWER_WORDS.items():
        yield since, f'`{name}="{" ".join(sorted(said))}"` of `{tag}`', _refused(name)
    yield from ((since, f"`{tag}` without `{name}`", REFUSED) for (tag, name), since in NEWER_WITHOUT.items())
