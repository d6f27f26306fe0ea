"""MuJoCo's distance fields as parts of models: instances of its plugins, their meshes, and geoms."""

SETTINGS = {
    "bolt": {"radius": 0.255},
    "bowl": {"height": 0.2, "radius": 0.5, "thickness": 0.04},
    "gear": {"alpha": 0.1, "teeth": 12, "diameter": 1.2, "innerdiameter": 0.4},
    "nut": {},
    "torus": {"radius1": 0.3},
}


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
    meshes = "".join(f"<mesh name='{name}'><plugin instance='{name}'/></mesh>" for name in names)
    return f"<extension>{''.join(map(_instance, names))}</extension><asset>{meshes}</asset>"


def field_geom(name: str, attributes: str = "") -> str:
    """A geom that collides as a field."""
    return f"<geom type='sdf' mesh='{name}' {attributes}><plugin instance='{name}'/></geom>"
