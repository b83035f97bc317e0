"""Readable bodies of the worlds: robots that play tag, two teams with a ball, and the tracker behind a camera.

A world is a loop in which every step needs the one before, over a handful of robots; there is nothing to vectorise,
so these bodies are plain Python over lists of floats. The compiled module repeats them operation by operation, with
the same generator of random numbers (`Draws`) and without fused multiplications, so both give the same bits. The
contract is in `crfield.kernels.worlds`; the soccer world is in `crfield.kernels.reference.worlds_soccer`.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from crfield.kernels.reference.worlds_motion import Draws, Movers
from crfield.kernels.reference.worlds_soccer import soccer_steps

__all__ = ["Draws", "soccer_steps", "tag_steps", "track"]

_TRIES = 1000


class _Tag(Movers):
    """The state of a game of tag between steps."""

    def __init__(
        self,
        n_robots: int,
        hourglass: bool,
        seed: int,
        half: tuple[float, float],
        top_speed: float,
        top_acceleration: float,
        pause_steps: int,
        diameter: float,
        gap: float,
        away: float,
        reach: float,
        rate: float,
    ) -> None:
        self.draws, self.n, self.hourglass = Draws(seed), n_robots, hourglass
        self.half_x, self.half_y = half
        self.top_speed, self.top_acceleration, self.pause_steps = top_speed, top_acceleration, pause_steps
        self.diameter, self.near, self.away, self.reach = diameter, diameter + gap, away, reach
        self.dt = 1.0 / rate
        self.kick = top_acceleration * self.dt
        self.px, self.py = [0.0] * n_robots, [0.0] * n_robots
        self.vx, self.vy = [0.0] * n_robots, [0.0] * n_robots
        self.tx, self.ty = [0.0] * n_robots, [0.0] * n_robots
        self.corner = [r % 4 for r in range(n_robots)]
        for r in range(n_robots):
            for _ in range(_TRIES):
                self.px[r] = (2.0 * self.draws.uniform() - 1.0) * (self.half_x - diameter)
                self.py[r] = (2.0 * self.draws.uniform() - 1.0) * (self.half_y - diameter)
                if self.nearest(r, r)[1] >= self.near:
                    break
        self.seeker = int(self.draws.uniform() * n_robots)
        self.left, self.heir, self.tags = 0, -1, 0
        self.most_patience = int(2.0 * rate)
        self.patience = 0
        for r in range(n_robots):
            self.aim(r)

    def nearest(self, r: int, among: int) -> tuple[int, float]:
        """Which of the first ``among`` robots is nearest to r, and how far."""
        best, who = 1e300, -1
        for k in range(among):
            if k != r:
                dx, dy = self.px[k] - self.px[r], self.py[k] - self.py[r]
                d = dx * dx + dy * dy
                if d < best:
                    best, who = d, k
        return who, sqrt(best)

    def aim(self, r: int) -> None:
        """A new target for a robot that does not seek."""
        sx, sy = self.px[self.seeker], self.py[self.seeker]
        if not self.hourglass:
            for _ in range(_TRIES):
                self.tx[r] = (2.0 * self.draws.uniform() - 1.0) * (self.half_x - 0.5 * self.diameter)
                self.ty[r] = (2.0 * self.draws.uniform() - 1.0) * (self.half_y - 0.5 * self.diameter)
                dx, dy = self.tx[r] - sx, self.ty[r] - sy
                if dx * dx + dy * dy >= self.away * self.away:
                    break
            return
        self.corner[r] = (self.corner[r] + 1) % 4
        cx = 1.0 if self.corner[r] % 2 else -1.0
        cy = 1.0 if self.corner[r] >= 2 else -1.0
        inner = 0.75 * self.diameter
        far_x, far_y = self.half_x - 1.5 * self.diameter, self.half_y - 1.5 * self.diameter
        self.tx[r], self.ty[r] = cx * far_x, cy * far_y
        if sx * cx > 0.0 and sy * cy > 0.0:
            best = -1.0
            for ax in (inner, far_x):
                for ay in (inner, far_y):
                    dx, dy = cx * ax - sx, cy * ay - sy
                    d = dx * dx + dy * dy
                    if d > best:
                        best, self.tx[r], self.ty[r] = d, cx * ax, cy * ay

    def hand_over(self, heir: int) -> None:
        old, self.seeker = self.seeker, heir
        self.left, self.patience = self.pause_steps, self.most_patience
        self.tags += 1
        self.aim(old)

    def move(self, r: int, halted: bool) -> None:
        wx = wy = 0.0
        if not (halted and r == self.seeker):
            if r == self.seeker:
                prey, _ = self.nearest(r, self.n)
                self.tx[r], self.ty[r] = self.px[prey], self.py[prey]
            dx, dy = self.tx[r] - self.px[r], self.ty[r] - self.py[r]
            d = sqrt(dx * dx + dy * dy)
            if r != self.seeker and d < self.reach:
                self.aim(r)
                dx, dy = self.tx[r] - self.px[r], self.ty[r] - self.py[r]
                d = sqrt(dx * dx + dy * dy)
            speed = self.top_speed
            if r != self.seeker:
                brake = sqrt(1.6 * self.top_acceleration * d)
                speed = brake if brake < speed else speed
            if d > 1e-9:
                wx, wy = dx / d * speed, dy / d * speed
        self.accelerate(r, wx, wy, self.kick)

    def touch(self, i: int, j: int, still: int) -> None:
        """Push two robots apart that overlap; they pass each other on the right, and who pauses stands firm."""
        dx, dy = self.px[j] - self.px[i], self.py[j] - self.py[i]
        d = sqrt(dx * dx + dy * dy)
        if d >= self.diameter:
            return
        nx, ny = (dx / d, dy / d) if d > 1e-9 else (1.0, 0.0)
        share_i = 0.0 if i == still else 1.0 if j == still else 0.5
        share_j = 1.0 - share_i
        over = self.diameter - d
        mx, my = (nx - 0.1 * ny) * over, (ny + 0.1 * nx) * over
        self.px[i] -= mx * share_i
        self.py[i] -= my * share_i
        self.px[j] += mx * share_j
        self.py[j] += my * share_j
        closing = (self.vx[j] - self.vx[i]) * nx + (self.vy[j] - self.vy[i]) * ny
        if closing < 0.0:
            ux, uy = (nx - 0.5 * ny) * closing, (ny + 0.5 * nx) * closing
            self.vx[i] += ux * share_i
            self.vy[i] += uy * share_i
            self.vx[j] -= ux * share_j
            self.vy[j] -= uy * share_j
        for r in (i, j):
            speed = sqrt(self.vx[r] * self.vx[r] + self.vy[r] * self.vy[r])
            if speed > self.top_speed:
                self.vx[r] *= self.top_speed / speed
                self.vy[r] *= self.top_speed / speed
            self.stay_inside(r)
        if still in (i, j):
            self.give_up(j if i == still else i, still)

    def give_up(self, r: int, still: int) -> None:
        """The next target, if the robot that pauses stands on the present one."""
        dx, dy = self.tx[r] - self.px[still], self.ty[r] - self.py[still]
        if dx * dx + dy * dy < self.near * self.near:
            self.aim(r)

    def step(self, contact: bool) -> None:
        if self.heir >= 0:
            self.hand_over(self.heir)
            self.heir = -1
        order = list(range(self.n))
        for k in range(self.n - 1, 0, -1):
            other = int(self.draws.uniform() * (k + 1))
            order[k], order[other] = order[other], order[k]
        halted = self.left > 0
        if halted:
            self.left -= 1
        for r in order:
            self.move(r, halted)
        if contact:
            still = self.seeker if halted else -1
            for i in range(self.n):
                for j in range(i + 1, self.n):
                    self.touch(i, j, still)
        prey, d = self.nearest(self.seeker, self.n)
        if d >= self.near:
            return
        if halted:
            if self.left == 0 and self.patience > 0:
                self.left, self.patience = 1, self.patience - 1
        elif order.index(self.seeker) < order.index(prey):
            self.hand_over(prey)
        else:
            self.heir = prey


def tag_steps(
    positions: np.ndarray,
    labels: np.ndarray,
    hourglass: bool,
    seed: int,
    half_x: float,
    half_y: float,
    top_speed: float,
    top_acceleration: float,
    pause_steps: int,
    diameter: float,
    gap: float,
    away: float,
    reach: float,
    rate: float,
    contact: bool,
) -> int:
    """Fill positions (T, R, 2) and labels (T,); the number of tags."""
    game = _Tag(
        positions.shape[1],
        hourglass,
        seed,
        (half_x, half_y),
        top_speed,
        top_acceleration,
        pause_steps,
        diameter,
        gap,
        away,
        reach,
        rate,
    )
    for t in range(len(positions)):
        game.step(contact)
        positions[t, :, 0], positions[t, :, 1] = game.px, game.py
        labels[t] = game.seeker
    return game.tags


def track(measured: np.ndarray, seen: np.ndarray, alpha: float, beta: float, out: np.ndarray) -> None:
    """Fill ``out`` (T, R, 2) with what an α-β tracker makes of measurements (T, R, 2), seen (T, R) or not."""
    if not len(measured):
        return
    place, pace = measured[0].copy(), np.zeros_like(measured[0])
    for t in range(len(measured)):
        place = place + pace
        surprise = np.where(seen[t][:, None] != 0, measured[t] - place, 0.0)
        place = place + alpha * surprise
        pace = pace + beta * surprise
        out[t] = place
