"""The 64-bit Mersenne twister, as the C++ library has it, to place MuJoCo's random marks. numpy has the 32-bit one.

Source: Matsumoto and Nishimura 2000; ISO C++, [rand.eng.mers], mt19937_64.
"""

import numpy as np

N, M = 312, 156
TWIST = np.uint64(0xB5026F5AA96619E9)
LOW = np.uint64((1 << 31) - 1)
ONE = np.uint64(1)
# shift to the left (negative) or right, mask
TEMPER = ((29, 0x5555555555555555), (-17, 0x71D67FFFEDA60000), (-37, 0xFFF7EEE000000000), (43, 2**64 - 1))


def uniform(seed: int, count: int) -> np.ndarray:
    """(count,) numbers in [0, 1), as `uniform_real_distribution<double>` draws them."""
    words = _words(seed, count)
    for shift, mask in TEMPER:
        moved = words >> np.uint64(shift) if shift > 0 else words << np.uint64(-shift)
        words = words ^ (moved & np.uint64(mask))
    return np.minimum(words.astype(float) * 2.0**-64, np.nextafter(1, 0))


def _words(seed: int, count: int) -> np.ndarray:
    """(count,) words before they are tempered: each follows from those N, N - 1 and N - M before it."""
    words = np.empty(N + -(-count // M) * M, np.uint64)
    words[:N] = _seeded(seed)
    # as many at once as follow from words that are there
    for first in range(0, count, M):
        joined = (words[first : first + M] & ~LOW) | (words[first + 1 : first + M + 1] & LOW)
        mixed = (joined >> ONE) ^ ((joined & ONE) * TWIST)
        np.bitwise_xor(words[first + M : first + 2 * M], mixed, out=words[first + N : first + N + M])
    return words[N : N + count]


def _seeded(seed: int) -> list[int]:
    words = [seed]
    for k in range(1, N):
        words.append((6364136223846793005 * (words[-1] ^ (words[-1] >> 62)) + k) % 2**64)
    return words
