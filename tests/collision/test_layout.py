"""Candidate pairs, capacities and what is refused."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from geometry.hulls import free_scene
from geometry.scenes import PLANE
from uncompiled import uncompiled

import diffsim
from diffsim.base.enums import DisableBit, GeomType
from diffsim.base.errors import UnsupportedError
from diffsim.collision import capacities_of_numerics, collide, contact_layout, pairs, unsupported_pairs
from diffsim.collision.bounds import bounding_gap
from diffsim.collision.layout import Grid
from diffsim.compiler.convert import from_mujoco
from diffsim.geometry.colliders import COLLIDERS, NEVER_COLLIDE, UNSUPPORTED
from diffsim.types.data import Kinematics
from diffsim.types.hooks import Hooks
from diffsim.types.topology import Topology

CHAIN = """<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/>
<body name="a"><freejoint/><geom name="ga" size=".1"/>
  <body name="weld" pos="0 0 .1"><geom name="gweld" size=".1" condim="4"/>
    <body name="b" pos="0 0 .2"><joint/><geom name="gb" size=".1"/>
      <body name="c" pos="0 0 .2"><joint/>
        <geom name="gc" size=".1" type="capsule" fromto="0 0 0 0 0 .1" priority="1" condim="1"/>
</body></body></body></body></worldbody>{contact}</mujoco>"""


def pairs_of(xml: str, disableflags: int = 0) -> set[frozenset[str]]:
    model, _ = oracle.load_pair(xml)
    pairs = contact_layout(model.topology, disableflags).pairs
    name = model.topology.names["geom"]
    return {frozenset((name[a], name[b])) for a, b in zip(pairs.geom1, pairs.geom2, strict=True)}


def named(text: str) -> set[frozenset[str]]:
    return {frozenset(pair.split("-")) for pair in text.split()}


FLOOR = "floor-ga floor-gweld floor-gb floor-gc "


def test_bodies_welded_or_parent_and_child_do_not_collide() -> None:
    assert pairs_of(CHAIN.format(contact="")) == named(FLOOR + "ga-gc gweld-gc")
    everything = named(FLOOR + "ga-gc gweld-gc ga-gb gweld-gb gb-gc")
    assert pairs_of(CHAIN.format(contact=""), int(DisableBit.FILTERPARENT)) == everything
    assert pairs_of(CHAIN.format(contact=""), int(DisableBit.CONTACT)) == set()


def test_excludes_and_explicit_pairs() -> None:
    assert pairs_of(CHAIN.format(contact='<contact><exclude body1="a" body2="c"/></contact>')) == named(
        FLOOR + "gweld-gc"
    )
    model, _ = oracle.load_pair(
        CHAIN.format(
            contact='<contact><pair geom1="ga" geom2="gb"/><pair geom1="floor" geom2="gc" condim="6"/></contact>'
        )
    )
    layout = contact_layout(model.topology, 0)
    # explicit pairs ignore the filter, and replace the dynamic pair
    assert len(layout.pairs.geom1) == 7
    assert sorted(layout.pairs.pair.tolist()) == [-1] * 5 + [0, 1]


def test_slots_are_ordered_by_dimension_and_static() -> None:
    model, _ = oracle.load_pair(CHAIN.format(contact=""))
    layout = contact_layout(model.topology, 0)
    assert layout.dim.tolist() == sorted(layout.dim.tolist())
    assert layout.static and np.all(layout.geom >= 0)
    # higher priority decides the dimension of every pair with the capsule
    capsule = model.topology.id("geom", "gc")
    assert set(layout.dim[np.any(layout.geom == capsule, axis=1)].tolist()) == {1}


def test_capacity_keeps_the_nearest_and_counts_the_rest() -> None:
    balls = "".join(
        f'<body pos="{0.15 * i} 0 {0.05 - 0.01 * i}"><freejoint/><geom size=".1"/></body>' for i in range(5)
    )
    mjmodel = oracle.load_oracle(f'<mujoco><worldbody><geom type="plane" size="1 1 1"/>{balls}</worldbody></mujoco>')
    data = oracle.posed(mjmodel, mjmodel.qpos0)
    poses = oracle.record_of(Kinematics, mjmodel, data)
    everything = uncompiled(collide)(from_mujoco(mjmodel), poses)
    active = int(np.sum(np.asarray(everything.dist) < 0))
    assert active == data.ncon == 9
    few = uncompiled(collide)(from_mujoco(mjmodel, max_contacts=3), poses)
    assert len(few.dist) == 3
    assert int(few.ncon_dropped) == active - 3
    np.testing.assert_allclose(np.sort(few.dist), np.sort(everything.dist)[:3])
    culled = uncompiled(collide)(from_mujoco(mjmodel, max_pairs=2), poses)
    assert len(culled.dist) == 4
    assert int(culled.ncon_dropped) == active - 4


def test_pairs_of_flat_bodies_are_chosen_by_their_boxes() -> None:
    """A wide plate whose bounding sphere holds everything, and two pairs of small boxes that touch."""
    plate = "<body pos='0 0 -.3'><freejoint/><geom type='box' size='1 1 .02'/></body>"
    small = "".join(
        f"<body pos='{x} {y} {z}' euler='10 20 30'><freejoint/><geom type='box' size='.1 .1 .1'/></body>"
        for x, y, z in ((0.5, 0.5, 0), (0.5, 0.5, 0.19), (-0.5, 0, 0), (-0.5, 0, 0.19), (0, -0.6, 0.1))
    )
    mjmodel = oracle.load_oracle(f"<mujoco><worldbody>{plate}{small}</worldbody></mujoco>")
    data = oracle.posed(mjmodel, mjmodel.qpos0)
    touching = {tuple(geoms) for geoms in data.contact.geom.tolist()}
    contacts = uncompiled(collide)(from_mujoco(mjmodel, max_pairs=2), oracle.record_of(Kinematics, mjmodel, data))
    assert touching == {(1, 2), (3, 4)}
    assert {tuple(geoms) for geoms in np.asarray(contacts.geom)[np.asarray(contacts.dist) < 0].tolist()} == touching
    assert int(contacts.ncon_dropped) == 0


def test_no_bound_is_above_the_distance() -> None:
    """The bounds of pairs by spheres and boxes, with margins of nothing, are never above MuJoCo's distances."""
    kinds = ("type='box' size='.3 .1 .05'", "type='cylinder' size='.1 .3'", "type='ellipsoid' size='.1 .2 .4'")
    bodies = "".join(f"<body><freejoint/><geom {kind}/></body>" for kind in kinds * 2)
    mjmodel = oracle.load_oracle(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")
    model, closer = from_mujoco(mjmodel), 0
    everything = np.arange(mjmodel.ngeom)
    for seed in range(20):
        data, ends = oracle.sample(mjmodel, seed, spread=0.5), np.zeros(6)
        poses = jax.tree.map(jnp.asarray, oracle.record_of(Kinematics, mjmodel, data))
        gap = np.asarray(bounding_gap(model, poses, Grid(everything, everything, np.zeros((6, 6), np.int32))))
        spheres = np.linalg.norm(data.geom_xpos[:, None] - data.geom_xpos[None], axis=2)
        spheres -= mjmodel.geom_rbound[:, None] + mjmodel.geom_rbound[None]
        closer += np.sum(gap > spheres + 0.05)
        for i, j in zip(*np.triu_indices(6, 1), strict=True):
            distance = oracle.mujoco.mj_geomDistance(mjmodel, data, i, j, 10, ends)
            assert gap[i, j] <= distance + 1e-6
    assert closer > 50


@pytest.mark.parametrize("count", [6, 12])
def test_a_tower_has_room_for_its_contacts(count: int) -> None:
    box = '<body pos="0 0 .0999"><freejoint/><geom type="box" size=".1 .1 .1"/></body>'
    tower = f'<replicate count="{count}" offset="0 0 .199" euler="0 0 20">{box}</replicate>'
    xml = f'<mujoco><worldbody><geom type="plane" size="1 1 1"/>{tower}</worldbody></mujoco>'
    model, mjmodel = oracle.load_pair(xml)
    data = oracle.posed(mjmodel, mjmodel.qpos0)
    contacts = uncompiled(collide)(model, oracle.record_of(Kinematics, mjmodel, data))
    assert int(np.sum(contacts.dist < contacts.includemargin)) == data.ncon > 40 and contacts.ncon_dropped == 0


def test_tables_are_complete() -> None:
    kinds = [kind for kind in GeomType if kind <= GeomType.SDF]
    pairs = {(a, b) for a in kinds for b in kinds if a <= b}
    assert set(COLLIDERS) | set(UNSUPPORTED) | NEVER_COLLIDE == pairs
    assert not set(COLLIDERS) & set(UNSUPPORTED)
    assert (PLANE, PLANE) in NEVER_COLLIDE


def test_unsupported_pairs_are_refused_by_name() -> None:
    model, _ = oracle.load_pair(
        '<mujoco><asset><mesh name="m" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset>'
        '<worldbody><geom name="stone" type="mesh" mesh="m"/>'
        '<body><freejoint/><geom name="field" type="mesh" mesh="m"/></body></worldbody></mujoco>'
    )
    topology = dataclasses.replace(model.topology, geom_type=np.array([GeomType.HFIELD, GeomType.SDF]))
    assert len(unsupported_pairs(topology, 0)) == 1
    with pytest.raises(UnsupportedError, match=r"'stone'.*'field'"):
        contact_layout(topology, 0)


def test_capacities_of_numerics() -> None:
    names = ("max_contact_points", "other", "max_geom_pairs")
    assert capacities_of_numerics(names, np.array([8.0, 1.0, -1.0])) == {"max_contacts": 8}


def test_nothing_to_collide() -> None:
    model, mjmodel = oracle.load_pair("<mujoco><worldbody><body><joint/><geom size='1'/></body></worldbody></mujoco>")
    poses = oracle.record_of(Kinematics, mjmodel, oracle.posed(mjmodel, mjmodel.qpos0))
    contacts = uncompiled(collide)(model, poses)
    assert contacts.dist.shape == (0,) and contacts.geom.shape == (0, 2)
    assert contacts.dist.dtype == jnp.asarray(0.0).dtype


def test_a_filter_of_the_users_stands_in_for_the_masks_of_geoms() -> None:
    text = CHAIN.format(contact='<contact><pair geom1="ga" geom2="gb"/></contact>')
    model, _ = oracle.load_pair(text.replace('name="gc"', 'name="gc" contype="2" conaffinity="2"'))
    asked = []

    def without_the_floor(topology: Topology, geom1: np.ndarray, geom2: np.ndarray) -> np.ndarray:
        asked.append(len(geom1))
        return topology.geom_type[geom1] == GeomType.PLANE

    assert len(contact_layout(model.topology, 0).pairs.geom1) == 1 + 3
    pairs = contact_layout(model.topology, 0, without_the_floor).pairs
    # the masks of bodies stay, explicit pairs are not asked about
    assert pairs.pair.tolist() == [0] and asked == [3]
    for wrong in (lambda topology, geom1, geom2: geom1, lambda topology, geom1, geom2: True):
        with pytest.raises(ValueError, match=r"expected bool\[3\]"):
            contact_layout(model.topology, 0, wrong)


def test_a_filter_is_part_of_the_program() -> None:
    text = "<mujoco><worldbody><geom type='plane' size='1 1 1'/>{}</worldbody></mujoco>".format(
        "".join(f"<body pos='{i} 0 .09'><freejoint/><geom size='.1'/></body>" for i in range(3))
    )
    model = from_mujoco(oracle.load_oracle(text))
    hooks = Hooks(contact_filter=lambda topology, geom1, geom2: geom2 == 2)
    filtered = model.replace(hooks=hooks)
    state = diffsim.make_state(model)
    forward = uncompiled(diffsim.forward)
    data = forward(filtered, state)
    assert forward(model, state).contact.dist.shape == (6,) and data.contact.dist.shape == (4,)
    np.testing.assert_allclose(data.qacc.reshape(3, 6)[:, 2] < -9, [False, True, False])


def test_few_pairs_of_boxes_and_small_meshes_run_in_the_program_of_larger_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """And find the contacts that they find in programs of their own."""
    text, rng = free_scene("crate", "wedge", "nut", "stone"), np.random.default_rng(0)
    mjmodel = oracle.load_with_assets(text, {})
    places = 0.1 * rng.normal(size=(30, 4, 3))
    states = [
        oracle.posed(mjmodel, np.concatenate([place, rng.normal(size=(4, 4))], axis=1).ravel()) for place in places
    ]
    batch = oracle.poses_of(mjmodel, states)
    found, programs = [], []
    for worth in (pairs.WORTH, -1):
        monkeypatch.setattr(pairs, "WORTH", worth)
        model = from_mujoco(mjmodel)
        programs.append(len(contact_layout(model.topology).groups))
        contacts = uncompiled(jax.vmap(collide, in_axes=(None, 0)))(model, batch)
        order = np.argsort(contacts.sort_key[0])
        found.append([np.asarray(x)[:, order] for x in (contacts.dist, contacts.pos, contacts.frame, contacts.geom)])
    assert programs == [1, 5]
    assert np.sum(found[0][0] < 0) > 100
    for together, alone in zip(*found, strict=True):
        np.testing.assert_allclose(together, alone, atol=1e-9)


def test_many_pairs_and_large_meshes_have_programs_of_their_own() -> None:
    kinds = [pairs.Kind((GeomType.MESH, GeomType.MESH), ((edges,) * 8,) * 2) for edges in (8, 32, 128, 1024)]
    small, middle, large, huge = kinds
    runs = lambda *counts: pairs.shared_kinds(dict(zip(kinds, counts, strict=False)))  # noqa: E731
    assert runs(3, 1) == {small: middle, middle: middle}
    assert runs(300, 1) == {small: small, middle: middle}
    # what is searched step by step, and few others
    assert runs(3, 1, 1) == {small: large, middle: large, large: large}
    assert runs(300, 1, 1, 1) == {small: small, middle: large, large: large, huge: huge}
