"""What other versions of MuJoCo have and 3.8.1 has not: what to write instead, or since when it is there.

Source: MuJoCo changelog.
"""

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
NEWER_ATTRIBUTES: dict[str, dict[str, str]] = {
    "geom": {"surfacevel": "3.11", "adhesion": "3.11"},
    "pair": {"adhesion": "3.11"},
    "site": {"mesh": "3.13"},
}

# and by parent and element
NEWER_ELEMENTS: dict[str, dict[str, str]] = {"actuator": {"pid": "3.12"}, "default": {"pid": "3.12"}}
