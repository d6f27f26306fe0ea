"""Saved models come back as they were; damaged files are refused with a clear error. Names, both ways."""

import functools
import io
import json
import zipfile

import jax
import numpy as np
import oracle
import pytest
from compiler.features import FEATURES
from uncompiled import uncompiled

import diffsim
from diffsim.base.errors import MjcfError
from diffsim.types.kinds import KINDS

PATHS = ["mujoco/mjx/test_data/constraints.xml"]


@functools.cache
def feature(name: str) -> diffsim.Model:
    return diffsim.load(FEATURES[name])


def assert_equal(first: diffsim.Model, second: diffsim.Model) -> None:
    assert first.topology == second.topology and first.topology.digest == second.topology.digest
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert one.dtype == other.dtype and not other.weak_type
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("source", [*PATHS, *(name for name in ("joints", "servos", "sensors", "empty", "custom"))])
def test_a_model_comes_back(source: str, tmp_path) -> None:
    model = feature(source) if source in FEATURES else diffsim.load(oracle.package_path(source))
    model.save(tmp_path / "model.npz")
    assert_equal(model, diffsim.load(tmp_path / "model.npz"))
    assert_equal(model, diffsim.load(str(tmp_path / "model.npz")))


def test_it_shares_the_compilation(tmp_path) -> None:
    model = feature("joints")
    model.save(tmp_path / "m")
    traced = []

    @jax.jit
    def mass(model: diffsim.Model) -> jax.Array:
        traced.append(model)
        return model.body_mass * model.opt.timestep

    mass(model)
    mass(diffsim.load(tmp_path / "m"))
    assert len(traced) == 1


def test_batched_leaves_and_other_capacities(tmp_path) -> None:
    model = feature("joints")
    batched = model.replace(body_mass=np.stack([model.body_mass, 2 * model.body_mass]))
    batched.save(tmp_path / "m.npz")
    assert_equal(batched, diffsim.load(tmp_path / "m.npz"))
    assert diffsim.load(tmp_path / "m.npz", max_contacts=3).topology.max_contacts == 3
    with pytest.raises(ValueError, match="keep is for models from XML"):
        diffsim.load(tmp_path / "m.npz", keep=("dof_damping",))


def test_a_file_from_before_lights_had_colours(tmp_path) -> None:
    new = diffsim.load("cartpole")
    new.save(tmp_path / "m.npz")
    colours = ("attenuation", "cutoff", "exponent", "ambient", "diffuse", "specular")
    head = ("ambient", "diffuse", "specular", "active")
    added = [f"light_{name}.npy" for name in colours] + [f"vis/headlight/{name}.npy" for name in head]
    assert set(added) <= set(entries_of(tmp_path / "m.npz"))
    rewritten(tmp_path / "m.npz", dict.fromkeys(added))
    # the light and the headlight of a cartpole have the default colours
    assert_equal(new, diffsim.load(tmp_path / "m.npz"))
    # in a batch in which all leaves have an axis of worlds, the colours have it, too; in another batch they need none
    both = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), new)
    for models in (both, new.replace(body_mass=both.body_mass)):
        models.save(tmp_path / "m.npz")
        rewritten(tmp_path / "m.npz", dict.fromkeys(added))
        jax.tree.map(np.testing.assert_array_equal, diffsim.load(tmp_path / "m.npz"), models)


def entries_of(path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(path, changed: dict[str, bytes | None]) -> None:
    kept = {**entries_of(path), **changed}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in kept.items():
            if data is not None:
                archive.writestr(name, data)


def as_npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def with_header(path, **changes) -> None:
    header = json.loads(np.load(path)["facts"].tobytes()) | changes
    rewritten(path, {"facts.npy": as_npy(np.frombuffer(json.dumps(header).encode(), np.uint8))})


def truncated(path) -> None:
    path.write_bytes(path.read_bytes()[:-400])


def flipped(path) -> None:
    data = bytearray(path.read_bytes())
    for place in range(200, len(data) - 3000, 500):
        data[place] ^= 0xFF
    path.write_bytes(bytes(data))


def huge(path) -> None:
    header = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (900000000000,), }"
    rewritten(path, {"body_mass.npy": header.ljust(127) + b"\n" + b"\0" * 64})


