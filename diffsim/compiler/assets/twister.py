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
    state, rounds = _seeded(seed), []
    for _ in range(-(-count // N)):
        state = _twisted(state)
        rounds.append(state)
    words = np.concatenate([np.zeros(0, np.uint64), *rounds])[:count]
    for shift, mask in TEMPER:
        moved = words >> np.uint64(shift) if shift > 0 else words << np.uint64(-shift)
        words = words ^ (moved & np.uint64(mask))
    return np.minimum(words.astype(float) * 2.0**-64, np.nextafter(1, 0))


def _seeded(seed: int) -> np.ndarray:
    words = [seed]
    for k in range(1, N):
        words.append((6364136223846793005 * (words[-1] ^ (words[-1] >> 62)) + k) % 2**64)
    return np.array(words, np.uint64)


def _twisted(state: np.ndarray) -> np.ndarray:
    """The next state: each half from words that are known by then."""
    following = np.append(state[1:], np.uint64(0))
    mixed = _mixed(state, following)
    first = state[M:] ^ mixed[:M]
    second = first ^ mixed[M:]
    second[-1] = first[-1] ^ _mixed(state[-1:], first[:1])[0]
    return np.concatenate([first, second])


def _mixed(word: np.ndarray, following: np.ndarray) -> np.ndarray:
    joined = (word & ~LOW) | (following & LOW)
    return (joined >> ONE) ^ np.where(joined & ONE, TWIST, np.uint64(0))
