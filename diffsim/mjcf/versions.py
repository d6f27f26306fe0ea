"""Words of MJCF that other versions of MuJoCo have and 3.8.1 has not: what to write instead, or since when they exist.

What changed in the numbers of files without new words is in base/changes.py. Source: MuJoCo changelog.
"""

from collections.abc import Iterator

# by element, then attribute
ATTRIBUTES: dict[str, dict[str, str]] = {
    "option": {
        "collision": "MuJoCo has removed it; choose pairs by contype, conaffinity and <exclude>",
        "apirate": "MuJoCo has removed it, nothing used it; delete it",
        "mpr_iterations": "it is called ccd_iterations now",
        "mpr_tolerance": "it is called ccd_tolerance now",
    },
    "flag": {
        "passive": "it is two flags now, spring and damper",
        "sensornoise": "MuJoCo has removed it; add noise to the readings yourself",
    },
    "compiler": {
        "exactmeshinertia": 'it is inertia="exact" of a <mesh> now',
        "convexhull": "MuJoCo has removed it; delete it",
    },
}

# by parent, then element
ELEMENTS: dict[str, dict[str, str]] = {
    "equality": {"distance": "MuJoCo has removed it; hold the length of a spatial tendon by <tendon>"},
}

# what came after 3.8.1: the version, by element and attribute
_ELASTICITY = {"section": "3.17", "sectionsize": "3.17", "shear": "4.0", "yield": "4.0"}
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
    "elasticity": _ELASTICITY,
    "key": {"plastic": "4.0"},
}

# and by parent and element
NEWER_ELEMENTS: dict[str, dict[str, str]] = {
    section: {"orientation": "3.11", "pid": "3.12"} | more
    for section, more in (("actuator", {}), ("default", {"texture": "3.17"}))
}

# what actuators may take
_SIGNATURE = frozenset({"pos", "vel", "ff", "voltage", "none"})
# and by element and attribute: words, of which the attribute may have several, and the version
NEWER_WORDS: dict[tuple[str, str], tuple[frozenset[str], str]] = {
    ("option", "integrator"): (frozenset({"discrete"}), "3.13"),
    ("dcmotor", "input"): (_SIGNATURE, "3.12"),
    ("general", "input"): (_SIGNATURE | {"quat", "expmap"}, "3.12"),
}

# by element and attribute that was required: an <attach> without a model copies parts of its own
NEWER_WITHOUT: dict[tuple[str, str], str] = {("attach", "model"): "3.11"}

# of these what says nothing that 3.8.1 does otherwise: pictures, saving and shortcuts of the program in any value, ...
SILENT = {
    "body": ("simple",),
    "geom": ("castshadow",),
    "light": ("softness",),
    "texture": ("embed",),
    "compiler": ("savecanonical", "savecompiled", "passthrough"),
}
# ... and forces in the value of no force
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


def says_nothing(tag: str, name: str, text: str) -> bool:
    """Whether a newer attribute can be left out, because 3.8.1 does what it says."""
    words = text.split()
    none = words == ["warning" if name == "conflict" else "disable"] or all(word.strip("+-.0") == "" for word in words)
    return name in SILENT.get(tag, ()) or (none and name in NOTHING.get(tag, ()))


# newer words that diffsim has for every model, because no file that 3.8.1 loads can say them
BUILT = {
    ("geom", "surfacevel"): "3.11",
    ("attach", "frame"): "3.11",
    ("tendon", "armature"): "4.0",
    ("tendon", "actuatorfrcrange"): "4.0",
    ("tendon", "actuatorfrclimited"): "4.0",
}

# newer words that diffsim has for models that name a version of MuJoCo that has them, `load(..., mujoco="4.0")`
BY_WORD: dict[tuple[str, str], str] = {}

REFUSED = "refused"


def words() -> Iterator[tuple[str, str, str]]:
    """The newer words, for the table in the documentation: the version, the words, and what diffsim does."""
    yield from ((since, f"`{name}` of `{tag}`", "built") for (tag, name), since in BUILT.items())
    for (tag, name), since in BY_WORD.items():
        yield since, f"`{name}` of `{tag}`", f'built for `mujoco="{since}"` and later'
    for tag, names in NEWER_ATTRIBUTES.items():
        for name, since in names.items():
            if name in SILENT.get(tag, ()):
                does = "read: it does not change the motion"
            else:
                does = "read where it says nothing, else refused" if name in NOTHING.get(tag, ()) else REFUSED
            yield since, f"`{name}` of `{tag}`", does
    for section, tags in NEWER_ELEMENTS.items():
        yield from ((since, f"`{tag}` in `{section}`", REFUSED) for tag, since in tags.items())
    for (tag, name), (said, since) in NEWER_WORDS.items():
        yield since, f'`{name}="{" ".join(sorted(said))}"` of `{tag}`', REFUSED
    yield from ((since, f"`{tag}` without `{name}`", REFUSED) for (tag, name), since in NEWER_WITHOUT.items())
