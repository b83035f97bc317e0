"""Places: columns of readings that do not describe one, marks of those that do, and recordings taken to another."""

from crfield.features.sensors.places.shift import PlaceShift
from crfield.features.sensors.places.transformer import ReadingFeatures

__all__ = ["PlaceShift", "ReadingFeatures"]
