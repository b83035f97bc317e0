"""Specifications to start from: those of robot tag in the literature, and one of a game with a ball.

`TAG_SMALL` and `TAG_LARGE` are the feature sets of Vail's thesis on activity recognition with conditional random
fields (2008, sections 2.7 and 3.4.1) for three robots and three labels: 324 and 1,200 features. In the second the
distances are tied to every pair of labels and the chasing is of the closest robot only: the reading that adds up to
the number in the text. Lengths are millimetres and speeds millimetres a second, so recordings need their true `rate`.

`SOCCER` is about two teams of five and a ball with three labels: 2,718,381 features of 302,067 columns.
"""

from __future__ import annotations

TAG_SMALL = """
positions state : comp(pos(r),c)          | for r in robots, c in xy | pow 1,2
velocity  state : speed(r)                | for r in robots | pow 1,2
velthr    state : speed(r)                | for r in robots | test <,> 300 | win all 1,6,30,60,90,120
chasing   state : cosang(rel(a,b),vel(a)) | for a in robots, b in robots | where a != b | pow 1,2
disttrans trans : (dist(a,b) < 240 or lag(dist(a,b) < 240, 1)) and not lag(dist(a,b) < 240, 2)
                | for a in robots, b in robots | where a < b | test >,<= 0.5
dclosest  state : delta(closest(a,robots)) | for a in robots | pow 1,2
velcomp   state : comp(vel(r),c)          | for r in robots, c in xy | pow 1,2
straight  state : cosang(vel(r),lag(vel(r),5)) | for r in robots | pow 1,2
"""

TAG_LARGE = """
intercept  state : const(1)
transition trans : const(1)
raw        state : comp(pos(r),c)         | for r in robots, c in xy | pow 1,2
speed      state : speed(r)               | for r in robots | pow 1,2
chase      state : select_min((dist(k,j), dot(rel(k,j),vel(k))) for j in robots if j != k)
                 | for k in robots | pow 1,2
velcorr    state : dot(vel(j),vel(k))     | for j in robots, k in robots | where j < k | pow 1,2
velthr     state : speed(j)               | for j in robots | test < 5:100:5
distthr    trans : dist(a,b)              | for a in robots, b in robots | where a < b | test <,> 200:1000:50
"""

SOCCER = """
positions  state : comp(pos(r),c)          | for r in all, c in xy
nearest    state : closest(r,all)          | for r in agents
speeds     trans : speed(r)                | for r in all
                 | test <,> 50:2000:50 | win all 1,6,30,60,120 | lag 0,10,30,60
balldist   trans : dist(r,k)               | for r in all, k in ball | where r != k
                 | test <,> 50:2000:50 | win all 1,6,30,60,120 | lag 0,10,30,60
pairdist   trans : dist(a,b)               | for a in all, b in all | where a < b
                 | test <,> 50:2000:50 | win all 1,6,30,60,120 | lag 0,10,30,60
chase      trans : cosang(rel(a,b),vel(a)) | for a in all, b in all | where a != b
                 | test <,> -1:1:0.05 | win mean 1,6,30,60,120 | lag 0,10,30,60
markers    state : count(dist(r,o) < 500 for o in them) | for r in us
possession trans : dist(r,k) < 150 and abs(speed(r) - speed(k)) < 300 | for r in all, k in ball | where r != k
                 | test > 0.5 | win all 1,6,30
"""
