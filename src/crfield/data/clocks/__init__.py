"""Recordings that have clocks: tracks of agents that come and go, and sensors that are put on one time."""
