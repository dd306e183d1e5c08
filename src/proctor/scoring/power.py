"""How small a drop a comparison can see, and how many repeats it takes.

The exact test behaves like a test of two rates measured on `cases x repeats` attempts each, with correction for continuity
(Casagrande, Pike and Smith; Fleiss). With p the base rate, q = p - drop, r their mean and N the attempts of a run:

    power = Phi( ((drop - 1/N) sqrt(N) - z sqrt(2 r (1-r))) / sqrt(p (1-p) + q (1-q)) )

All cases are taken to be equally hard. That is the noisiest suite: cases that always or never pass add no noise, so a real suite
as a rule sees more.
"""

from __future__ import annotations

import math

from proctor.scoring.intervals import find_normal_quantile, find_two_sided_z


def compute_power(cases: int, repeats: int, base_rate: float, drop: float, *, alpha: float = 0.05) -> float:
    """Return the chance that a comparison says `regressed` when every case's pass rate falls by `drop`."""
    _check(base_rate, drop)
    attempts = cases * repeats
    if attempts < 1 or drop <= 0:
        return 0.0
    after = base_rate - drop
    # A fall to exactly zero may come out a little below it by rounding.
    if after < -1e-12:
        return 0.0
    after = max(0.0, after)
    middle = (base_rate + after) / 2
    needed = find_two_sided_z(1 - alpha) * math.sqrt(2 * middle * (1 - middle))
    spread = math.sqrt(base_rate * (1 - base_rate) + after * (1 - after))
    surplus = (drop - 1 / attempts) * math.sqrt(attempts) - needed
    if not spread:
        return 1.0 if surplus >= 0 else 0.0
    return math.erfc(-surplus / spread / math.sqrt(2)) / 2


def repeats_needed(cases: int, base_rate: float, drop: float, *, power: float = 0.8, alpha: float = 0.05) -> int | None:
    """Return how often both runs must repeat each case to see a drop with this power, or None if the rate cannot fall so far."""
    _check(base_rate, drop)
    if cases < 1 or drop <= 0 or drop > base_rate + 1e-12:
        return None
    after = max(0.0, base_rate - drop)
    middle = (base_rate + after) / 2
    root = find_two_sided_z(1 - alpha) * math.sqrt(2 * middle * (1 - middle))
    root += find_normal_quantile(power) * math.sqrt(base_rate * (1 - base_rate) + after * (1 - after))
    root /= drop
    attempts = ((root + math.sqrt(root * root + 4 / drop)) / 2) ** 2
    # A quotient that is a whole number but for its last bit must not cost one more repeat of everything.
    return max(1, math.ceil(attempts / cases - 1e-9))


def detectable_drop(cases: int, repeats: int, base_rate: float, *, power: float = 0.8, alpha: float = 0.05) -> float | None:
    """Return the smallest drop, to a tenth of a point, that is seen with this power, or None when not even the fall to zero is."""
    for tenths in range(1, int(base_rate * 1000 + 1e-9) + 1):
        attempts = repeats_needed(cases, base_rate, tenths / 1000, power=power, alpha=alpha)
        if attempts is not None and attempts <= repeats:
            return tenths / 1000
    return None


def _check(base_rate: float, drop: float) -> None:
    if not (0 <= base_rate <= 1 and 0 <= drop <= 1):
        raise ValueError(f"expected rates between 0 and 1, found base rate {base_rate} and drop {drop}")