DAMAGES = {
    "empty": (lambda path: path.write_bytes(b""), "not a saved Model, or damaged"),
    "no zip": (lambda path: path.write_bytes(b"PK\x03\x04 and more"), "not a saved Model, or damaged"),
    "truncated": (truncated, "damaged"),
    "flipped": (flipped, "damaged"),
    "other npz": (lambda path: np.savez(path, a=np.zeros(3)), "not a saved Model"),
    "pickle": (lambda path: np.savez(path, facts=np.array([{}], object)), "not a saved Model"),
    "later version": (lambda path: with_header(path, version=99), "saved in format 99, this diffsim reads format 6"),
    "missing": (lambda path: rewritten(path, {"body_mass.npy": None}), "'body_mass' is missing"),
    "shape": (lambda path: rewritten(path, {"body_mass.npy": as_npy(np.zeros(99))}), r"body_mass has shape \(99,\)"),
    "complex": (
        lambda path: rewritten(path, {"body_mass.npy": as_npy(np.load(path)["body_mass"] + 1j)}),
        "it has body_mass of type complex128",
    ),
    "structure": (
        lambda path: rewritten(path, {"topology/body_parentid.npy": as_npy(np.zeros(2, np.int32))}),
        "its structure is not the one that was saved",
    ),
    "huge": (huge, "damaged"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused(damage: str, tmp_path) -> None:
    path = tmp_path / "model.npz"
    feature("joints").save(path)
    action, message = DAMAGES[damage]
    action(path)
    with pytest.raises(MjcfError, match=message) as caught:
        diffsim.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["servos", "sensors", "custom", "contact"])
def test_names_both_ways(name: str) -> None:
    model, theirs = feature(name), oracle.load_oracle(FEATURES[name])
    for kind, row in KINDS.items():
        code = getattr(oracle.mujoco.mjtObj, f"mjOBJ_{kind.upper()}")
        for index in range(getattr(theirs, row.size)):
            expected = oracle.mujoco.mj_id2name(theirs, code, index) or ""
            assert model.name(kind, index) == expected
            assert not expected or model.id(kind, expected) == index


def test_states_and_inputs_come_back(tmp_path) -> None:
    model = feature("joints")
    state, inputs = diffsim.make_state(model), diffsim.make_inputs(model)
    batch = jax.tree.map(lambda x: np.stack([x, x + 1]), state)
    for record in (state, inputs, batch):
        record.save(tmp_path / "kept")
        again = type(record).load(tmp_path / "kept")
        assert jax.tree.structure(record) == jax.tree.structure(again)
        jax.tree.map(np.testing.assert_array_equal, record, again)
    uncompiled(diffsim.step)(model, diffsim.State.load(saved(state, tmp_path)), inputs)


def saved(record, folder):
    record.save(folder / "record.npz")
    return folder / "record.npz"


def test_a_file_of_another_record_is_refused(tmp_path) -> None:
    model = feature("joints")
    state = saved(diffsim.make_state(model), tmp_path)
    with pytest.raises(MjcfError, match="not a saved Inputs: it says 'diffsim state'"):
        diffsim.Inputs.load(state)
    with pytest.raises(MjcfError, match="not a saved Model: it says 'diffsim state'"):
        diffsim.load(state)
    rewritten(state, {"qpos.npy": as_npy(np.array(["a"]))})
    with pytest.raises(MjcfError, match="does not fit"):
        diffsim.State.load(state)


def test_functions_are_not_saved(tmp_path) -> None:
    model = feature("joints")
    model = model.replace(hooks=diffsim.Hooks(passive=lambda model, state, data: -state.qvel))
    with pytest.raises(ValueError, match="hooks/passive is a function"):
        model.save(tmp_path / "m")


def test_checkpoints_hold_what_is_not_empty() -> None:
    """Orbax refuses empty arrays; what comes back is the same tree, and that of another model is refused."""
    model = diffsim.load("cartpole")
    tree = (diffsim.make_state(model), diffsim.make_inputs(model))
    leaves = diffsim.support.checkpoint_leaves(tree)
    assert leaves and all(np.size(leaf) for leaf in leaves.values())
    moved = {place: leaf + 1 for place, leaf in leaves.items()}
    state, inputs = diffsim.support.from_checkpoint(tree, moved)
    np.testing.assert_array_equal(state.qpos, tree[0].qpos + 1)
    assert inputs.mocap_pos.shape == tree[1].mocap_pos.shape
    with pytest.raises(ValueError, match="another pytree: leaf 1"):
        diffsim.support.from_checkpoint(tree, moved | {"1": np.zeros(7)})
    with pytest.raises(TypeError, match="leaves is a tuple, expected a table"):
        diffsim.support.from_checkpoint(tree, tree)
