"""Mathematics shared by all rooms: small vectors, rotations, spatial algebra, safe functions, linear algebra.

All functions act on the last axis (or the last two, for matrices) and broadcast over the leading ones. Sums over
3, 4 or 6 elements are written out: XLA turns a reduction over a tiny axis into code that is 15-40 times slower.
"""
