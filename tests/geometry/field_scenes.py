"""Distance fields as parts of models: instances of MuJoCo's plugins, their meshes, the octree of a mesh, and geoms."""

SETTINGS = {
    "bolt": {"radius": 0.255},
    "bowl": {"height": 0.2, "radius": 0.5, "thickness": 0.04},
    "gear": {"alpha": 0.1, "teeth": 12, "diameter": 1.2, "innerdiameter": 0.4},
    "nut": {},
    "torus": {"radius1": 0.3},
}


# a thin ring, of which MuJoCo compiles an octree
OCTREE = "octree"
RING = f"<mesh name='{OCTREE}' builtin='supertorus' params='12 .4 1 .7' scale='.35 .3 .3'/>"

# shapes that fields meet
SHAPES = {
    "sphere": "type='sphere' size='.3'",
    "capsule": "type='capsule' size='.15 .3'",
    "ellipsoid": "type='ellipsoid' size='.4 .2 .3'",
    "cylinder": "type='cylinder' size='.2 .3'",
    "box": "type='box' size='.2 .3 .25'",
}


def _instance(name: str) -> str:
    settings = "".join(f"<config key='{key}' value='{value}'/>" for key, value in SETTINGS[name].items())
    return f"<plugin plugin='mujoco.sdf.{name}'><instance name='{name}'>{settings}</instance></plugin>"


def extension(*names: str) -> str:
    """Plugins and meshes of some fields, for the top of a model."""
    plugins = [name for name in names if name != OCTREE]
    meshes = "".join(f"<mesh name='{name}'><plugin instance='{name}'/></mesh>" for name in plugins)
    meshes += RING if OCTREE in names else ""
    return f"<extension>{''.join(map(_instance, plugins))}</extension><asset>{meshes}</asset>"


def field_geom(name: str, attributes: str = "") -> str:
    """A geom that collides as a field."""
    if name == OCTREE:
        return f"<geom type='sdf' mesh='{name}' {attributes}/>"
    return f"<geom type='sdf' mesh='{name}' {attributes}><plugin instance='{name}'/></geom>"
