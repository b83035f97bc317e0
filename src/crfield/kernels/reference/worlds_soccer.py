"""Readable body of the soccer world: two teams of discs, a ball that rolls, and simple rules for who does what.

Each frame every robot gets a *role*, wants a place because of it, moves within its limits, and then something may
happen to the ball.

===========  =============================================  =====================================================
role         who                                            wants
===========  =============================================  =====================================================
keeper       the first of each team                         its goal line, at the height of the ball
carrier      who has the ball at its feet                   the other goal, at 0.7 of the top speed
receiver     to whom a pass is under way                    the ball, 0.3 s ahead
chaser       the nearest to the ball, if the other team     the ball, 0.3 s ahead
             or nobody has it; chosen four times a second
supporter    the rest of the team that has the ball         a random place in the other half, at 0.8 of the speed
marker       the rest of the other team                     0.3 s ahead of the opponent of its number, goal side
===========  =============================================  =====================================================

While the ball is loose, supporters and markers keep on. A carrier with an opponent at the ball loses it at 0.4 per
second; it passes at 1.2 per second when one is within 600 mm and at 0.4 otherwise, mostly to whoever is free, and
shoots at 1.5 per second in the last third. A team has *possession* while it carries or passes; after a shot, a lost
ball and a goal the ball is *loose* until somebody reaches it. Nobody does for 0.2 s
after a kick, and the kicker not for 0.4 s.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from crfield.kernels.reference.worlds_motion import Draws, Movers

KEEPER, CARRIER, CHASER, RECEIVER, SUPPORTER, MARKER = range(6)
LOOSE = 2
_TRIES = 1000


class _Soccer(Movers):
    """The state of a game between frames."""

    def __init__(self, draws: Draws, n: int, half: tuple[float, float, float], limits: tuple[float, ...]) -> None:
        self.draws, self.n, self.all = draws, n, 2 * n
        self.half_x, self.half_y, self.half_goal = half
        self.top_speed, self.top_acceleration, self.kick_speed, self.friction, self.diameter, rate = limits
        self.dt = 1.0 / rate
        self.gain = self.top_acceleration * self.dt
        self.hold, self.cooling = max(1, int(rate / 4.0)), int(0.4 * rate)
        size = self.all
        self.px, self.py, self.vx, self.vy = ([0.0] * size for _ in range(4))
        self.tx, self.ty, self.role = [0.0] * size, [0.0] * size, [MARKER] * size
        self.bx = self.by = self.bvx = self.bvy = 0.0
        self.carrier, self.receiver, self.kicker, self.cool = -1, -1, -1, 0
        self.possession, self.clock = LOOSE, 0
        self.chaser, self.goals = [0, 0], [0, 0]
        for r in range(size):
            for _ in range(_TRIES):
                self.px[r] = -self.side(r) * self.draws.uniform() * (self.half_x - self.diameter)
                self.py[r] = (2.0 * self.draws.uniform() - 1.0) * (self.half_y - self.diameter)
                if all(self.apart(r, k) >= self.diameter for k in range(r)):
                    break
            self.support(r)

    def side(self, r: int) -> float:
        """The sign of x towards which the robot's team plays."""
        return 1.0 if r < self.n else -1.0

    def apart(self, i: int, j: int) -> float:
        dx, dy = self.px[j] - self.px[i], self.py[j] - self.py[i]
        return sqrt(dx * dx + dy * dy)

    def from_ball(self, r: int) -> float:
        dx, dy = self.px[r] - self.bx, self.py[r] - self.by
        return sqrt(dx * dx + dy * dy)

    def support(self, r: int) -> None:
        self.tx[r] = self.side(r) * self.draws.uniform() * 0.9 * self.half_x
        self.ty[r] = (2.0 * self.draws.uniform() - 1.0) * 0.9 * self.half_y

    def assign(self) -> None:
        for team in (0, 1):
            first, owns = team * self.n, self.possession == team
            if self.clock % self.hold == 0:
                self.chaser[team], best = first + 1, 1e300
                for r in range(first + 1, first + self.n):
                    d = self.from_ball(r)
                    if d < best:
                        self.chaser[team], best = r, d
            for r in range(first, first + self.n):
                before = self.role[r]
                if r == self.carrier:
                    self.role[r] = CARRIER
                elif r == self.receiver and owns:
                    self.role[r] = RECEIVER
                elif r == first:
                    self.role[r] = KEEPER
                elif r == self.chaser[team] and not owns:
                    self.role[r] = CHASER
                elif owns:
                    self.role[r] = SUPPORTER
                elif self.possession != LOOSE:
                    self.role[r] = MARKER
                elif before not in (SUPPORTER, MARKER):
                    self.role[r] = SUPPORTER if self.bx * self.side(r) > 0.0 else MARKER

    def wish(self, r: int) -> tuple[float, float, float]:
        """Where the robot wants to be, and how fast it may go there."""
        side, role = self.side(r), self.role[r]
        if role == KEEPER:
            y = self.by if self.by < self.half_goal else self.half_goal
            y = y if y > -self.half_goal else -self.half_goal
            return -side * (self.half_x - self.diameter), y, self.top_speed
        if role == CARRIER:
            return side * self.half_x, 0.0, 0.7 * self.top_speed
        if role in (CHASER, RECEIVER):
            return self.bx + 0.3 * self.bvx, self.by + 0.3 * self.bvy, self.top_speed
        if role == SUPPORTER:
            dx, dy = self.tx[r] - self.px[r], self.ty[r] - self.py[r]
            if dx * dx + dy * dy < 150.0 * 150.0:
                self.support(r)
            return self.tx[r], self.ty[r], 0.8 * self.top_speed
        other = r + self.n if r < self.n else r - self.n
        x, y = self.px[other] + 0.3 * self.vx[other], self.py[other] + 0.3 * self.vy[other]
        dx, dy = -side * self.half_x - x, -y
        d = sqrt(dx * dx + dy * dy)
        back = 2.0 * self.diameter / d if d > 1e-9 else 0.0
        return x + back * dx, y + back * dy, self.top_speed

    def move(self, r: int) -> None:
        x, y, speed = self.wish(r)
        dx, dy = x - self.px[r], y - self.py[r]
        d = sqrt(dx * dx + dy * dy)
        brake = sqrt(1.6 * self.top_acceleration * d)
        speed = brake if brake < speed else speed
        wx = wy = 0.0
        if d > 1e-9:
            wx, wy = dx / d * speed, dy / d * speed
        self.accelerate(r, wx, wy, self.gain)

    def touch(self, i: int, j: int) -> None:
        d = self.apart(i, j)
        if d >= self.diameter:
            return
        nx, ny = 1.0, 0.0
        if d > 1e-9:
            nx, ny = (self.px[j] - self.px[i]) / d, (self.py[j] - self.py[i]) / d
        over = 0.5 * (self.diameter - d)
        mx, my = (nx - 0.1 * ny) * over, (ny + 0.1 * nx) * over
        self.px[i] -= mx
        self.py[i] -= my
        self.px[j] += mx
        self.py[j] += my
        self.stay_inside(i)
        self.stay_inside(j)

    def kick(self, dx: float, dy: float, speed: float) -> None:
        d = sqrt(dx * dx + dy * dy)
        if d > 1e-9:
            self.bvx, self.bvy = dx / d * speed, dy / d * speed
        self.kicker, self.cool, self.carrier = self.carrier, self.cooling, -1

    def nearest_opponent(self, r: int, x: float, y: float) -> float:
        first = self.n if r < self.n else 0
        best = 1e300
        for k in range(first, first + self.n):
            dx, dy = self.px[k] - x, self.py[k] - y
            d = dx * dx + dy * dy
            best = d if d < best else best
        return sqrt(best)

    def carry(self) -> None:
        """The ball at its carrier's feet: lost, passed, shot or taken along."""
        r = self.carrier
        side = self.side(r)
        hx, hy = side * self.half_x - self.px[r], -self.py[r]
        d = sqrt(hx * hx + hy * hy)
        front = 0.5 * self.diameter + 20.0
        self.bx = self.px[r] + (hx / d * front if d > 1e-9 else 0.0)
        self.by = self.py[r] + (hy / d * front if d > 1e-9 else 0.0)
        self.bx = self.half_x if self.bx > self.half_x else -self.half_x if self.bx < -self.half_x else self.bx
        self.bvx, self.bvy = self.vx[r], self.vy[r]
        keeper = r in (0, self.n)
        pressed = not keeper and self.nearest_opponent(r, self.bx, self.by) < 0.5 * self.diameter + 60.0
        if self.draws.uniform() < 0.4 * self.dt and pressed:
            dx = dy = 0.0
            for _ in range(_TRIES):
                dx, dy = 2.0 * self.draws.uniform() - 1.0, 2.0 * self.draws.uniform() - 1.0
                if 0.01 < dx * dx + dy * dy < 1.0:
                    break
            self.kick(dx, dy, 0.3 * self.kick_speed)
            self.possession = LOOSE
            return
        if self.bx * side > 0.33 * self.half_x and self.draws.uniform() < 1.5 * self.dt:
            y = (2.0 * self.draws.uniform() - 1.0) * 1.2 * self.half_goal
            self.kick(side * self.half_x - self.bx, y - self.by, self.kick_speed)
            self.possession = LOOSE
            return
        hurried = keeper or self.nearest_opponent(r, self.px[r], self.py[r]) < 600.0
        if self.draws.uniform() < (1.2 if hurried else 0.4) * self.dt:
            self.give(r)

    def give(self, r: int) -> None:
        first = 0 if r < self.n else self.n
        best, mate = -1.0, -1
        for k in range(first + 1, first + self.n):
            if k != r:
                free = self.nearest_opponent(k, self.px[k], self.py[k])
                free = (free if free < 1000.0 else 1000.0) + 500.0 * self.draws.uniform()
                if free > best:
                    best, mate = free, k
        if mate < 0:
            return
        dx, dy = self.px[mate] - self.bx, self.py[mate] - self.by
        error = 0.16 * self.draws.uniform() - 0.08
        d = sqrt(dx * dx + dy * dy)
        speed = sqrt(800.0 * 800.0 + 2.0 * self.friction * d)
        speed = speed if speed < self.kick_speed else self.kick_speed
        self.kick(dx - error * dy, dy + error * dx, speed)
        self.receiver = mate

    def roll(self) -> None:
        """The ball by itself: friction, boards, goals, and whoever reaches it."""
        speed = sqrt(self.bvx * self.bvx + self.bvy * self.bvy)
        slower = speed - self.friction * self.dt
        factor = slower / speed if slower > 0.0 else 0.0
        self.bvx *= factor
        self.bvy *= factor
        self.bx += self.bvx * self.dt
        self.by += self.bvy * self.dt
        if self.by > self.half_y or self.by < -self.half_y:
            self.by, self.bvy = (self.half_y if self.by > 0.0 else -self.half_y), -0.6 * self.bvy
        if self.bx > self.half_x or self.bx < -self.half_x:
            if -self.half_goal < self.by < self.half_goal:
                self.goals[0 if self.bx > 0.0 else 1] += 1
                self.bx, self.by = 0.0, (self.draws.uniform() - 0.5) * self.half_y
                self.bvx = self.bvy = 0.0
                self.possession, self.receiver = LOOSE, -1
                return
            self.bx, self.bvx = (self.half_x if self.bx > 0.0 else -self.half_x), -0.6 * self.bvx
        if slower < 50.0:
            self.possession, self.receiver = LOOSE, -1
        best, who = 0.5 * self.diameter + 40.0, -1
        for r in range(self.all):
            if 2 * self.cool <= self.cooling and (r != self.kicker or self.cool == 0):
                d = self.from_ball(r)
                if d < best:
                    best, who = d, r
        if who >= 0:
            self.carrier, self.receiver, self.kicker = who, -1, -1
            self.possession = 0 if who < self.n else 1

    def step(self) -> None:
        self.assign()
        for r in range(self.all):
            self.move(r)
        for i in range(self.all):
            for j in range(i + 1, self.all):
                self.touch(i, j)
        if self.carrier >= 0:
            self.carry()
        else:
            self.roll()
        if self.possession == LOOSE:
            self.receiver = -1
        self.cool -= self.cool > 0
        self.clock += 1


def soccer_steps(
    positions: np.ndarray,
    possession: np.ndarray,
    carrier: np.ndarray,
    roles: np.ndarray,
    goals: np.ndarray,
    seed: int,
    half_x: float,
    half_y: float,
    half_goal: float,
    top_speed: float,
    top_acceleration: float,
    kick_speed: float,
    friction: float,
    diameter: float,
    rate: float,
) -> None:
    """Fill positions (T, 2n + 1, 2), possession (T,), carrier (T,), roles (T, 2n) and goals (2,)."""
    limits = (top_speed, top_acceleration, kick_speed, friction, diameter, rate)
    game = _Soccer(Draws(seed), roles.shape[1] // 2, (half_x, half_y, half_goal), limits)
    for t in range(len(positions)):
        game.step()
        positions[t, :, 0], positions[t, :, 1] = [*game.px, game.bx], [*game.py, game.by]
        possession[t], carrier[t], roles[t] = game.possession, game.carrier, game.role
    goals[:] = game.goals
