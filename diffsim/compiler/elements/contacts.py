"""Explicit contact pairs and exclusions, in the order of their signature (body1 << 16) + body2.

What a pair does not say comes from the pair default, not from its geoms (3.8.1).
Source: MuJoCo "Modeling", pair and exclude.
"""

from diffsim.compiler.draft import Draft, Node

CONDIMS = (1, 3, 4, 6)


def pair_rows(draft: Draft) -> None:
    """Rows of all pairs; the geom on the body with the smaller index comes first."""
    for node in draft.nodes["pair"]:
        e = node.e
        geoms = [draft.find(node.source, "geom", name) for name in (e.geom1, e.geom2)]
        if e.condim not in CONDIMS:
            draft.problems.add(node.source, f"condim must be 1, 3, 4 or 6, not {e.condim}")
        first, second = _ordered([(geom.body.id if geom and geom.body else 0, geom) for geom in geoms])
        node.row = {
            "pair_dim": e.condim,
            "pair_geom1": first[1].id if first[1] else -1,
            "pair_geom2": second[1].id if second[1] else -1,
            "pair_signature": (first[0] << 16) + second[0],
            "pair_solref": e.solref,
            "pair_solreffriction": e.solreffriction,
            "pair_solimp": e.solimp,
            "pair_margin": e.margin,
            "pair_gap": e.gap,
            "pair_friction": e.friction,
        }
    _sort(draft, "pair", "pair_signature")


def exclude_rows(draft: Draft) -> None:
    """Rows of all exclusions."""
    for node in draft.nodes["exclude"]:
        bodies = [draft.find(node.source, "body", name) for name in (node.e.body1, node.e.body2)]
        first, second = sorted(body.id if body else 0 for body in bodies)
        node.row = {"exclude_signature": (first << 16) + second}
    _sort(draft, "exclude", "exclude_signature")


def _ordered(pair: list[tuple[int, Node | None]]) -> list[tuple[int, Node | None]]:
    return sorted(pair, key=lambda entry: entry[0])


def _sort(draft: Draft, kind: str, signature: str) -> None:
    """Order by signature and number anew."""
    draft.problems.raise_if_any()
    nodes = draft.nodes[kind] = sorted(draft.nodes[kind], key=lambda node: node.row[signature])
    for index, node in enumerate(nodes):
        node.id = index
    draft.columns(kind)
