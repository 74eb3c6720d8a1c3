"""The shield for a robot: one action in plain Python floats, without jax, equal to `shield.shielded`.

The projection adds one row at a time (Seidel): where the best point so far violates a row, the new one lies on that
row, so a handful of intervals is all there is to compute. Microseconds, and no batch.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from outlast.safety.config import ShieldConfig
from outlast.safety.shield import RETREAT_GAIN, RETREAT_SHARE, ROUNDING_M, Tier
from outlast.worlds.arena import ArenaConfig

_TINY = 1e-12
_SLACK = 2e-6
"""A row may be missed by this share of the box before there is no command, as in the batched projection."""
Row = tuple[float, float, float]


class Situation(NamedTuple):
    """What the filter has to know of the world: pose, limits, obstacles (x, y, radius), the other (x, y, top speed)."""

    x_m: float
    y_m: float
    heading_rad: float
    top_mps: float
    turn_radps: float
    width_m: float
    height_m: float
    obstacles: Sequence[tuple[float, float, float]] = ()
    other: tuple[float, float, float] | None = None


class Filter:
    """The filter of one robot; call it with a situation and a command."""

    def __init__(self, shield: ShieldConfig, world: ArenaConfig) -> None:
        if shield.classifier:
            raise ValueError("a shield with a classifier cannot be exported: its weights belong to a run")
        self.shield, self.dt_s, self.radius_m = shield, world.dt_s, world.robot_radius_m
        self.price = math.sqrt(shield.speed_weight), math.sqrt(shield.turn_weight)

    def __call__(self, at: Situation, speed_mps: float, turn_radps: float) -> tuple[float, float, Tier]:
        """Return the command to apply, and what gave it."""
        cos, sin = math.cos(at.heading_rad), math.sin(at.heading_rad)
        walls, things, other = self.rows(at, cos, sin)
        wanted = speed_mps, turn_radps
        free = 0.0 <= speed_mps <= at.top_mps and -at.turn_radps <= turn_radps <= at.turn_radps
        for a_v, a_w, b in walls + things + other:
            if a_v * speed_mps + a_w * turn_radps + b < 0.0:
                free = False
        found = wanted if free else self.project(wanted, walls + things + other, at)
        tier = Tier.FREE if found == wanted else Tier.EXACT
        if found is None and things:
            found, tier = self.project(wanted, walls + other, at), Tier.NO_OBSTACLES
        if found is None and other:
            found, tier = self.project(wanted, other, at), Tier.NO_ARENA
        back = None
        if found is None:
            back = self.retreat(at, cos, sin)
            found, tier = (RETREAT_SHARE * at.top_mps, back), Tier.RETREAT
        if self.shield.hard_check and self.touches(at, cos, sin, found[0]):
            back = self.retreat(at, cos, sin) if back is None else back
            found, tier = (0.0, self.standing(walls + things + other, back, at)), Tier.BRAKED
        return found[0], found[1], tier

    def rows(self, at: Situation, cos: float, sin: float) -> tuple[list[Row], list[Row], list[Row]]:
        """Return the rows a_v v + a_w w + b >= 0 of walls, obstacles and the other robot."""
        shield = self.shield
        d, kappa, near = shield.lookahead_m, shield.kappa_per_s, self.radius_m + shield.margin_m
        x, y = at.x_m + d * cos, at.y_m + d * sin
        half_x, half_y = at.width_m / 2 - near, at.height_m / 2 - near
        walls = [
            (-cos, d * sin, kappa * (half_x - x)),
            (cos, -d * sin, kappa * (half_x + x)),
            (-sin, -d * cos, kappa * (half_y - y)),
            (sin, d * cos, kappa * (half_y + y)),
        ]
        things = []
        for ox, oy, radius in at.obstacles:
            dx, dy, reach = x - ox, y - oy, radius + near
            b = kappa * (dx * dx + dy * dy - reach * reach)
            things.append((2 * (dx * cos + dy * sin), 2 * d * (dy * cos - dx * sin), b))
        other = []
        if shield.separation_m > 0 and at.other is not None:
            dx, dy = at.x_m - at.other[0], at.y_m - at.other[1]
            square = dx * dx + dy * dy
            drift = 2 * math.sqrt(square) * shield.other_speed_share * at.other[2]
            b = kappa * (square - shield.separation_m**2) - drift
            other.append((2 * (dx * cos + dy * sin), 0.0, b))
        return walls, things, other

    def project(
        self, wanted: tuple[float, float], rows: list[Row], at: Situation
    ) -> tuple[float, float] | None:
        """Return the nearest command in the box that satisfies every row, or nothing where there is none."""
        p, q = self.price
        box = [
            (1.0, 0.0, 0.0),
            (-1.0, 0.0, at.top_mps),
            (0.0, 1.0, at.turn_radps),
            (0.0, -1.0, at.turn_radps),
        ]
        slack = _SLACK * math.hypot(p * at.top_mps / 2, q * at.turn_radps)
        start_v, start_w = wanted[0] * p, wanted[1] * q
        v, w = start_v, start_w
        lines: list[Row] = []
        for a_v, a_w, b in box + rows:
            n_v, n_w = a_v / p, a_w / q
            length = math.sqrt(n_v * n_v + n_w * n_w)
            if length < _TINY:
                if b < -slack:
                    return None
                continue
            n_v, n_w, o = n_v / length, n_w / length, b / length
            if n_v * v + n_w * w + o < -slack:
                t = _nearest(lines, n_v, n_w, o, start_v, start_w, slack)
                if t is None:
                    return None
                v, w = -o * n_v - t * n_w, -o * n_w + t * n_v
            lines.append((n_v, n_w, o))
        if v == start_v and w == start_w:
            return wanted
        return min(max(v / p, 0.0), at.top_mps), min(max(w / q, -at.turn_radps), at.turn_radps)

    def clear(self, at: Situation, x: float, y: float) -> list[tuple[float, float, float]]:
        """Return the clearance of each thing at a place, and the direction away from it."""
        half_x, half_y = at.width_m / 2 - self.radius_m, at.height_m / 2 - self.radius_m
        found = [
            (half_x - x, -1.0, 0.0),
            (half_x + x, 1.0, 0.0),
            (half_y - y, 0.0, -1.0),
            (half_y + y, 0.0, 1.0),
        ]
        for ox, oy, radius in at.obstacles:
            dx, dy = x - ox, y - oy
            distance = max(math.sqrt(dx * dx + dy * dy), 1e-9)
            found.append((distance - radius - self.radius_m, dx / distance, dy / distance))
        return found

    def retreat(self, at: Situation, cos: float, sin: float) -> float:
        """Return the turn rate that leads away from the nearest thing."""
        _, x, y = min(self.clear(at, at.x_m, at.y_m))
        error = math.atan2(cos * y - sin * x, cos * x + sin * y)
        return min(max(RETREAT_GAIN * error, -at.turn_radps), at.turn_radps)

    def touches(self, at: Situation, cos: float, sin: float, speed: float) -> bool:
        """Tell whether the exact next position would touch something that the robot is not leaving."""
        if speed <= 0:
            return False
        x, y, reach = (
            at.x_m + speed * cos * self.dt_s,
            at.y_m + speed * sin * self.dt_s,
            self.radius_m + ROUNDING_M,
        )
        near = abs(x) > at.width_m / 2 - reach or abs(y) > at.height_m / 2 - reach
        for ox, oy, radius in at.obstacles:
            if (x - ox) ** 2 + (y - oy) ** 2 < (radius + reach) ** 2:
                near = True
        if not near:
            return False
        after, before = self.clear(at, x, y), self.clear(at, at.x_m, at.y_m)
        return any(a[0] < ROUNDING_M and a[0] <= b[0] for a, b in zip(after, before, strict=True))

    def standing(self, rows: list[Row], turn: float, at: Situation) -> float:
        """Return the turn rate of a robot that stands, as near to the one wanted as the rows allow."""
        least = max([-b / a_w for _, a_w, b in rows if a_w > 0], default=-at.turn_radps)
        most = min([-b / a_w for _, a_w, b in rows if a_w < 0], default=at.turn_radps)
        least, most = max(least, -at.turn_radps), min(most, at.turn_radps)
        return min(max(turn, least), most) if least <= most else turn


def _nearest(
    lines: list[Row], n_v: float, n_w: float, o: float, v: float, w: float, slack: float
) -> float | None:
    """Return the place along a line that is nearest to a point, among what the other lines leave of it."""
    t, low, high = n_v * w - n_w * v, -math.inf, math.inf
    for m_v, m_w, m_o in lines:
        sin, excess = n_v * m_w - n_w * m_v, o * (n_v * m_v + n_w * m_w) - m_o
        if sin > 1e-6:
            low = max(low, excess / sin)
        elif sin < -1e-6:
            high = min(high, excess / sin)
        elif excess > slack:
            return None
    if low > high + 2 * slack:
        return None
    return min(max(t, low), high)
