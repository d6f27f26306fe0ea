"""uniform: random numbers of mt19937_64, the 64-bit Mersenne twister of the C++ library.

numpy has only the 32-bit one. The comments of the constants end with their names in ISO C++, [rand.eng.mers].
Source: Matsumoto and Nishimura 2000.
"""

import numpy as np

Array = np.ndarray

# words of its state (n)
WORDS = 312
# the word that is mixed into the first one (m)
MIDDLE = 156
# xor mask of the twist (a)
TWIST = np.uint64(0xB5026F5AA96619E9)
# the lower 31 bits, which come from the next word (r)
LOW = np.uint64((1 << 31) - 1)
ONE = np.uint64(1)
# factor of the seeding recurrence (f)
SEEDING = 6364136223846793005
# the four steps of tempering: shift to the right (positive) or left, then a mask (u d, s b, t c, l)
TEMPER = (
    (29, 0x5555555555555555),
    (-17, 0x71D67FFFEDA60000),
    (-37, 0xFFF7EEE000000000),
    (43, 2**64 - 1),
)


def uniform(seed: int, count: int) -> Array:
    """(count,) random numbers in [0, 1), equal to C++'s `std::uniform_real_distribution<double>` with mt19937_64."""
    start = [seed]
    for k in range(1, WORDS):
        start.append((SEEDING * (start[-1] ^ (start[-1] >> 62)) + k) % 2**64)
    words = np.empty(WORDS + -(-count // MIDDLE) * MIDDLE, np.uint64)
    words[:WORDS] = start
    # word k depends on words k - WORDS, k - WORDS + 1 and k - WORDS + MIDDLE, so MIDDLE words are made at once
    for first in range(0, count, MIDDLE):
        joined = (words[first : first + MIDDLE] & ~LOW) | (words[first + 1 : first + MIDDLE + 1] & LOW)
        mixed = (joined >> ONE) ^ ((joined & ONE) * TWIST)
        target = words[first + WORDS : first + WORDS + MIDDLE]
        np.bitwise_xor(words[first + MIDDLE : first + 2 * MIDDLE], mixed, out=target)
    words = words[WORDS : WORDS + count]
    for shift, mask in TEMPER:
        moved = words >> np.uint64(shift) if shift > 0 else words << np.uint64(-shift)
        words = words ^ (moved & np.uint64(mask))
    return np.minimum(words.astype(float) * 2.0**-64, np.nextafter(1, 0))
